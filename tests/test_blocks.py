"""Feature blocks: every product against dense NumPy, and what they refuse."""

import threading
import time
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from fastadmm.blocks.block import MOST_FILLED, CSRBlock, DenseBlock, as_block, check_scale
from fastadmm.engine.engine import MAX_PIECES, ROWS_PER_PIECE, Engine, row_ranges
from fastadmm.errors import InputError
from fastadmm.parties.proximal import WeightedBlock

from run_tools import refuses


def values(n, d, seed=0):
    rng = np.random.default_rng(seed)
    matrix = np.where(rng.random((n, d)) < 0.3, rng.normal(size=(n, d)), 0.0)
    matrix[:, d // 2] = 0.0
    matrix[n // 2] = 0.0
    return matrix


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize("shape", [(1, 1), (13, 5), (5, 30), (2 * ROWS_PER_PIECE + 3, 4)], ids=str)
def test_products(shape, kind, n_threads):
    matrix = values(*shape)
    rng = np.random.default_rng(1)
    x, v = rng.normal(size=shape[1]), rng.normal(size=shape[0])
    with Engine(n_threads) as engine:
        block = as_block(kind(matrix))
        assert block.shape == shape
        assert block.nbytes > 0
        np.testing.assert_allclose(block.product(x, engine), matrix @ x, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(block.transposed_product(v, engine), matrix.T @ v, rtol=1e-11, atol=1e-11)
        gram = block.gram(engine)
        np.testing.assert_allclose(gram, matrix.T @ matrix, rtol=1e-11, atol=1e-11)
        np.testing.assert_array_equal(gram, gram.T)
        np.testing.assert_allclose(block.column_squares(engine), np.diag(gram), rtol=1e-11)
        columns = np.full(shape[::-1], np.nan)
        block.columns_into(columns, engine)
        np.testing.assert_array_equal(columns, matrix.T)
        if shape[0] < 100:
            np.testing.assert_allclose(block.kernel_gram(), matrix @ matrix.T, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("filled", [0.0, 0.1, MOST_FILLED, 0.3, 1.0])
@pytest.mark.parametrize("shape", [(200, 40), (3 * ROWS_PER_PIECE, 30)], ids=str)
def test_a_dense_matrix_of_mostly_zeros_is_compressed(shape, filled):
    n, d = shape
    rng = np.random.default_rng(4)
    matrix = np.zeros(n * d)
    matrix[rng.permutation(n * d)[: int(filled * n * d)]] = rng.normal(size=int(filled * n * d))
    matrix = matrix.reshape(n, d)
    block = as_block(matrix)
    assert isinstance(block, CSRBlock if filled <= MOST_FILLED else DenseBlock)
    if isinstance(block, CSRBlock):
        twin = CSRBlock(sp.csr_array(matrix))
        np.testing.assert_array_equal(block.indptr, twin.indptr)
        np.testing.assert_array_equal(block.indices, twin.indices)
        np.testing.assert_array_equal(block.data, twin.data)
        assert block.shape == twin.shape
        assert block.density == twin.density


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array], ids=["dense", "csr"])
def test_the_largest_entry_is_known_and_no_bad_one_is_missed(kind, bad):
    matrix = values(300, 7)
    matrix[17, 3] = -9.5
    assert as_block(kind(matrix)).largest == 9.5
    for place in ((0, 0), (299, 6), (150, 2)):
        spoiled = matrix.copy()
        spoiled[place] = bad
        refuses(InputError, f"row {place[0]}, column {place[1]}", as_block, kind(spoiled))
    assert as_block(kind(np.zeros((3, 2)))).largest == 0.0


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array], ids=["dense", "csr"])
def test_columns_whose_squares_overflow_are_refused_by_number(kind):
    matrix = values(50, 4)
    matrix[:, 3] = 1e150
    with Engine(1) as engine:
        check_scale(as_block(kind(matrix)), "block", engine)
        matrix[:, 3] = 3e153  # one square is finite, fifty are not
        refuses(InputError, "column 3", check_scale, as_block(kind(matrix)), "block", engine)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array], ids=["dense", "csr"])
def test_a_product_alone_on_its_thread_has_the_same_bits(kind):
    matrix = values(2 * ROWS_PER_PIECE + 5, 6)
    rng = np.random.default_rng(6)
    x, v = rng.normal(size=6), rng.normal(size=len(matrix))
    block = as_block(kind(matrix))
    with Engine(2) as engine:
        outside = block.product(x, engine), block.transposed_product(v, engine)
        for parallel in (False, True):
            for inside in engine.map(
                lambda _: (block.product(x, engine), block.transposed_product(v, engine)),
                range(2),
                parallel=parallel,
            ):
                np.testing.assert_array_equal(inside[0], outside[0])
                np.testing.assert_array_equal(inside[1], outside[1])


@pytest.mark.parametrize(
    "form",
    [
        *(np.asfortranarray, np.ndarray.tolist, pd.DataFrame, lambda a: np.repeat(a, 2, axis=1)[:, ::2]),
        *(sp.csr_matrix, sp.csc_array, sp.coo_array, sp.lil_array),
    ],
    ids=["fortran", "list", "frame", "strided", "csr-matrix", "csc", "coo", "lil"],
)
def test_every_form_of_matrix_is_the_same_block(form):
    matrix = values(9, 6)
    with Engine(1) as engine:
        np.testing.assert_allclose(
            as_block(form(matrix)).product(np.arange(6.0), engine), matrix @ np.arange(6.0), rtol=1e-14
        )


@pytest.mark.parametrize("dtype", [np.float32, np.int16, np.int64, bool, np.uint8])
@pytest.mark.parametrize("sparse", [False, True])
def test_every_number_type_is_computed_in_double_precision(dtype, sparse):
    matrix = (values(9, 6) * 3).astype(dtype)
    block = as_block(sp.csr_array(matrix) if sparse else matrix)
    with Engine(1) as engine:
        np.testing.assert_allclose(
            block.gram(engine), matrix.astype(float).T @ matrix.astype(float), rtol=1e-14
        )


@pytest.mark.parametrize("index_type", [np.int32, np.int64])
def test_sparse_rows_with_unsorted_and_repeated_indices(index_type):
    indptr = np.array([0, 3, 3, 5], dtype=index_type)
    indices = np.array([2, 0, 2, 1, 0], dtype=index_type)
    data = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    source = sp.csr_array((data, indices, indptr), shape=(3, 4))
    block = as_block(source)
    expected = np.array([[2.0, 0, 4, 0], [0, 0, 0, 0], [5, 4, 0, 0]])
    with Engine(1) as engine:
        np.testing.assert_array_equal(block.gram(engine), expected.T @ expected)
        np.testing.assert_array_equal(block.column_squares(engine), (expected**2).sum(axis=0))
    np.testing.assert_array_equal(block.to_scipy().toarray(), expected)
    # the caller's matrix is not touched
    np.testing.assert_array_equal(source.indices, [2, 0, 2, 1, 0])
    np.testing.assert_array_equal(source.data, data)


def test_dense_and_sparse_rows_are_taken_as_they_are():
    matrix = np.ones((4, 3))
    assert as_block(matrix).matrix is matrix
    assert as_block(matrix).density == 1.0
    assert as_block(sp.csr_array(np.eye(4))).density == 0.25
    block = DenseBlock(matrix)
    assert as_block(block) is block
    assert isinstance(as_block(sp.eye_array(3).tocsr()), CSRBlock)
    assert not CSRBlock(sp.csr_array(np.eye(90))).rough_gram_is_faster()


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.ones(3), r"bank: expected a matrix \(2 dimensions\), got 1"),
        (np.ones((2, 2, 2)), r"bank: .*got 3"),
        (np.ones((0, 3)), "bank: empty matrix of shape 0 x 3"),
        (np.ones((3, 0)), "bank: empty matrix of shape 3 x 0"),
        (sp.csr_array((0, 3)), "bank: empty matrix of shape 0 x 3"),
        ([[1.0, "a"]], "bank: not a matrix of numbers"),
        ([[1.0, 2.0], [3.0]], "bank: not a matrix of numbers"),
        (np.array([[0, 1], [np.nan, 2]]), "bank: value nan in row 1, column 0; remove or impute it"),
        (np.array([[0, np.inf], [1, 2]]), "bank: value inf in row 0, column 1"),
        (sp.csr_array(np.array([[0, 1], [2, -np.inf]])), "bank: value -inf in row 1, column 1"),
        (sp.csc_array(np.array([[0, np.nan], [2, 1]])), "bank: value nan in row 0, column 1"),
        (sp.coo_array(np.array([[0, np.nan], [2, 1]])), "bank: value nan in row 0, column 1"),
        (np.array([[1 + 2j, 3]]), "bank: not a matrix of numbers"),
        (sp.csr_array(np.array([[1 + 2j, 3]])), "bank: not a matrix of numbers"),
    ],
)
def test_what_is_not_a_finite_matrix_is_refused_with_its_place(matrix, message):
    refuses(InputError, message, as_block, matrix, "bank")


@pytest.mark.parametrize("n", [1, 2, ROWS_PER_PIECE, ROWS_PER_PIECE + 1, 10**6, 10**7])
def test_row_ranges_cover_every_row_once(n):
    ranges = row_ranges(n)
    assert ranges[0][0] == 0
    assert ranges[-1][1] == n
    assert all(a[1] == b[0] for a, b in pairwise(ranges))
    assert all(start < stop for start, stop in ranges)
    assert len(ranges) <= MAX_PIECES
    assert len(row_ranges(n, 3)) <= 3


@pytest.mark.usefixtures("idle_machine")
def test_engine_threads_share_the_items_and_stop_at_an_error():
    done = []

    def job(k):
        if k == 0:
            time.sleep(0.05)
            raise KeyError(k)
        time.sleep(0.01)
        done.append(k)

    with Engine(2) as engine:
        threads = set()
        engine.map(lambda _: (time.sleep(0.02), threads.add(threading.get_ident())), range(6))
        assert len(threads) == 2
        with pytest.raises(KeyError):
            engine.map(job, range(40))
        finished = len(done)
        assert 0 < finished < 39
        time.sleep(0.05)
        assert len(done) == finished  # nobody goes on behind the caller's back


@pytest.mark.usefixtures("idle_machine")
def test_engine_keeps_order_passes_errors_on_and_nests():
    with Engine(2) as engine:
        assert engine.map(lambda k: k * k, range(50)) == [k * k for k in range(50)]
        # a job started from inside a worker must not wait for a free thread
        nested = engine.map(lambda k: sum(engine.map(lambda j: k * j, range(5))), range(8))
        assert nested == [10 * k for k in range(8)]
        with pytest.raises(ZeroDivisionError):
            engine.map(lambda k: 1 / k, [1, 0])
        assert engine.map(lambda k: k, []) == []
        # items that are not worth a second thread stay on this one, and so does what they call
        here = threading.get_ident()
        threads = engine.map(
            lambda _: engine.map(lambda _: threading.get_ident(), range(4)), range(4), parallel=False
        )
        assert threads == [[here] * 4] * 4
        assert not engine.inside
        engine.close()
        assert engine.map(lambda k: k, [1, 2]) == [1, 2]
    assert Engine().n_threads >= 1


@pytest.mark.representatives(2)
@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array], ids=["dense", "csr"])
def test_rows_times_the_root_of_a_weight(kind, n_threads):
    matrix, rng = values(20_001, 6), np.random.default_rng(1)
    weight, x, v = rng.random(20_001), rng.normal(size=(2, 6)), rng.normal(size=20_001)
    scaled = np.sqrt(weight)[:, np.newaxis] * matrix
    with Engine(n_threads) as engine:
        block = WeightedBlock(as_block(kind(matrix)), weight, engine)
        np.testing.assert_array_equal(block.root, np.sqrt(weight))
        np.testing.assert_allclose(block.product(x[0], engine), scaled @ x[0], atol=1e-12)
        both = np.empty((2, 20_001))
        block.products_into(x, both, engine)
        np.testing.assert_array_equal(both[0], block.product(x[0], engine))
        np.testing.assert_allclose(both, x @ scaled.T, atol=1e-12)
        np.testing.assert_allclose(block.transposed_product(v, engine), scaled.T @ v, atol=1e-10)
        np.testing.assert_allclose(block.gram(engine), scaled.T @ scaled, atol=1e-10)


@pytest.mark.parametrize("weighted", [False, True])
def test_rough_gram_matrices_are_good_to_single_precision(weighted):
    rng = np.random.default_rng(5)
    n, d = 3000, 80
    values = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.5)
    weight = rng.random(n) if weighted else None
    block = DenseBlock(values)
    assert block.rough_gram_is_faster()
    found = []
    for threads in (1, 3):
        with Engine(threads) as engine, engine.limited():
            exact, rough = block.gram(engine, weight), block.gram(engine, weight, rough=True)
            assert rough.dtype == np.float64
            found.append(rough)
            assert 0.0 < np.abs(rough - exact).max() < 1e-6 * np.trace(exact)
    np.testing.assert_array_equal(*found)

"""Parties with dense columns beside others with sparse ones: each is read as it is stored."""

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm.blocks.block import CSRBlock, DenseBlock, as_block
from fastadmm.blocks.mixed import Mixed, in_order, rows_of_all
from fastadmm.blocks.side_by_side import mean_row_square
from fastadmm.engine.engine import Engine

N, WIDTHS, KINDS = 2300, (30, 45, 3, 60), "dsds"


def matrices(kinds=KINDS, n=N):
    """Of each party: d for a dense matrix, s for a sparse one."""
    rng = np.random.default_rng(4)
    dense = [rng.normal(size=(n, d)) for d in WIDTHS]
    sparse = [sp.random_array((n, d), density=0.05, rng=rng, format="csr") for d in WIDTHS]
    return [own if kind == "d" else other for kind, own, other in zip(kinds, dense, sparse)]


def whole(given):
    return np.hstack([m.toarray() if sp.issparse(m) else m for m in given])


@pytest.mark.representatives(3)
@pytest.mark.parametrize("kinds", ["dsds", "ssdd", "dddd", "ssss", "sdss", "d", "s"])
def test_the_order_of_columns(kinds):
    given = matrices(kinds)
    with Engine(1) as engine:
        found = rows_of_all([as_block(m) for m in given], engine)
        assert isinstance(found, Mixed) == (len(set(kinds)) == 2)
        order = in_order([as_block(m) for m in given])
        assert sorted(order) == list(range(len(kinds)))
        x = np.random.default_rng(0).normal(size=found.shape[1])
        exact = whole([given[m] for m in order]) @ x
        np.testing.assert_allclose(found.product(x, engine), exact, rtol=1e-12, atol=1e-12)  # rounding


@pytest.mark.representatives(5)
@pytest.mark.parametrize("n", [1, 7, 40, N])
@pytest.mark.parametrize("kinds", ["sd", "dsds", "sds"])
def test_passes_are_those_over_a_matrix(kinds, n):
    given, rng = matrices(kinds, n), np.random.default_rng(1)
    with Engine(2) as engine:
        rows = rows_of_all([as_block(m) if not sp.issparse(m) else CSRBlock(m) for m in given], engine)
        assert isinstance(rows, Mixed)
        D = whole(
            [given[m] for m in in_order([CSRBlock(m) if sp.issparse(m) else DenseBlock(m) for m in given])]
        )
        x, v, w = rng.normal(size=D.shape[1]), rng.normal(size=n), rng.random(n) * (rng.random(n) < 0.7)
        numbers = np.flatnonzero(rng.random(n) < 0.5)
        exact = [D @ x, D.T @ v, np.sum(D**2, axis=0)]
        found = [
            rows.product(x, engine),
            rows.transposed_product(v, engine),
            rows.column_squares(engine),
        ]
        for lead, gram in enumerate((rows.gram, rows.bordered_gram)):
            ahead = np.hstack([np.ones((n, lead)), D])
            exact.append(ahead.T @ (w[:, np.newaxis] * ahead))
            found.append(gram(engine, w))
        if len(numbers):
            exact.append(D[numbers] @ x)
            found.append(rows.some_rows(numbers, engine).product(x, engine))
        for a, b in zip(found, exact, strict=True):
            # A few thousand terms in another order.
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)
        assert rows.density == pytest.approx(sum(m.nnz if sp.issparse(m) else m.size for m in given) / D.size)


def test_few_dense_columns_are_copied():
    rng, sparse = np.random.default_rng(2), as_block(matrices("s")[0])
    with Engine(1) as engine:
        few = [as_block(rng.normal(size=(N, 3))), sparse, as_block(rng.normal(size=(N, 2)))]
        assert isinstance(rows_of_all(few, engine), CSRBlock)
        assert in_order(few) == [0, 1, 2]
        assert mean_row_square(few, engine) == pytest.approx(((np.diff(sparse.indptr) + 5.0) ** 2).mean())
        narrow = [*few, as_block(rng.normal(size=(N, 1)))]
        found = rows_of_all(narrow, engine)
        assert isinstance(found, Mixed)
        assert in_order(narrow) == [1, 0, 2, 3]
        assert found.dense.shape[1] == 6
        assert mean_row_square(narrow, engine) == pytest.approx((np.diff(sparse.indptr) ** 2.0).mean())


@pytest.mark.parametrize("widths", [(20,), (3, 1, 12, 2)])
def test_dense_blocks_are_one_matrix(widths):
    rng = np.random.default_rng(3)
    blocks = [as_block(rng.normal(size=(N, d))) for d in widths]
    whole = np.hstack([block.matrix for block in blocks])
    numbers, w, v = np.arange(0, N, 7), rng.random(N), rng.normal(size=N)
    with Engine(2) as engine:
        found = rows_of_all(blocks, engine)
        assert isinstance(found, DenseBlock)
        assert (found.matrix is blocks[0].matrix) == (len(widths) == 1)
        np.testing.assert_array_equal(found.matrix, whole)
        np.testing.assert_array_equal(found.some_rows(numbers, engine).matrix, whole[numbers])
        led = np.hstack([np.ones((N, 1)), whole])
        np.testing.assert_allclose(found.bordered_gram(engine, w), led.T @ (w[:, None] * led), rtol=1e-12)
        sparse = CSRBlock(sp.csr_array(whole))
        np.testing.assert_allclose(sparse.bordered_gram(engine, w), led.T @ (w[:, None] * led), rtol=1e-12)
        np.testing.assert_allclose(found.transposed_product(v, engine), whole.T @ v, rtol=1e-11, atol=1e-11)

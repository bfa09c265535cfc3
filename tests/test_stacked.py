"""Few columns with mostly zeros are read side by side where parties are in this process."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm.blocks.block import CSRBlock, DenseBlock, as_block
from fastadmm.blocks.side_by_side import can_stand_side_by_side, mean_row_square, side_by_side
from fastadmm.engine.engine import Engine

N, WIDTHS = 2500, (40, 30, 2)


def matrices(ones=False):
    rng = np.random.default_rng(5)
    found: list[Any] = [sp.random_array((N, d), density=0.06, rng=rng, format="csr") for d in WIDTHS[:2]]
    if ones:
        found = [(own != 0.0).astype(np.float64) for own in found]
    return [*found, rng.normal(size=(N, WIDTHS[2]))]


@pytest.mark.parametrize("ones", [False, True])
def test_side_by_side_are_the_columns_of_all(ones):
    given = matrices(ones)
    blocks = [as_block(matrix) for matrix in given]
    with Engine(2) as engine:
        found = side_by_side(blocks, engine)
        whole = np.hstack([m.toarray() if sp.issparse(m) else m for m in given])
        np.testing.assert_array_equal(found.to_scipy().toarray(), whole)
        assert all(
            (np.diff(own) > 0).all() for own in np.split(found.indices.astype(int), found.indptr[1:-1])
        )
        assert mean_row_square(blocks, engine) == pytest.approx((np.diff(found.indptr) ** 2.0).mean())
        assert side_by_side(blocks[:1], engine) is blocks[0]  # no copy of a single one
        assert not found.all_ones  # of a dense block nobody has looked
        assert side_by_side(blocks[:2], engine).all_ones == ones
    assert can_stand_side_by_side(blocks)


@pytest.mark.parametrize("widths", [(20,), (3, 1, 12, 2)])
def test_dense_blocks_are_one_matrix(widths):
    rng = np.random.default_rng(3)
    blocks = [as_block(rng.normal(size=(N, d))) for d in widths]
    whole = np.hstack([block.matrix for block in blocks])
    numbers, w, v = np.arange(0, N, 7), rng.random(N), rng.normal(size=N)
    with Engine(2) as engine:
        found = side_by_side(blocks, engine)
        assert isinstance(found, DenseBlock)
        assert (found is blocks[0]) == (len(widths) == 1)
        np.testing.assert_array_equal(found.matrix, whole)
        np.testing.assert_array_equal(found.some_rows(numbers, engine).matrix, whole[numbers])
        for own in (found, CSRBlock(sp.csr_array(whole))):
            np.testing.assert_allclose(own.gram(engine, w), whole.T @ (w[:, None] * whole), rtol=1e-12)
        np.testing.assert_allclose(found.transposed_product(v, engine), whole.T @ v, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
def test_passes_over_columns_are_coordinate_descent(intercept, compressed):
    """The kernels beside dense arithmetic: one pass over all columns in the order that it took."""
    from fastadmm.kernels import coordinate_descent as kernels

    rng, n, d = np.random.default_rng(2), 60, 9
    dense = np.where(rng.random((n, d)) < 0.4, rng.normal(size=(n, d)), 0.0)
    dense[:, -1] = 0.0
    matrix, h, slope = sp.csc_array(dense), rng.random(n), rng.normal(size=d)
    arrays = matrix.indptr.astype(np.int64), matrix.indices.astype(np.uint16), matrix.data
    if not compressed:
        arrays = np.arange(d + 1) * n, np.empty(0, np.uint16), dense.T.copy().ravel()
    out, lengths = np.zeros(n), np.empty(d)
    kernels.add_columns(*arrays, slope, out)
    kernels.column_squares(arrays[0], arrays[2], lengths, 0, d)
    np.testing.assert_allclose(out, dense @ slope, rtol=1e-12)
    np.testing.assert_allclose(lengths, (dense**2).sum(axis=0), rtol=1e-12)
    root, scaled, squares, cross = np.sqrt(h), np.empty(len(arrays[2])), np.empty(d), np.empty(d)
    kernels.scale_columns(*arrays, root, np.arange(d), scaled, squares, cross, 0, d)
    a = root[:, np.newaxis] * dense
    np.testing.assert_allclose(squares, (a**2).sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(cross, a.T @ root, rtol=1e-12)
    whole, first = (float(h.sum()), 0.7) if intercept else (0.0, 0.0)
    low, high, begin = -0.4, np.inf, np.clip(rng.normal(size=d), -0.4, None)
    x, chosen, image, moved = begin.copy(), np.arange(d), np.zeros(n), np.zeros(3)
    with np.errstate(over="ignore"):  # what the generator is made of, where it is not compiled
        kernels.shuffle_columns(chosen)
    assert sorted(chosen) == list(range(d))
    assert list(chosen) != list(range(d))
    given = (*arrays[:2], scaled), (squares, cross), (whole, first), slope, (0.3, 0.1, low, high)
    order = chosen.copy()
    assert kernels.descend_columns(*given, chosen, np.inf, x, image, moved) == d
    np.testing.assert_array_equal(chosen, order)  # none is left out of the next pass
    outer = np.outer(cross, cross) / whole if intercept else 0.0
    hessian, s = a.T @ a - outer, slope - (cross * first / whole if intercept else 0.0)
    y = begin.copy()
    for j in order:
        pull = hessian[j, j] * y[j] - s[j] - hessian[j] @ (y - begin)
        y[j] = np.clip(np.sign(pull) * max(abs(pull) - 0.3, 0.0) / (hessian[j, j] + 0.1), -0.4, np.inf)
    curvature = np.diag(hessian) + 0.1
    np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(image, a @ (y - begin), rtol=1e-9, atol=1e-12)
    steps = np.abs(y - begin)
    expected = [(steps * np.sqrt(curvature)).max(), (steps * curvature).max(), cross @ (y - begin)]
    np.testing.assert_allclose(moved, expected, rtol=1e-9)
    # Until nothing moves: the optimality conditions of every column, also of those that were left out.
    for _ in range(2000):
        chosen = chosen[: kernels.descend_columns(*given, chosen, moved[1], x, image, moved)]
    at = s + hessian @ (x - begin) + 0.1 * x
    assert (np.abs(at[x == 0.0]) <= 0.3 + 1e-9).all()
    free = (x != 0.0) & (x > -0.4)
    np.testing.assert_allclose(at[free], -0.3 * np.sign(x[free]), atol=1e-9)
    assert (at[x == -0.4] >= 0.3 - 1e-9).all()


def test_files_are_not_read_side_by_side(tmp_path):
    class Elsewhere(CSRBlock):
        in_memory = False

    block = Elsewhere(matrices()[0])
    assert not can_stand_side_by_side([block])

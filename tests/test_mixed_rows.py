"""Parties with dense columns beside others with sparse ones: each is read as it is stored."""

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm.blocks.block import CSRBlock, DenseBlock, as_block
from fastadmm.blocks.mixed import Mixed, in_order, rows_of_all
from fastadmm.blocks.side_by_side import Beside, are_narrow, mean_row_square
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
        for lead in (0, 1):
            ahead = np.hstack([np.ones((n, lead)), D])
            exact.append(ahead.T @ (w[:, np.newaxis] * ahead))
            found.append(rows.gram(engine, w, lead))
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
        assert mean_row_square(few, engine, apart=True) == pytest.approx(
            ((np.diff(sparse.indptr) + 5.0) ** 2).mean()
        )
        narrow = [*few, as_block(rng.normal(size=(N, 1)))]
        found = rows_of_all(narrow, engine)
        assert isinstance(found, Mixed)
        assert in_order(narrow) == [1, 0, 2, 3]
        assert [m.shape[1] for m in found.dense.matrices if m.size] == [6]
        assert mean_row_square(narrow, engine, apart=True) == pytest.approx(
            (np.diff(sparse.indptr) ** 2.0).mean()
        )


def test_narrow_dense_blocks_are_one_matrix():
    rng = np.random.default_rng(3)
    narrow = [as_block(rng.normal(size=(N, d))) for d in (3, 1, 12, 2)]
    wide = [as_block(rng.normal(size=(N, d))) for d in (20, 12)]
    with Engine(2) as engine:
        found = rows_of_all(narrow, engine)
        assert isinstance(found, Beside)
        assert [m.shape[1] for m in found.matrices if m.size] == [18]
        x = rng.normal(size=18)
        np.testing.assert_allclose(found.product(x, engine), np.hstack([b.matrix for b in narrow]) @ x)
        found = rows_of_all(wide, engine)
        assert isinstance(found, Beside)
        assert all(m is block.matrix for m, block in zip(found.matrices, wide))
    widths = [2] * 40
    assert are_narrow(400_000, widths, [1.0] * 40)
    assert not are_narrow(500_000, widths, [1.0] * 40)  # a copy of more than 268 MB

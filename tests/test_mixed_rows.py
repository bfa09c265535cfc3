"""Parties with dense columns beside others with sparse ones: each is read as it is stored."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm import SolverOptions, make_problem, solve
from fastadmm.blocks.block import CSRBlock, DenseBlock, as_block
from fastadmm.blocks.mixed import Mixed, in_order, rows_of_all
from fastadmm.blocks.side_by_side import Beside, mean_row_square
from fastadmm.blocks.stored import are_narrow
from fastadmm.coordinator.subspace import row_ascent
from fastadmm.coordinator.subspace.memory_of_ways import bytes_of_copy
from fastadmm.coordinator.subspace.stacked import StackedRows, StackedSubspaceMethod
from fastadmm.coordinator.subspace.work_of_ways import of_product
from fastadmm.engine.engine import Engine
from fastadmm.problem.problem import Problem
from fastadmm.solver.solver import Solver

from resumed import assert_resumed_is_the_same

N, WIDTHS, KINDS = 2300, (30, 45, 3, 60), "dsds"


def matrices(kinds: str = KINDS, n: int = N) -> list[Any]:
    """Of each party: d for a dense matrix, s for a sparse one."""
    rng = np.random.default_rng(4)
    dense = [rng.normal(size=(n, d)) for d in WIDTHS]
    sparse = [sp.random_array((n, d), density=0.05, rng=rng, format="csr") for d in WIDTHS]
    return [own if kind == "d" else other for kind, own, other in zip(kinds, dense, sparse)]


def whole(given: list[Any]) -> np.ndarray:
    return np.hstack([m.toarray() if sp.issparse(m) else m for m in given])


def problem(kinds: str = KINDS, loss: str = "logistic", lam: float = 1e-4, **more: Any) -> Problem:
    given, rng = matrices(kinds), np.random.default_rng(6)
    z = whole(given) @ rng.normal(size=sum(WIDTHS)) / 3.0 + rng.logistic(size=N)
    y = z if loss in ("squared", "huber", "quantile") else (z > 0) * 1.0
    return make_problem(given, y, loss=loss, lam=lam, **more)


@pytest.mark.parametrize("kinds", ["dsds", "ssdd", "dddd", "ssss", "sdss", "d", "s"])
def test_the_order_of_columns(kinds: str) -> None:
    given = matrices(kinds)
    with Engine(1) as engine:
        found = rows_of_all([as_block(m) for m in given], engine)
        assert isinstance(found, Mixed) == (len(set(kinds)) == 2)
        order = in_order([as_block(m) for m in given])
        assert sorted(order) == list(range(len(kinds)))
        x = np.random.default_rng(0).normal(size=found.shape[1])
        exact = whole([given[m] for m in order]) @ x
        np.testing.assert_allclose(found.product(x, engine), exact, rtol=1e-12, atol=1e-12)  # rounding


@pytest.mark.parametrize("n", [1, 7, 40, N])
@pytest.mark.parametrize("kinds", ["sd", "dsds", "sds"])
def test_passes_are_those_over_a_matrix(kinds: str, n: int) -> None:
    given, rng = matrices(kinds, n), np.random.default_rng(1)
    with Engine(2) as engine:
        rows = rows_of_all([as_block(m) if not sp.issparse(m) else CSRBlock(m) for m in given], engine)
        assert isinstance(rows, Mixed)
        D = whole(
            [given[m] for m in in_order([CSRBlock(m) if sp.issparse(m) else DenseBlock(m) for m in given])]
        )
        x, v, w = rng.normal(size=D.shape[1]), rng.normal(size=n), rng.random(n) * (rng.random(n) < 0.7)
        numbers = np.flatnonzero(rng.random(n) < 0.5)
        exact = [D @ x, D.T @ v, D.T @ (w * (D @ x)), np.sum(D**2, axis=0)]
        found = [
            rows.product(x, engine),
            rows.transposed_product(v, engine),
            rows.hessian_product(x, w, engine),
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


def test_few_dense_columns_are_copied() -> None:
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


def test_narrow_dense_blocks_are_one_matrix() -> None:
    rng = np.random.default_rng(3)
    narrow = [as_block(rng.normal(size=(N, d))) for d in (3, 1, 12, 2)]
    wide = [as_block(rng.normal(size=(N, d))) for d in (20, 12)]
    with Engine(2) as engine:
        found = rows_of_all(narrow, engine)
        assert isinstance(found, Beside)
        assert [m.shape[1] for m in found.matrices if m.size] == [18]
        x = rng.normal(size=18)
        np.testing.assert_allclose(found.product(x, engine), np.hstack([b.matrix for b in narrow]) @ x)
        for given, once in ((narrow, True), (wide, False)):
            found = rows_of_all(given, engine, once)
            assert isinstance(found, Beside)
            assert all(m is block.matrix for m, block in zip(found.matrices, given))
    widths = [2] * 40
    assert are_narrow(400_000, widths, [1.0] * 40)
    assert not are_narrow(500_000, widths, [1.0] * 40)  # a copy of more than 268 MB
    assert bytes_of_copy(400_000, widths, [1.0] * 40) == 8 * 400_000 * 80


@pytest.mark.parametrize("how", ["gram", "products", "ascent"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["logistic", "squared", "huber", "squared_hinge"])
def test_every_party_gets_its_own_weights(
    loss: str, intercept: bool, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = ("", 1e4) if how == "ascent" else (how, 0.0)
    monkeypatch.setattr("fastadmm.coordinator.subspace.scheme._all_rows", lambda *_: answer)
    lam = 1e-2 if how == "ascent" else 1e-4  # ascent takes many passes where rows have so much in common
    given = problem(loss=loss, fit_intercept=intercept, lam=lam)
    ends = []
    exact_ascent = row_ascent.ascend

    def watched(*given: Any) -> Any:
        end = exact_ascent(*given)
        ends.append(end is not None)
        return end

    monkeypatch.setattr("fastadmm.coordinator.subspace.stacked.ascend", watched)
    solver = Solver(given, SolverOptions(gap=1e-7))
    assert isinstance(solver.method, StackedSubspaceMethod)
    assert solver.round().gap <= 1e-7
    assert ends == ([True] if how == "ascent" else [])
    assert isinstance(solver.method.rows._rows, Mixed)
    exact = solve(given, SolverOptions(gap=1e-12, directions="one"))
    # Strong convexity: |x - x*|^2 <= 2 gap / lam, with the gap of the mean objective.
    room = np.sqrt(2.0 * (1e-7 + 1e-12) * exact.objective / given.lam)
    for own, weights in zip(solver.method.weights(), exact.weights, strict=True):
        assert np.linalg.norm(own - weights) <= room


def test_the_order_of_parties_changes_no_weights() -> None:
    given = problem(fit_intercept=True)
    first = solve(given, SolverOptions(gap=1e-9))
    room = np.sqrt(2.0 * 2e-9 * first.objective / given.lam)  # as above, from either side of the optimum
    for order in list(permutations(range(4)))[1::7]:
        again = make_problem([given.blocks[m] for m in order], given.y, lam=given.lam, fit_intercept=True)
        found = solve(again, SolverOptions(gap=1e-9))
        assert isinstance(Solver(again, SolverOptions()).method, StackedSubspaceMethod)
        for m, weights in zip(order, found.weights, strict=True):
            assert np.linalg.norm(weights - first.weights[m]) <= room


def test_the_same_bits_for_any_number_of_threads() -> None:
    given = problem(fit_intercept=True)
    one, two = (solve(given, SolverOptions(gap=1e-8, n_threads=k)) for k in (1, 2))
    for a, b in zip(one.weights, two.weights, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_run_goes_on_to_the_same_bits(rounds: int) -> None:
    assert_resumed_is_the_same(problem(), SolverOptions(gap=1e-13, max_rounds=6), rounds)


@pytest.mark.parametrize("loss", ["hinge", "quantile"])
def test_losses_with_kinks(loss: str) -> None:
    found = solve(problem(loss=loss, lam=1e-2), SolverOptions(gap=1e-6, max_rounds=60))
    assert found.gap <= 1e-6


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
@pytest.mark.parametrize(("n", "kinds"), [(N, "dds"), (9000, "dd")])
def test_features_of_a_party_may_be_read_only(n: int, kinds: str, loss: str) -> None:
    """As memory-mapped ones are."""
    given = matrices(kinds, n)
    y = (whole(given)[:, 0] > 0.1) * 1.0
    found = []
    for writeable in (True, False):
        given[0].flags.writeable = writeable
        found.append(solve(make_problem(given, y, loss=loss, lam=1e-2), SolverOptions(gap=1e-6)))
    for a, b in zip(found[0].weights, found[1].weights, strict=True):
        np.testing.assert_array_equal(a, b)


def test_samples_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows in place are sampled, too."""
    rng, n = np.random.default_rng(9), 40_000
    given = [rng.normal(size=(n, 12)), sp.random_array((n, 20), density=0.1, rng=rng, format="csr")]
    y = (whole(given) @ rng.normal(size=32) + rng.logistic(size=n) > 0) * 1.0
    seen, some_rows = [], Mixed.some_rows

    def watched(rows: Mixed, numbers: np.ndarray, engine: Any) -> Mixed:
        seen.append(len(numbers))
        return some_rows(rows, numbers, engine)

    monkeypatch.setattr(Mixed, "some_rows", watched)
    found = solve(make_problem(given, y, lam=1e-4), SolverOptions(gap=1e-8))
    assert seen
    assert max(seen) <= n / 8
    assert found.gap <= 1e-8
    assert len(found.history) == 1


def test_nothing_dense_is_copied() -> None:
    assert bytes_of_copy(1000, [50, 900], [1.0, 0.01]) == 0.0
    assert bytes_of_copy(1000, [50, 900, 100], [1.0, 0.01, 0.02]) == (10 * 11 + 16) * 1000
    assert bytes_of_copy(1000, [5, 6, 900], [1.0, 1.0, 0.01]) == 8 * 11 * 1000  # narrow ones as one matrix
    assert bytes_of_copy(1000, [2, 900], [1.0, 0.01]) == (10 * 11 + 16) * 1000  # few with the sparse ones
    given = problem("dsdd")
    with Engine(1) as engine:
        rows = StackedRows("products", given, engine).span(given).rows
        assert isinstance(rows, Mixed)
        assert rows.sparse is given.blocks[1]
        assert next(m for m in rows.dense.matrices if m.size) is given.blocks[0].matrix  # type: ignore[attr-defined]


def test_what_a_product_costs() -> None:
    """A dense entry costs less than a sparse one, and either as much as in a table of its own."""
    dense, sparse = of_product(10**5, 100, 100, 0.0), of_product(10**5, 300, 0, 20.0)
    both = of_product(10**5, 400, 100, 20.0)
    assert dense < of_product(10**5, 100, 0, 100.0)
    assert both == pytest.approx(dense + sparse, rel=0.1)  # a row counts once

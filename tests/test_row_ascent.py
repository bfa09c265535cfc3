"""Coordinate ascent on rows: pooled, where columns are many."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm import SolverOptions, make_problem, solve
from fastadmm.engine.engine import Engine
from fastadmm.pooled import ascent
from fastadmm.pooled.goal import Goal
from fastadmm.solver.loop import run_rounds
from fastadmm.solver.solver import Solver
from fastadmm.solver.warm_start import StartingPoint

import naive
from resumed import assert_resumed_is_the_same

N, WIDTHS = 150, (500, 300, 200)
LOSSES = ("logistic", "squared", "huber", "squared_hinge", "smoothed_hinge")


def problem(loss="logistic", dense=False, lam=1e-2, **more):
    rng = np.random.default_rng(7)
    blocks: list[Any] = [sp.random_array((N, d), density=0.1, rng=rng, format="csr") for d in WIDTHS]
    if dense:
        blocks = [rng.normal(size=(N, d)) + 0.3 for d in WIDTHS]
    z = sum(block @ rng.normal(size=block.shape[1]) for block in blocks) + rng.normal(size=N)
    y = z if loss in ("squared", "huber", "quantile") else (z > 0) * 1.0
    return make_problem(blocks, y, loss=loss, lam=lam, **more)


def counted(monkeypatch, passes=100.0):
    """Whether each ascent ended with a dual vector; it is what is tried first."""
    found: list[bool] = []
    exact = ascent.ascend

    def ascend(*given):
        end = exact(*given[:-2], passes, given[-1])
        found.append(end is not None)
        return end

    monkeypatch.setattr(ascent, "ascend", ascend)
    monkeypatch.setattr(ascent.DualAscent, "cost", lambda *_: 0.0)
    return found


@pytest.mark.representatives(8)
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_round_finds_and_proves_the_optimum(loss, intercept, dense, monkeypatch):
    ends = counted(monkeypatch)
    weight = np.random.default_rng(3).uniform(0.0, 2.0, size=N)
    given = problem(loss, dense, sample_weight=np.where(weight < 0.1, 0.0, weight), fit_intercept=intercept)
    found = solve(given, SolverOptions(scheme="pooled", gap=1e-7))
    assert ends == [True]
    assert found.certified
    assert len(found.history) == 1
    exact = solve(given, SolverOptions(gap=1e-10, directions="one"))
    assert exact.certified
    assert -1e-10 <= found.objective / exact.objective - 1.0 <= 1e-7
    x, best = np.concatenate(found.weights), np.concatenate(exact.weights)
    # Strong convexity: half lambda times the squared distance is at most what is above the optimum.
    assert 0.5 * given.lam * float((x - best) @ (x - best)) <= 4e-7 * exact.objective


def test_passes_and_dual_vectors_prove_the_model():
    rng = np.random.default_rng(7)
    blocks = [sp.random_array((400, 1500), density=0.01, rng=rng, format="csr") for _ in range(3)]
    z = sum(block @ rng.normal(size=1500) for block in blocks) + rng.normal(size=400)
    solver = Solver(make_problem(blocks, (z > 0) * 1.0, lam=1e-4), SolverOptions(scheme="pooled", gap=1e-6))
    found = run_rounds(solver)
    assert found.certified
    assert len(found.history) == 1
    solver.method.witness = None  # the gradient at these weights leaves a larger gap
    assert solver.prove(found.weights, found.intercept).gap > 1e-6 > found.gap
    # Rows without entries and offsets.
    rng = np.random.default_rng(8)
    rows = sp.random_array((N, 900), density=0.02, rng=rng, format="lil")
    rows[:5] = 0.0
    y, offset = rng.integers(0, 2, N) * 1.0, rng.normal(size=N)
    for intercept in (False, True):
        given = make_problem([rows.tocsr()], y, lam=1e-3, offset=offset, fit_intercept=intercept)
        found = solve(given, SolverOptions(scheme="pooled", gap=1e-8))
        exact = solve(given, SolverOptions(gap=1e-10, directions="one"))
        assert found.certified
        assert found.objective == pytest.approx(exact.objective, rel=2e-8)
    # The dual vector sums to zero although its rows pull the intercept one by one.
    given = problem(fit_intercept=True)
    with Engine(1) as engine:
        goal = Goal(given, engine)
        start = goal.start()
        end = ascent.ascend(start, 1e-7, 100.0, goal)
        assert end is not None
        assert start.value > end.value
        assert abs(end.dual.sum()) <= 1e-12 * np.abs(end.dual).sum()
        weights = -(goal.rows().to_scipy().T @ end.dual) / given.regularization
        np.testing.assert_allclose(end.weights, weights, atol=1e-12)


def test_a_pass_is_that_of_single_rows():
    from fastadmm.engine.rows import address_of
    from fastadmm.kernels.logistic import logistic_prox_of_row
    from fastadmm.kernels.row_ascent import ascend_dense_rows, ascend_rows, square_dense_rows, square_rows

    rng = np.random.default_rng(2)
    sparse, dense = sp.random_array((40, 60), density=0.2, rng=rng, format="csr"), rng.normal(size=(40, 30))
    cases = (
        (
            ascend_rows,
            square_rows,
            (sparse.indptr.astype(np.int64), sparse.indices, sparse.data),
            sparse.toarray(),
        ),
        (ascend_dense_rows, square_dense_rows, dense, dense),
    )
    y, s, base = rng.integers(0, 2, 40) * 1.0, rng.uniform(0.5, 2.0, 40), rng.normal(size=40)
    prox = address_of(logistic_prox_of_row, (0.0, 0.0, 1.0, 1.0, (), 1.0, np.empty(1)))
    for ascend, square, rows, matrix in cases:
        squares = np.empty(40)
        square(*(rows[::2] if ascend is ascend_rows else (rows,)), squares, 0, 40)
        np.testing.assert_allclose(squares, (matrix**2).sum(axis=1), rtol=1e-13)
        u, x, lead, scale, order = np.zeros(40), np.zeros(matrix.shape[1]), 0.5, 0.3, np.arange(40)
        own, weights, b, rises = u.copy(), x.copy(), 0.1, 0.0
        with np.errstate(over="ignore"):  # the generator means to; without the compiler numbers warn
            rise, intercept = ascend(
                prox, (), rows, squares + lead, (y, s, base), scale, lead, 5, order, u, x, b
            )
        for i in naive.shuffled_groups(40, 8, 5):
            here, q = matrix[i] @ weights + base[i] + b, (squares[i] + lead) / scale
            _, g = naive.exact_logistic_prox(here + q * own[i], 0.0, y[i], s[i], 1.0 / q)
            change = g - own[i]
            own[i], b, rises = g, b - lead * change / scale, rises + 0.5 * q * change**2
            weights -= change / scale * matrix[i]
        # The iteration ends at a step of 0.015 at most, with an error of about its cube.
        np.testing.assert_allclose(u, own, atol=1e-5)
        np.testing.assert_allclose(x, weights, atol=1e-5)
        assert (rise, intercept) == pytest.approx((rises, b), abs=1e-5)
        if ascend is ascend_rows:
            np.testing.assert_allclose(x, -(matrix.T @ u) / scale, atol=1e-12)


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("loss", ["logistic", "hinge", "quantile"])
def test_given_weights_are_the_beginning(loss, dense, monkeypatch):
    ends = counted(monkeypatch, 1000.0)
    near = solve(problem(loss, dense, lam=2e-2, fit_intercept=True), SolverOptions(scheme="pooled", gap=1e-6))
    start = StartingPoint(near.weights, near.intercept)
    solver = Solver(
        problem(loss, dense, fit_intercept=True), SolverOptions(scheme="pooled", gap=1e-6), start=start
    )
    solver.prepare()
    record = solver.round()
    assert record.gap <= 1e-6
    assert ends == [True, True]
    # As good as it was, which coordinate ascent to a larger gap is not.
    exact = solve(problem(loss, dense, fit_intercept=True), SolverOptions(scheme="pooled", gap=1e-9))
    start = StartingPoint(exact.weights, exact.intercept)
    solver = Solver(
        problem(loss, dense, fit_intercept=True), SolverOptions(scheme="pooled", gap=1e-3), start=start
    )
    solver.prepare()
    assert solver.round().objective <= exact.objective * (1.0 + 1e-12)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["hinge", "quantile"])
def test_kinks_need_no_smoothing(loss, intercept, monkeypatch):
    ends = counted(monkeypatch, 1000.0)
    for dense in (False, True):
        given = problem(loss, dense, fit_intercept=intercept)
        found = solve(given, SolverOptions(scheme="pooled", gap=1e-7))
        assert found.certified
        assert len(found.history) == 1
        exact = solve(given, SolverOptions(gap=1e-8, directions="one"))
        assert found.objective == pytest.approx(exact.objective, rel=1.2e-7)
    assert ends == [True, True]
    assert_resumed_is_the_same(given, SolverOptions(scheme="pooled", gap=0.0, max_rounds=4), 2)

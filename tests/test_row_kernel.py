"""Few rows in one process: Newton's method over their products with each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fastadmm import SolverOptions, make_problem, solve
from fastadmm.blocks.side_by_side import Beside
from fastadmm.coordinator.certificate import primal_value
from fastadmm.coordinator.subspace.row_kernel import minimise_over_rows
from fastadmm.coordinator.subspace.span import SpanPoint
from fastadmm.coordinator.subspace.stacked import of_few_rows
from fastadmm.coordinator.subspace.stacked_newton import minimise_by_products
from fastadmm.coordinator.subspace.stacked_span import StackedSpan
from fastadmm.coordinator.subspace.whole_span import kernel_pays
from fastadmm.engine.engine import Engine
from fastadmm.problem.problem import Problem
from fastadmm.solver.solver import Solver

from resumed import assert_resumed_is_the_same

N, WIDTHS = 60, (150, 90, 3)


def problem(loss: str = "logistic", lam: float = 1e-3, **more: Any) -> Problem:
    """Columns that depend on each other, far from zero; one is constant, and one there twice."""
    rng = np.random.default_rng(5)
    blocks = [
        rng.normal(size=(N, 3)) @ rng.normal(size=(3, d)) + 0.1 * rng.normal(size=(N, d)) + 2.0
        for d in WIDTHS
    ]
    blocks[0][:, 0], blocks[1][:, 1] = 7.0, blocks[0][:, 1]
    z = blocks[0][:, 2] - blocks[1][:, 3] + rng.normal(size=N)
    y = z if loss in ("squared", "huber") else (z > np.median(z)) * 1.0
    y = rng.poisson(np.exp(np.clip(z, -2.0, 2.0))) * 1.0 if loss == "poisson" else y
    return make_problem(blocks, y, loss=loss, lam=lam, **more)


@pytest.mark.parametrize("lam", [1e-1, 1e-3, 1e-6])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["logistic", "squared", "huber", "squared_hinge", "poisson"])
def test_it_ends_where_directions_do(loss: str, intercept: bool, lam: float) -> None:
    given = problem(loss, lam, fit_intercept=intercept)
    assert Solver(given, SolverOptions()).method.rows.how == "kernel"
    found = solve(given, SolverOptions(gap=1e-6))
    assert found.certified
    assert len(found.history) <= 3
    exact = solve(given, SolverOptions(gap=1e-8, directions="one"))
    assert found.objective == pytest.approx(exact.objective, rel=1.1e-6)


@pytest.mark.parametrize("intercept", [False, True])
def test_coefficients_of_rows_are_the_minimiser(intercept: bool) -> None:
    given = problem(lam=1e-2, fit_intercept=intercept)
    rows = np.hstack([block.matrix for block in given.blocks])
    with Engine(1) as engine:
        found = minimise_over_rows(given, rows @ rows.T, 1e-12, 0.0, engine)
    assert found is not None
    a, b = found
    x = rows.T @ a
    gradient = 1.0 / (1.0 + np.exp(-(rows @ x + b))) - given.y
    np.testing.assert_allclose(rows.T @ gradient + given.regularization * x, 0.0, atol=1e-5)
    assert b == 0.0 if not intercept else abs(gradient.sum()) <= 1e-6


def test_runs_resume() -> None:
    assert_resumed_is_the_same(problem(), SolverOptions(gap=0.0, max_rounds=4), 2)


def test_threads_do_not_change_a_bit() -> None:
    given, found = problem(), []
    for threads in (1, 2):
        found.append(np.concatenate(solve(given, SolverOptions(n_threads=threads)).weights))
    np.testing.assert_array_equal(*found)


def test_sparse_rows_have_products_instead() -> None:
    assert kernel_pays(100, [5000, 5000], [1.0, 1.0])
    assert not kernel_pays(800, [3000, 3000], [0.005, 0.005])
    given = problem()
    with Engine(1) as engine:
        assert of_few_rows(given, engine) == "kernel"


@pytest.mark.parametrize("widths", [(40, 7, 1), (3000, 2000, 5)])
def test_products_with_a_hessian_are_those_of_dense_columns(widths: tuple[int, ...]) -> None:
    rng = np.random.default_rng(9)
    blocks = [rng.normal(size=(37, d)) for d in widths]
    whole, h, x = np.hstack(blocks), rng.uniform(size=37), rng.normal(size=sum(widths))
    with Engine(1) as engine:
        found = Beside(blocks).hessian_product(x, h, engine)
    np.testing.assert_allclose(found, whole.T @ (h * (whole @ x)), rtol=1e-10, atol=1e-9)


@pytest.mark.parametrize("how", ["gram", "products"])
def test_a_small_optimum_is_certified_in_one_round(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a span may leave is a share of the objective at its end, not where it began."""
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(400, 30))
    y = (rows[:, 0] > 0.0) * 1.0  # separable: little is left of the loss
    monkeypatch.setattr("fastadmm.coordinator.subspace.scheme._all_rows", lambda *_: (how, 0.0))
    for intercept in (False, True):
        given = make_problem([rows[:, :15], rows[:, 15:]], y, lam=1e-7, fit_intercept=intercept)
        found = solve(given, SolverOptions(gap=1e-6))
        assert found.certified
        assert len(found.history) <= 2


def test_an_intercept_beside_columns_far_from_zero() -> None:
    """What it left of its slope was 14 times what the weights may leave, once it was at its minimum."""
    (n, d), rng = (1000, 5000), np.random.default_rng(0)
    rows = rng.normal(size=(n, 10)) @ rng.normal(size=(10, d)) + 0.7 * rng.normal(size=(n, d)) + 2.0
    z = rows[:, :20].sum(axis=1)
    given = make_problem([rows], (z + 2.0 * rng.normal(size=n) > np.median(z)) * 1.0, lam=1e-2)
    with Engine(1) as engine:
        span = StackedSpan(given, Beside([rows]), engine)
        start = span.evaluated(SpanPoint(np.zeros(d), 0.0, np.zeros(n)))
        found, _, reached = minimise_by_products(span, start, 0.0, 3e-7, 2000)
        assert reached
        primal, c = primal_value(given, found.total, found.intercept, engine), found.coefficients
    slope = rows.T @ primal.gradient + given.regularization * c
    value = primal.loss + 0.5 * given.regularization * float(c @ c)
    assert float(slope @ slope) / (2.0 * given.regularization) <= 3e-7 * value

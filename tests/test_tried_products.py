"""Products with a Hessian are tried before it is formed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fastadmm import SolverOptions, make_problem, solve
from fastadmm.coordinator.subspace import stacked
from fastadmm.coordinator.subspace.whole_span import dense_rows_pay, products_to_try
from fastadmm.problem.problem import Problem
from fastadmm.solver.solver import Solver

from resumed import assert_resumed_is_the_same

N, D = 2000, 300


def dense(spread: float, **more: Any) -> Problem:
    """Columns whose scales, and what they have in common, differ by powers of ten up to ``spread``."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(N, D)) @ (np.eye(D) + 0.3 * rng.normal(size=(D, D)) * (spread > 0.0))
    X *= 10.0 ** rng.uniform(-spread / 2, spread / 2, D)
    z = X @ (rng.normal(size=D) / X.std(axis=0)) / np.sqrt(D)
    y = (z > rng.logistic(size=N)) * 1.0
    return make_problem([X[:, :100].copy(), X[:, 100:].copy()], y, lam=more.pop("lam", 1e-4), **more)


def optimum(given: Problem) -> float:
    """Of a logistic loss per sample, by Newton's method."""
    X = np.hstack([np.ones((N, int(given.fit_intercept))), *(block.matrix for block in given.blocks)])  # type: ignore[attr-defined]
    ridge, x = np.full(X.shape[1], given.lam), np.zeros(X.shape[1])
    ridge[: int(given.fit_intercept)] = 0.0
    for _ in range(60):
        p = 1.0 / (1.0 + np.exp(-X @ x))
        hessian = X.T @ ((p * (1.0 - p) / N)[:, np.newaxis] * X) + np.diag(ridge)
        x -= np.linalg.solve(hessian, X.T @ (p - given.y) / N + ridge * x)
    return float(np.mean(np.logaddexp(0.0, X @ x) - given.y * (X @ x)) + 0.5 * ridge @ x**2)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, bool]]:
    """Of each trial how many products were allowed, how many were made, and whether that was enough."""
    found: list[tuple[int, int, bool]] = []
    whole = stacked.minimise_by_products

    def watched(*given: Any, tried: int) -> Any:
        answer = whole(*given, tried=tried)
        found.append((tried, *answer[1:]))
        return answer

    monkeypatch.setattr(stacked, "minimise_by_products", watched)
    return found


@pytest.mark.parametrize("intercept", [False, True])
def test_easy_systems_need_no_hessian(
    intercept: bool, tried: list[tuple[int, int, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def formed(*given: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(stacked, "descend_to", formed)
    result = solve(dense(0.0, fit_intercept=intercept), SolverOptions(gap=1e-6))
    assert result.certified
    assert len(result.history) == 1
    ((most, made, reached),) = tried
    assert reached
    assert made <= most


@pytest.mark.parametrize("intercept", [False, True])
def test_hard_systems_get_their_hessian(intercept: bool, tried: list[tuple[int, int, bool]]) -> None:
    given = dense(3.0, fit_intercept=intercept, lam=1e-7)
    solver = Solver(given, SolverOptions(gap=1e-6))
    record = solver.round()
    assert record.gap <= 1e-6
    ((most, made, reached),) = tried  # never a second time
    assert not reached
    assert made <= most
    exact = optimum(given)
    assert -1e-8 * exact <= record.objective - exact <= 1e-6 * exact


@pytest.mark.parametrize("spread", [0.0, 3.0])
def test_bits_and_resumed_runs(spread: float) -> None:
    given = dense(spread)
    for rounds in (1, 2):
        assert_resumed_is_the_same(given, SolverOptions(gap=0.0), rounds)
    found = [solve(given, SolverOptions(gap=1e-6, n_threads=n)).weights for n in (1, 2)]
    for own, other in zip(*found, strict=True):
        np.testing.assert_array_equal(own, other)


def test_how_many_products_are_worth_a_try() -> None:
    assert not products_to_try(1000, [20], [1.0], 400.0, quadratic=False)  # a Hessian is soon formed
    assert not products_to_try(10**6, [200], [1.0], 4e4, quadratic=False)  # and so is that of a sample
    assert products_to_try(2000, [900], [1.0], 8.1e5, quadratic=False) > products_to_try(
        2000, [300], [1.0], 9e4, quadratic=False
    )
    assert products_to_try(20_000, [400], [0.05], 419.0, quadratic=False) > 0
    assert not products_to_try(20_000, [164], [1.0], 164.0**2, quadratic=True)  # one Hessian solves it


def broad(spread: float) -> Problem:
    """Dense columns that are too many for a Hessian, and few enough for every party's own."""
    rng, (n, d) = np.random.default_rng(5), (2600, 400)
    X = [rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-spread / 2, spread / 2, d) for _ in range(3)]
    z = sum(own @ (rng.normal(size=d) / own.std(axis=0)) for own in X) / 30.0
    return make_problem(X, (z > rng.logistic(size=n)) * 1.0, lam=1e-3)


@pytest.mark.parametrize("spread", [0.0, 3.0])
def test_products_alone(spread: float) -> None:
    given = broad(spread)
    solver = Solver(given, SolverOptions(gap=1e-6))
    assert solver.method.rows.how == "products"
    record = solver.round()
    assert record.gap <= 1e-6
    exact = solve(given, SolverOptions(gap=1e-8, directions="one", max_rounds=300))
    assert -1e-8 * exact.objective <= record.objective - exact.objective <= 1e-6 * exact.objective
    for rounds in (1, 2):
        assert_resumed_is_the_same(given, SolverOptions(gap=0.0), rounds)


def test_dense_tables_by_products() -> None:
    assert dense_rows_pay(8000, [233] * 3, 64, quadratic=False) == "gram"  # after a trial
    assert dense_rows_pay(2000, [150] * 2, 64, quadratic=False) == "gram"
    assert dense_rows_pay(3000, [8] * 50, 64, quadratic=False) == "gram"
    assert not dense_rows_pay(3000, [8] * 15, 64, quadratic=False)  # one compiled call forms the Hessian
    assert (
        dense_rows_pay(2600, [400] * 3, 64, quadratic=False) == "products"
    )  # a Hessian takes too much memory
    assert not dense_rows_pay(2600, [400] * 3, 64, quadratic=True)
    assert not dense_rows_pay(4000, [1100], 64, quadratic=False)  # gradients are directions enough

"""Several classes: truncated Newton on the columns of all parties of this process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm import SolverOptions, make_problem, solve
from fastadmm.coordinator.multinomial.multinomial import MultinomialMethod
from fastadmm.coordinator.multinomial.narrow import NarrowMultinomialMethod
from fastadmm.coordinator.multinomial.span import ClassSpanPoint
from fastadmm.coordinator.multinomial.stacked import StackedMultinomialMethod
from fastadmm.coordinator.multinomial.stacked_span import HessianOfClasses, StackedClassSpan
from fastadmm.coordinator.multinomial.work import products_pay
from fastadmm.engine.engine import Engine
from fastadmm.problem.problem import Problem
from fastadmm.solver.solver import Solver
from fastadmm.solver.warm_start import StartingPoint

from resumed import assert_resumed_is_the_same

N, WIDTHS, C = 900, (300, 8, 200), 4


def problem(lam: float = 1e-4, spread: float = 1.0, **more: Any) -> Problem:
    """Two parties with sparse columns of different sizes, one with dense ones that have a mean."""
    rng = np.random.default_rng(3)
    blocks: list[Any] = [
        sp.random_array((N, d), density=0.02, rng=rng, format="csr")
        @ sp.diags_array(spread ** rng.uniform(-1, 1, d))
        for d in WIDTHS
    ]
    blocks[1] = rng.normal(size=(N, WIDTHS[1])) + 0.5
    z = sum(block @ rng.normal(size=(block.shape[1], C)) for block in blocks)
    y = (z / z.std() + rng.gumbel(size=z.shape)).argmax(axis=1)
    return make_problem(blocks, y.astype(float), loss="multinomial", lam=lam, **more)


def hessian(given: Problem, point: ClassSpanPoint) -> np.ndarray:
    """Of intercepts and weights, class by class, from its definition."""
    D = np.hstack([b.to_scipy().toarray() if hasattr(b, "to_scipy") else b.matrix for b in given.blocks])  # type: ignore[attr-defined]
    z = (given.offset + point.total).reshape(C, -1) + point.intercept[:, np.newaxis]
    p = np.exp(z - z.max(axis=0))
    p /= p.sum(axis=0)
    lead, k = int(given.fit_intercept), D.shape[1]
    found = np.zeros((C * (lead + k),) * 2)
    rows = [np.ones((N, lead)), D]
    begins = [[c * lead for c in range(C)], [C * lead + c * k for c in range(C)]]
    for a in range(C):
        for b in range(C):
            bend = given.weight * p[a] * (float(a == b) - p[b])
            for one, first in zip(rows, begins):
                for other, second in zip(rows, begins):
                    part = one.T @ (bend[:, np.newaxis] * other)
                    found[first[a] : first[a] + part.shape[0], second[b] : second[b] + part.shape[1]] = part
    found[C * lead :, C * lead :] += given.regularization * np.eye(C * k)
    return found


@pytest.mark.parametrize("intercept", [False, True])
def test_products_are_those_of_the_hessian(intercept: bool) -> None:
    rng = np.random.default_rng(0)
    given = problem(
        fit_intercept=intercept, sample_weight=rng.uniform(0.5, 2.0, N), offset=rng.normal(size=(N, C))
    )
    with Engine(2) as engine:
        span = StackedClassSpan(given, engine)
        c = rng.normal(size=(C, sum(WIDTHS)))
        point = ClassSpanPoint(c, rng.normal(size=C) * intercept, span.combined(c).ravel())
        here, found = span.at(span.evaluated(point)), span.hessian_at(point)
        exact = hessian(given, point)
        for v in rng.normal(size=(3, len(exact))):
            # The product is with the intercepts of centred columns.
            image = found.product(v)
            step = found.with_intercept(v, image)
            # Sums of 900 rows and 508 columns, in another order.
            np.testing.assert_allclose(image, found.without_intercept(exact @ step), rtol=1e-10, atol=1e-9)
            assert image @ v == pytest.approx(step @ exact @ step, rel=1e-12)
        step = 1e-5 * rng.normal(size=len(exact))
        there = span.advance(here, step)
        if intercept:
            step[:C] -= step[:C].mean()
        # The slope changes by the Hessian along the step, up to the square of the step.
        np.testing.assert_allclose(
            there.slope - here.slope, exact @ step, rtol=0.0, atol=1e-3 * np.abs(exact @ step).max()
        )
        assert found.sizes.shape == step.shape
        assert (found.sizes > 0.0).all()


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("spread", [1.0, 10.0])
def test_one_round_and_its_proof(intercept: bool, spread: float) -> None:
    given = problem(fit_intercept=intercept, spread=spread)
    solver = Solver(given, SolverOptions(gap=1e-7))
    assert type(solver.method) is StackedMultinomialMethod
    assert solver.round().gap <= 1e-7
    exact = solve(given, SolverOptions(gap=1e-11, directions="one", max_rounds=400))
    # Strong convexity: |x - x*|^2 <= 2 gap / lam, from either side of the optimum.
    room = np.sqrt(2.0 * (1e-7 + 1e-11) * exact.objective / given.lam)
    for own, weights in zip(solver.method.weights(), exact.weights, strict=True):
        assert own.shape == weights.shape
        assert np.linalg.norm(own - weights) <= room


@pytest.mark.parametrize("offset", [10.0, 1e4])
def test_columns_far_from_zero_need_hardly_more_products(
    offset: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts, product = [0, 0], HessianOfClasses.product
    for k, shift in enumerate((0.0, offset)):

        def counted(hessian: HessianOfClasses, v: np.ndarray, k: int = k) -> np.ndarray:
            counts[k] += 1
            return product(hessian, v)

        monkeypatch.setattr(HessianOfClasses, "product", counted)
        given = problem(fit_intercept=True)
        moved = [given.blocks[0], given.blocks[1].matrix + shift, given.blocks[2]]  # type: ignore[attr-defined]
        again = make_problem(moved, given.y, loss="multinomial", lam=given.lam, fit_intercept=True)
        solver = Solver(again, SolverOptions(gap=1e-6))
        assert isinstance(solver.method, StackedMultinomialMethod)
        assert solver.round().gap <= 1e-6
    assert counts[1] <= 1.5 * counts[0]


def test_the_same_bits_for_any_number_of_threads() -> None:
    given = problem(fit_intercept=True)
    one, two = (solve(given, SolverOptions(gap=1e-8, n_threads=k)) for k in (1, 2))
    for a, b in zip(one.weights, two.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(one.intercept, two.intercept)


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_run_goes_on_to_the_same_bits(rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastadmm.coordinator.multinomial.stacked._ENTRIES_OF_ROUND", 1.0)  # a step a round
    assert_resumed_is_the_same(problem(), SolverOptions(gap=1e-9, max_rounds=5), rounds)


def test_given_weights_are_the_beginning() -> None:
    given = problem(fit_intercept=True)
    first = solve(given, SolverOptions(gap=1e-8))
    start = StartingPoint([w.copy() for w in first.weights], first.intercept)
    again = solve(given, SolverOptions(gap=1e-6), start=start)
    assert len(again.history) == 1
    assert again.objective <= first.objective * (1.0 + 1e-12)


def test_where_nothing_is_gained_directions_follow() -> None:
    solver = Solver(problem(), SolverOptions(gap=0.0, max_rounds=10))
    assert isinstance(solver.method, StackedMultinomialMethod)
    rounds = [solver.round() for _ in range(10)]
    assert not solver.method.whole
    assert rounds[-1].objective <= rounds[0].objective
    assert rounds[-1].gap <= 1e-9


def test_which_method_is_taken() -> None:
    assert type(Solver(problem(), SolverOptions(directions="one")).method) is MultinomialMethod
    assert type(Solver(problem(), SolverOptions(history=8)).method) is MultinomialMethod
    dense = make_problem(
        [np.random.default_rng(0).normal(size=(300, 6))], np.arange(300) % 3 * 1.0, loss="multinomial"
    )
    assert type(Solver(dense, SolverOptions()).method) is NarrowMultinomialMethod


def test_what_is_least_work() -> None:
    assert products_pay(10_000, [600], [0.02], 5, at_once=True)
    assert not products_pay(60_000, [60, 65], [0.12, 0.12], 4, at_once=True)  # few columns
    assert not products_pay(10_000, [100, 100], [1.0, 1.0], 4, at_once=False)  # dense columns
    assert products_pay(15_000, [600, 600], [0.005, 0.005], 5, at_once=False)
    # Long rows of many columns: a round reads them twice, and there are not many rounds.
    assert not products_pay(10_000, [10_000, 20_000], [0.004, 0.001], 10, at_once=False)

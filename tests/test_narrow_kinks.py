"""Few columns of several classes with l1, elastic net or bounds are sent at once in one process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm import SolverOptions, make_problem, solve
from fastadmm.coordinator.proximal.multinomial import MultinomialProximalMethod
from fastadmm.coordinator.proximal.narrow_classes import NarrowClassesMethod
from fastadmm.problem.problem import Problem
from fastadmm.solver.early_stopping import EarlyStopping
from fastadmm.solver.solver import Solver
from fastadmm.solver.warm_start import StartingPoint
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from resumed import assert_resumed_is_the_same
from test_narrow_classes import N, rows_of, table

EXACT = SolverOptions(gap=1e-9, history=20)  # directions


def problem(regularizer: str = "l1", lam: float = 3e-3, **more: Any) -> Problem:
    blocks, y = table()
    return make_problem(blocks, y, loss="multinomial", regularizer=regularizer, lam=lam, **more)


CASES = [
    ("l1", {}),
    ("l1", {"fit_intercept": False}),
    ("l1", {"constraint": "nonnegative"}),
    ("elastic_net", {}),
    ("l2", {"constraint": "box:-0.2,0.3"}),
    ("l1", {"constraint": "box:-0.2,0.3"}),
]


@pytest.mark.parametrize(("regularizer", "more"), CASES, ids=str)
@pytest.mark.parametrize("lam", [1e-2, 1e-4])
def test_the_same_optimum_in_a_few_rounds(regularizer: str, more: dict, lam: float) -> None:
    given = problem(regularizer, lam, **more)
    assert isinstance(Solver(given, SolverOptions(gap=1e-7)).method, NarrowClassesMethod)
    result = solve(given, SolverOptions(gap=1e-7))
    assert result.certified
    assert len(result.history) <= 8
    exact = solve(given, EXACT)
    assert -1e-8 * exact.objective <= result.objective - exact.objective <= 1e-7 * exact.objective
    for x, own in zip(result.weights, given.party_constraints, strict=True):
        assert (x >= own.bounds[0]).all()
        assert (x <= own.bounds[1]).all()


def test_the_optimum_is_scikit_learns() -> None:
    blocks, y = table()
    X = np.hstack([block.toarray() if sp.issparse(block) else block for block in blocks])
    given = make_problem(blocks, y, loss="multinomial", regularizer="l1", lam=3e-3, fit_intercept=False)
    result = solve(given, SolverOptions(gap=1e-9))
    saga = {"solver": "saga", "l1_ratio": 1.0, "tol": 1e-8, "max_iter": 20_000, "random_state": 0}
    model = LogisticRegression(C=1.0 / (3e-3 * N), fit_intercept=False, **saga).fit(X, y)
    weights = np.concatenate(result.weights)
    # Of an even number of classes a column's weights may all be moved, between the two in the middle.
    ours, theirs = (x - np.median(x, axis=1, keepdims=True) for x in (weights, model.coef_.T))
    np.testing.assert_allclose(ours, theirs, atol=2e-3)
    assert ((weights == 0.0).sum(axis=1) >= 1).all()


def test_the_same_bits_for_any_number_of_threads() -> None:
    one, two = (solve(problem(), SolverOptions(n_threads=k)) for k in (1, 2))
    for a, b in zip(one.weights, two.weights, strict=True):
        np.testing.assert_array_equal(a, b)


def test_given_weights_are_the_beginning() -> None:
    near = solve(problem(lam=4e-3), SolverOptions(gap=1e-6))
    solver = Solver(problem(), SolverOptions(gap=1e-6), start=StartingPoint(near.weights, near.intercept))
    solver.prepare()
    for found, known in zip(solver.party_weights(), near.weights, strict=True):
        np.testing.assert_array_equal(found, known)
    cold = solve(problem(), SolverOptions(gap=1e-6))
    warm = [solver.round() for _ in range(4)]
    assert warm[-1].gap <= 1e-6
    assert warm[-1].objective == pytest.approx(cold.objective, rel=1e-6)


def test_a_run_that_stalls_goes_on_with_best_responses() -> None:
    given = problem()
    solver = Solver(given, SolverOptions(gap=1e-8))
    solver.round()
    solver.method.go_by_directions()
    while solver.round().gap > 1e-8:
        assert solver.n_rounds < 60
    assert solver.last_record is not None
    assert solver.last_record.objective == pytest.approx(solve(given, EXACT).objective, rel=1e-8)


@pytest.mark.parametrize("more", [{}, {"fit_intercept": False}], ids=str)
def test_a_run_goes_on_to_the_same_bits(more: dict) -> None:
    options = SolverOptions(gap=0.0)
    assert_resumed_is_the_same(problem(**more), options, 2)


def test_what_goes_by_directions() -> None:
    assert type(Solver(problem(), SolverOptions(history=20)).method) is MultinomialProximalMethod
    assert type(Solver(problem("group_lasso"), SolverOptions()).method) is MultinomialProximalMethod
    assert type(Solver(problem(constraint="ball:1"), SolverOptions()).method) is MultinomialProximalMethod


def test_early_stopping_keeps_to_directions() -> None:
    blocks, y = table(8)
    rows = make_problem(blocks, y, loss="multinomial", regularizer="l1", lam=1e-3)
    solver = Solver(problem(), SolverOptions(), early=EarlyStopping(rows_of(rows), "log_loss", 3))
    assert isinstance(solver.method, NarrowClassesMethod)
    solver.round()
    assert len(solver.coordinator.shared.messages) < 16


def test_best_responses_begin_at_the_columns_model() -> None:
    solver = Solver(problem("l1", 1e-4), SolverOptions(gap=1e-9))
    first = solver.round()
    solver.method.go_by_directions()
    for part, x in zip(solver.parties[0].parts, solver.party_weights()[0].T, strict=True):
        np.testing.assert_allclose(part.weights(part.span.coefficients(x)), x, rtol=1e-12, atol=1e-14)
    assert [solver.round().objective <= first.objective * (1.0 + 1e-12) for _ in range(3)] == [True] * 3


@settings(max_examples=40)
@example(seed=1999, log_lam=-2.75, classes=3, n=29, case=("l1", {"constraint": "nonnegative"}))
@example(seed=1999, log_lam=-2.78125, classes=3, n=29, case=("l1", {"constraint": "nonnegative"}))
@given(
    seed=st.integers(0, 10**6),
    log_lam=st.floats(-6.0, -1.0),
    classes=st.integers(2, 5),
    n=st.integers(10, 90),
    case=st.sampled_from(CASES),
)
def test_whatever_the_columns_are(seed: int, log_lam: float, classes: int, n: int, case: tuple) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6)) * 10.0 ** rng.uniform(-2.0, 2.0, 6)
    X[:, 1] = X[:, 0]  # twice the same column
    X[:, 2] = rng.normal()  # a constant one
    y = np.append(np.arange(classes), (X[:, 3:] @ rng.normal(size=(3, classes))).argmax(axis=1))[:n] * 1.0
    regularizer, more = case
    options: Any = {"lam": 10.0**log_lam, "regularizer": regularizer, "n_classes": classes, **more}
    given = make_problem([X[:, :2], X[:, 2:]], y, loss="multinomial", **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastadmm.coordinator.proximal.narrow.class_columns_pay", lambda *shape: True)
        assert isinstance(Solver(given, SolverOptions()).method, NarrowClassesMethod)
        result = solve(given, SolverOptions(gap=1e-6, max_rounds=300))
    exact = solve(given, SolverOptions(gap=1e-6, history=20, max_rounds=300))
    assert result.gap <= max(1e-6, 2.0 * exact.gap)
    assert result.objective <= exact.objective * (1.0 + 2e-6) + 1e-10

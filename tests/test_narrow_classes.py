"""Few columns of several classes are sent at once where parties are in this process."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm import SolverOptions, make_problem, solve
from fastadmm.coordinator.multinomial.multinomial import MultinomialMethod
from fastadmm.coordinator.multinomial.narrow import NarrowMultinomialMethod, all_columns_pay
from fastadmm.problem.problem import Problem, TestSet
from fastadmm.solver.early_stopping import EarlyStopping
from fastadmm.solver.solver import Solver
from fastadmm.solver.warm_start import StartingPoint
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from resumed import assert_resumed_is_the_same

N = 700
EXACT = SolverOptions(gap=1e-10, directions="one")


def table(seed: int = 3, classes: int = 4, strength: float = 1.0) -> tuple[list[Any], np.ndarray]:
    rng = np.random.default_rng(seed)
    blocks = [rng.normal(size=(N, d)) for d in (9, 6, 1)]
    blocks[-1] += blocks[0][:, :1]
    z = np.hstack(blocks) @ (strength * rng.normal(size=(16, classes))) + rng.gumbel(size=(N, classes))
    given = [sp.csr_array(np.where(rng.random(blocks[0].shape) < 0.3, blocks[0], 0.0)), *blocks[1:]]
    return given, z.argmax(axis=1).astype(float)


def problem(lam: float = 1e-3, **more: Any) -> Problem:
    blocks, y = table()
    return make_problem(blocks, y, loss="multinomial", lam=lam, **more)


def more(kind: str) -> dict[str, Any]:
    rng = np.random.default_rng(5)
    return {
        "plain": {},
        "no intercept": {"fit_intercept": False},
        "weights": {"sample_weight": rng.exponential(size=N) * (rng.random(N) < 0.9)},
        "offset": {"offset": rng.normal(size=(N, 4))},
    }[kind]


@pytest.mark.parametrize("kind", ["plain", "no intercept", "weights", "offset"])
@pytest.mark.parametrize("lam", [1e-1, 1e-3, 1e-6])
def test_one_round_and_its_proof(kind: str, lam: float) -> None:
    given = problem(lam, **more(kind))
    solver = Solver(given, SolverOptions(gap=1e-6))
    assert isinstance(solver.method, NarrowMultinomialMethod)
    result = solve(given, SolverOptions(gap=1e-6))
    assert result.certified
    assert len(result.history) <= 2
    exact = solve(given, EXACT)
    assert -1e-9 * exact.objective <= result.objective - exact.objective <= 1e-6 * exact.objective


@pytest.mark.parametrize("intercept", [False, True])
def test_the_optimum_is_scikit_learns(intercept: bool) -> None:
    blocks, y = table()
    X = np.hstack([block.toarray() if sp.issparse(block) else block for block in blocks])
    given = make_problem(blocks, y, loss="multinomial", lam=1e-3, fit_intercept=intercept)
    result = solve(given, SolverOptions(gap=1e-11))
    model = LogisticRegression(C=1e3 / N, fit_intercept=intercept, tol=1e-10, max_iter=5000).fit(X, y)
    np.testing.assert_allclose(np.concatenate(result.weights), model.coef_.T, atol=1e-5)
    if intercept:
        shift = model.intercept_ - model.intercept_.mean()
        np.testing.assert_allclose(result.intercept, shift, atol=1e-5)


def test_the_parties_directions_are_their_columns() -> None:
    solver = Solver(problem(), SolverOptions(gap=1e-6))
    solver.round()
    for party, block in zip(solver.parties, solver.problem.blocks, strict=True):
        np.testing.assert_array_equal(party.directions, np.eye(block.shape[1]))
        assert party.metric is None  # no party has factorised anything
    np.testing.assert_array_equal(solver.coordinator.messages[9:15], solver.problem.blocks[1].matrix.T)


def test_the_same_bits_for_any_number_of_threads() -> None:
    one, two = (solve(problem(), SolverOptions(n_threads=k)) for k in (1, 2))
    for a, b in zip(one.weights, two.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(one.intercept, two.intercept)


@pytest.mark.parametrize("intercept", [False, True])
def test_a_run_goes_on_to_the_same_bits(intercept: bool) -> None:
    options = SolverOptions(gap=1e-12)
    given = problem(1e-5, fit_intercept=intercept)
    for rounds in (1, 2):
        assert_resumed_is_the_same(given, options, rounds, after=2)


def test_given_weights_are_the_beginning() -> None:
    near = solve(problem(2e-3), SolverOptions(gap=1e-6))
    solver = Solver(problem(), SolverOptions(gap=1e-6), start=StartingPoint(near.weights, near.intercept))
    solver.prepare()
    for found, known in zip(solver.party_weights(), near.weights, strict=True):
        np.testing.assert_array_equal(found, known)
    assert solver.round().objective <= near.objective
    assert solver.round().gap <= 1e-6


def test_a_smaller_gap_than_was_reached_takes_further_rounds() -> None:
    solver = Solver(problem(1e-4), SolverOptions(gap=0.0))
    records = [solver.round() for _ in range(4)]
    for earlier, later in pairwise(records):
        assert later.objective <= earlier.objective * (1.0 + 1e-13)
    assert records[-1].gap <= 1e-11


@pytest.mark.parametrize("options", [{"directions": "one"}, {"history": 8}], ids=str)
def test_directions_where_they_are_asked_for(options: dict) -> None:
    assert type(Solver(problem(), SolverOptions(gap=1e-6, **options)).method) is MultinomialMethod


def test_early_stopping_keeps_to_directions() -> None:
    blocks, y = table(8)
    rows = make_problem(blocks, y, loss="multinomial", lam=1e-3)
    early = EarlyStopping(rows_of(rows), "log_loss", 3)
    solver = Solver(problem(), SolverOptions(gap=1e-6), early=early)
    assert isinstance(solver.method, NarrowMultinomialMethod)
    solver.round()
    assert len(solver.coordinator.messages) <= 9


def rows_of(held_out: Problem) -> TestSet:
    return TestSet(held_out.blocks, held_out.y, held_out.weight, held_out.offset)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    log_lam=st.floats(-7.0, 0.0),
    classes=st.integers(2, 6),
    n=st.integers(6, 90),
    intercept=st.booleans(),
)
def test_whatever_the_columns_are(seed: int, log_lam: float, classes: int, n: int, intercept: bool) -> None:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6)) * 10.0 ** rng.uniform(-3.0, 3.0, 6)
    X[:, 1] = X[:, 0]  # twice the same column
    X[:, 2] = rng.normal()  # a constant one
    y = np.append(np.arange(classes), (X[:, 3:] @ rng.normal(size=(3, classes))).argmax(axis=1))[:n] * 1.0
    options: Any = {"lam": 10.0**log_lam, "fit_intercept": intercept, "n_classes": classes}
    given = make_problem([X[:, :2], X[:, 2:]], y, loss="multinomial", **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastadmm.coordinator.multinomial.narrow.all_columns_pay", lambda *shape: True)
        solver = Solver(given, SolverOptions(gap=1e-6))
        assert isinstance(solver.method, NarrowMultinomialMethod)
        result = solve(given, SolverOptions(gap=1e-6, max_rounds=60))
    exact = solve(given, SolverOptions(gap=1e-8, directions="one", max_rounds=300))
    assert result.certified or result.gap <= 2.0 * exact.gap
    assert result.objective <= exact.objective * (1.0 + 1e-6) + 1e-12


def test_where_columns_are_few() -> None:
    assert all_columns_pay(20_000, [18, 18, 18], 7)
    assert all_columns_pay(2000, [200], 3)
    assert all_columns_pay(60_000, [392, 392], 10)
    assert not all_columns_pay(1700, [360, 360], 25)  # few rows: passes over them cost less than factors
    assert not all_columns_pay(20_000, [300, 300], 3)  # few classes: less than a matrix of products
    assert not all_columns_pay(10**6, [300], 30)  # memory

"""Wide tables in one process: rounds by columns are few, certified, resumed to the same bits, and end."""

from __future__ import annotations

import numpy as np
import pytest
from fastadmm.cluster.engine import RowEngine
from fastadmm.coordinator.proximal import wide
from fastadmm.coordinator.proximal.predictor_newton import Columns, minimise_over_columns
from fastadmm.coordinator.proximal.wide import WideProximalMethod
from fastadmm.engine.engine import Engine
from fastadmm.problem.penalty import PartyPenalty
from fastadmm.problem.problem import Problem, make_problem
from fastadmm.solver.history import Status
from fastadmm.solver.solver import Solver, SolverOptions, solve

from workers import ThreadComm


def table(loss: str, regularizer: str, n: int = 30, width: int = 60, **more: object) -> Problem:
    rng = np.random.default_rng(5)
    blocks = [rng.normal(size=(n, width)) for _ in range(3)]
    z = sum(block[:, :4] @ rng.normal(size=4) for block in blocks)
    y = z + rng.normal(size=n)
    y = (y > 0.0) * 1.0 if loss in ("logistic", "hinge", "squared_hinge", "smoothed_hinge") else y
    if regularizer == "group_lasso":
        more["regularizer_parameters"] = {"groups": [[[j, j + 1] for j in range(0, width, 2)]] * 3}
    return make_problem(blocks, y, loss=loss, regularizer=regularizer, lam=3e-3, **more)


@pytest.mark.parametrize("regularizer", ["l1", "elastic_net", "group_lasso"])
@pytest.mark.parametrize("loss", ["squared", "logistic", "huber", "squared_hinge", "hinge", "quantile"])
def test_few_rounds_certify(loss: str, regularizer: str) -> None:
    """By directions these took one round for about every free weight."""
    result = solve(table(loss, regularizer), SolverOptions(gap=1e-6, max_rounds=20))
    assert result.status is Status.CONVERGED


@pytest.mark.parametrize("constraint", ["nonnegative", "box:-0.1,0.2"])
def test_sets_with_bounds(constraint: str) -> None:
    result = solve(table("squared", "l1", constraint=constraint), SolverOptions(gap=1e-6, max_rounds=20))
    assert result.status is Status.CONVERGED
    low, high = (0.0, np.inf) if constraint == "nonnegative" else (-0.1, 0.2)
    assert all((x >= low).all() and (x <= high).all() for x in result.weights)


@pytest.mark.usefixtures("by_directions")
def test_the_optimum_is_that_of_rounds_by_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, options = table("logistic", "group_lasso"), SolverOptions(gap=1e-7, max_rounds=200)
    by_columns = solve(problem, options)
    monkeypatch.setattr(wide, "goes_by_columns", lambda *_: False)
    by_directions = solve(problem, options)
    assert len(by_columns.history) < len(by_directions.history) / 2
    assert by_columns.objective == pytest.approx(by_directions.objective, rel=3e-7)


def test_columns_alone_against_plain_proximal_gradient_steps() -> None:
    problem, engine = table("squared", "elastic_net", fit_intercept=False), Engine(1)
    numbers = np.arange(0, 60, 3)
    parties = [
        Columns(
            PartyPenalty(r, c, problem.regularization), numbers, block.columns(numbers, engine), np.zeros(60)
        )
        for block, r, c in zip(problem.blocks, problem.party_regularizers, problem.party_constraints)
    ]
    found = minimise_over_columns(problem, None, parties, 0.0, 1e-9, 0.0, engine)
    assert found.solved
    values = np.hstack([block.columns(numbers, engine) for block in problem.blocks])
    x, step = np.zeros(60), 1.0 / np.linalg.norm(values, 2) ** 2
    penalty = parties[0].penalty
    for _ in range(20_000):
        x = penalty.prox(x - step * (values.T @ (values @ x - problem.y)), step)

    def objective(x: np.ndarray) -> float:
        return 0.5 * float(np.square(values @ x - problem.y).sum()) + penalty.value(x)

    best = objective(np.concatenate([p.weights[numbers] for p in parties]))
    assert best - 1e-9 <= objective(x) <= best * (1.0 + 1e-5)  # plain steps are slow


@pytest.mark.parametrize(("loss", "regularizer"), [("logistic", "group_lasso"), ("hinge", "l1")])
def test_a_resumed_run_takes_the_same_steps(loss: str, regularizer: str) -> None:
    problem = table(loss, regularizer)

    def begun() -> Solver:
        solver = Solver(problem, SolverOptions(gap=1e-9, max_rounds=20))
        solver.prepare()
        return solver

    whole = begun()
    for _ in range(3):
        whole.round()
    saved, parties = whole.method.export(), whole.method.export_parties()
    assert isinstance(whole.method, WideProximalMethod)
    assert "columns" in saved
    resumed = begun()
    resumed.method.restore(saved)
    resumed.method.restore_parties(parties)
    for _ in range(3):
        expected, found = whole.round(), resumed.round()
        assert found.objective == expected.objective
    for a, b in zip(whole.method.weights(), resumed.method.weights()):
        np.testing.assert_array_equal(a, b)


def test_more_free_weights_than_room_go_on_by_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide, "MOST_COLUMNS", 20)
    solver = Solver(table("squared", "group_lasso", n=15, width=20), SolverOptions(gap=1e-6, max_rounds=100))
    solver.prepare()
    gaps = [solver.round().gap for _ in range(60)]
    assert solver.method.numbers is None
    assert min(gaps) <= 1e-5


def test_a_history_or_more_rows_than_columns_take_directions() -> None:
    assert not isinstance(
        Solver(table("squared", "group_lasso"), SolverOptions(history=20)).method, WideProximalMethod
    )
    assert isinstance(Solver(table("squared", "group_lasso")).method, WideProximalMethod)
    assert not isinstance(Solver(table("squared", "group_lasso", n=300)).method, WideProximalMethod)


def test_workers_take_directions_and_so_does_one_alone() -> None:
    problem = table("squared", "l1")
    with RowEngine(ThreadComm(0, 1, None, None), problem.n_samples, 1) as engine:
        assert not wide.goes_by_columns(problem, engine)

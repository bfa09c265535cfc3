"""Kinks in the loss beside norms and bounds: all columns by an interior point method, in one process."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm import SolverOptions, make_problem, solve
from fastadmm.blocks import tiles
from fastadmm.blocks.block import DenseBlock
from fastadmm.coordinator.proximal import interior_point, kinked_columns
from fastadmm.coordinator.proximal.interior_point import find_saddle
from fastadmm.coordinator.proximal.kinked_columns import KinkedColumnsMethod
from fastadmm.coordinator.proximal.kinked_work import bytes_of_columns, columns_pay, work_of_saddle
from fastadmm.coordinator.proximal.scheme import Proximal
from fastadmm.coordinator.scheme import Shape
from fastadmm.engine.engine import Engine
from fastadmm.problem.penalty import PartyPenalty
from fastadmm.problem.problem import Problem
from fastadmm.problem.traits import Traits
from fastadmm.solver.history import Status
from fastadmm.solver.loop import run_rounds
from fastadmm.solver.solver import Solver
from fastadmm.solver.warm_start import StartingPoint
from scipy.optimize import linprog

N, WIDTHS = 1500, (90, 70, 3)


def problem(
    loss: str = "hinge", regularizer: str = "l1", lam: float = 2e-3, dense: bool = False, **more: Any
) -> Problem:
    rng = np.random.default_rng(4)
    blocks: list[Any] = [sp.random_array((N, d), density=0.06, rng=rng, format="csr") for d in WIDTHS[:2]]
    blocks.append(np.column_stack([rng.normal(size=N), np.ones(N), np.zeros(N)]))
    z = 3.0 * sum(block @ rng.normal(size=block.shape[1]) for block in blocks) + rng.logistic(size=N)
    if dense:
        blocks = [block.toarray() if sp.issparse(block) else block for block in blocks]
    y = z if loss == "quantile" else (z > 0) * 1.0
    return make_problem(blocks, y, loss=loss, regularizer=regularizer, lam=lam, **more)


CASES = [
    ("l1", {}),
    ("elastic_net", {}),
    ("l1", {"constraint": "nonnegative"}),
    ("l1", {"constraint": "box:-0.2,0.3"}),
    ("l2", {"constraint": "box:-0.2,0.3"}),
    ("l2", {"constraint": "nonnegative"}),
]


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(("regularizer", "more"), CASES, ids=str)
@pytest.mark.parametrize("loss", ["hinge", "quantile"])
def test_one_round_and_its_proof(loss: str, regularizer: str, more: dict, intercept: bool) -> None:
    given = problem(loss, regularizer, lam=1e-3, fit_intercept=intercept, **more)
    assert isinstance(Solver(given, SolverOptions()).method, KinkedColumnsMethod)
    result = solve(given, SolverOptions(gap=1e-6))
    assert result.certified
    assert len(result.history) == 2
    other = solve(given, SolverOptions(gap=1e-4, history=64, max_rounds=300))
    assert result.objective <= other.objective * (1.0 + 1e-6)
    assert other.objective <= result.objective * (1.0 + other.gap + 1e-6)
    for x, own in zip(result.weights, given.party_constraints, strict=True):
        assert (x >= own.bounds[0]).all()
        assert (x <= own.bounds[1]).all()
    if regularizer == "l1":
        assert 5 <= (np.concatenate(result.weights) == 0.0).sum() <= sum(WIDTHS)


@pytest.mark.parametrize("dense", [False, True])
def test_the_optimum_of_the_linear_program(dense: bool) -> None:
    given = problem("hinge", lam=5e-3, dense=dense, fit_intercept=False)
    columns = np.hstack([block.columns(np.arange(block.shape[1]), Engine(1)) for block in given.blocks])
    d, sign = columns.shape[1], 2.0 * given.y - 1.0
    signed = sp.csr_array(sign[:, np.newaxis] * columns)
    above = sp.hstack([-signed, signed, -sp.eye_array(N)])
    cost = np.concatenate([np.full(2 * d, given.regularization), np.ones(N)])
    best = linprog(cost, A_ub=above, b_ub=-np.ones(N), method="highs")
    found = solve(given, SolverOptions(gap=1e-8))
    assert found.certified
    assert found.objective == pytest.approx(best.fun / N, rel=1.1e-8)


def test_rows_without_weight_say_nothing() -> None:
    weight = np.random.default_rng(1).integers(0, 3, size=N) * 1.0
    given = problem(sample_weight=weight, fit_intercept=True)
    result = solve(given, SolverOptions(gap=1e-7))
    assert result.certified
    assert len(result.history) == 2


def test_the_saddle_proves_itself() -> None:
    """Value and bound by the formulas of the losses."""
    given = problem("quantile", "elastic_net", dense=True, fit_intercept=False)
    with Engine(1) as engine:
        rows = DenseBlock(np.hstack([b.columns(np.arange(b.shape[1]), engine) for b in given.blocks]))
        own = given.party_regularizers[0], given.party_constraints[0], given.regularization
        penalty = PartyPenalty(*own)
        found = find_saddle(given, penalty, rows, 1e-8, engine)
    assert found is not None
    assert 0.0 <= found.value - found.lower <= 1e-8 * found.lower
    e, u = given.y - rows.matrix @ found.weights, found.gradient
    value = float(np.abs(0.5 * e).sum()) + penalty.value(found.weights)
    assert found.value == pytest.approx(value, rel=1e-12)
    assert (np.abs(u) <= 0.5).all()
    conjugate = float(u @ given.y)
    assert found.lower == pytest.approx(-conjugate - penalty.conjugate(-rows.matrix.T @ u), rel=1e-12)


def test_the_same_bits_for_any_number_of_threads_and_when_a_run_goes_on() -> None:
    given = problem(fit_intercept=True)
    one, two = (solve(given, SolverOptions(n_threads=k)) for k in (1, 2))
    for a, b in zip(one.weights, two.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    straight, resumed = Solver(given, SolverOptions(gap=0.0)), Solver(given, SolverOptions(gap=0.0))
    straight.round()
    resumed.restore(straight.export(), straight.export_parties())
    for _ in range(3):
        a, b = straight.round(), resumed.round()
        assert (a.objective, a.gap) == (b.objective, b.gap)


@pytest.mark.parametrize("dense", [False, True])
def test_a_system_in_portions_has_the_same_bits(dense: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    given, portions = problem(dense=dense), []
    monkeypatch.setattr(tiles, "TILE_BYTES", 1 << 13)  # tiles of some rows
    whole = solve(given, SolverOptions(n_threads=1))
    monkeypatch.setattr(interior_point, "_PRODUCTS", 1)
    monkeypatch.setattr(Engine, "check", lambda _: portions.append(None))
    for threads in (1, 2):
        cut = solve(given, SolverOptions(n_threads=threads))
        for a, b in zip(whole.weights, cut.weights, strict=True):
            np.testing.assert_array_equal(a, b)
    assert len(portions) > 2 * N // 10


@pytest.mark.parametrize("after", [2, 30, 1000])
def test_a_stop_is_heard_in_a_round_which_begins_anew_when_the_run_goes_on(
    after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiles, "TILE_BYTES", 1 << 13)
    monkeypatch.setattr(interior_point, "_PRODUCTS", 1)
    monkeypatch.setattr(kinked_columns, "_WORK_OF_ROUND", 0.0)
    given, options = problem(), SolverOptions(gap=1e-6, n_threads=1)
    straight = solve(given, options)
    solver = Solver(given, options)
    solver.prepare()
    solver.round()
    asked = 0

    def should_stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > after

    before = solver.n_rounds
    stopped = run_rounds(solver, should_stop=should_stop)
    assert (stopped.status, solver.n_rounds, asked) == (Status.INTERRUPTED, before, after + 1)
    other = Solver(given, options)
    other.restore(solver.export(), solver.export_parties())
    for goes_on in (solver, other):
        result = run_rounds(goes_on)
        assert result.objective == straight.objective
        for a, b in zip(straight.weights, result.weights, strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_stop_in_the_first_round_leaves_nothing() -> None:
    solver = Solver(problem(), SolverOptions(n_threads=1))
    with pytest.raises(KeyboardInterrupt):
        run_rounds(solver, should_stop=lambda: True)


def test_given_weights_are_the_beginning() -> None:
    near = solve(problem(lam=3e-3), SolverOptions(gap=1e-6))
    solver = Solver(problem(), SolverOptions(gap=1e-6), start=StartingPoint(near.weights, near.intercept))
    solver.prepare()
    for found, given in zip(solver.party_weights(), near.weights, strict=True):
        np.testing.assert_allclose(found, given, rtol=1e-14)
    assert min(solver.round().gap for _ in range(3)) <= 1e-6


def test_what_goes_by_directions() -> None:
    for given, options in (
        (problem(), {"history": 20}),
        (problem(regularizer="group_lasso"), {}),
        (problem(constraint="ball:1"), {}),
        (problem("huber"), {}),
    ):
        assert not isinstance(Solver(given, SolverOptions(**options)).method, KinkedColumnsMethod)
    stopped = Solver(problem(), SolverOptions(gap=1e-6))
    stopped.method.keep_to_directions()
    assert stopped.round().gap > 1e-6
    assert stopped.round().gap > 1e-6


def test_where_nothing_is_found_directions_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    from fastadmm.coordinator.proximal import kinked_columns

    monkeypatch.setattr(kinked_columns, "find_saddle", lambda *arguments: None)
    result = solve(problem(lam=2e-2), SolverOptions(gap=1e-4, max_rounds=200))
    assert result.certified
    assert len(result.history) > 3


def test_a_round_ends_after_a_while_and_a_run_goes_on_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    from fastadmm.coordinator.proximal import kinked_columns

    monkeypatch.setattr(kinked_columns, "_WORK_OF_ROUND", 0.0)
    given = problem(lam=3e-4)
    straight = Solver(given, SolverOptions(gap=1e-6))
    records = [straight.round()]
    resumed = Solver(given, SolverOptions(gap=1e-6))
    resumed.restore(straight.export(), straight.export_parties())
    while records[-1].gap > 1e-6 and len(records) < 20:
        a, b = straight.round(), resumed.round()
        assert (a.objective, a.gap) == (b.objective, b.gap)
        records.append(a)
    assert records[-1].gap <= 1e-6
    assert len(records) >= 3
    assert isinstance(straight.method, KinkedColumnsMethod)
    assert straight.method.whole
    objectives = [record.objective for record in records]
    assert objectives == sorted(objectives, reverse=True)


def test_more_columns_than_pay_go_by_directions(monkeypatch: pytest.MonkeyPatch) -> None:
    """From weights that are no worse than those found before."""
    from fastadmm.coordinator.proximal import kinked_columns

    monkeypatch.setattr(kinked_columns, "columns_pay", lambda n, widths, densities, columns: columns <= 128)
    solver = Solver(problem(lam=3e-4), SolverOptions(gap=1e-6))
    objectives = [solver.round().objective for _ in range(8)]
    assert isinstance(solver.method, KinkedColumnsMethod)
    assert not solver.method.whole
    assert objectives == sorted(objectives, reverse=True)


def test_what_columns_take_is_known_before() -> None:
    table = 20_000, (3000, 3000), (0.01, 0.01)
    works = [work_of_saddle(*table, columns) for columns in (100, 1000, 6000)]
    assert works == sorted(works)
    assert columns_pay(*table, 128)
    assert not columns_pay(*table, 6000)  # a system of 288 MB
    assert columns_pay(3725, (1370,) * 4, (0.022,) * 4, 4900)  # which no directions would certify
    assert columns_pay(32_561, (61, 62), (1.0, 1.0), 123)
    assert not columns_pay(100, (50_000,), (1.0,), 50_000)
    held, free = bytes_of_columns(*table, held=True), bytes_of_columns(*table, held=False)
    assert held is not None
    assert free is None
    assert held >= 8 * 128**2
    traits = Traits(smooth=False, ridge=False, convex=True, vector=False)
    kinds = {"as_they_are": True, "kinks_at_zero": True, "penalty_is_a_sum": True}
    shape = Shape(traits, table[0], 1, *table[1:], 1, **kinds)
    planned = Proximal().columns_bytes(shape)
    assert planned is not None
    assert planned > held
    assert Proximal().columns_bytes(replace(shape, as_they_are=False)) is None


@pytest.mark.parametrize("intercept", [False, True])
def test_ridge_goes_on_between_kinks_where_centres_gain_little(
    intercept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fastadmm.coordinator.subspace import stacked_smoothed

    given = problem(regularizer="l2", lam=1e-4, fit_intercept=intercept)
    assert isinstance(Solver(given, SolverOptions()).method, stacked_smoothed.StackedSmoothedMethod)
    exact = solve(given, SolverOptions(gap=1e-8))
    monkeypatch.setattr(stacked_smoothed, "_MOST_CENTRES", 1)
    monkeypatch.setattr(stacked_smoothed, "_IN_VAIN", 0.0)
    straight, resumed = Solver(given, SolverOptions(gap=1e-7)), Solver(given, SolverOptions(gap=1e-7))
    for _ in range(2):  # a second round that leaves anything is in vain
        straight.round()
    assert straight.method.dual is not None
    resumed.restore(straight.export(), straight.export_parties())
    a, b = straight.round(), resumed.round()
    assert (a.objective, a.gap) == (b.objective, b.gap)
    assert a.gap <= 1e-7
    assert a.objective == pytest.approx(exact.objective, rel=1e-7)

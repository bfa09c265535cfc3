"""Ridge with kinks in the loss on dense columns: an interior point method first, where columns are many."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fastadmm import SolverOptions, make_problem, solve
from fastadmm.coordinator.metric_limits import directions_for_kinks
from fastadmm.coordinator.proximal import interior_point
from fastadmm.coordinator.proximal.kinked_work import bytes_of_system
from fastadmm.coordinator.scheme import Shape
from fastadmm.coordinator.subspace import stacked_smoothed
from fastadmm.coordinator.subspace.dense_kinks import bytes_of_saddle, saddle_pays
from fastadmm.coordinator.subspace.scheme import Subspace
from fastadmm.coordinator.subspace.stacked_smoothed import StackedSmoothedMethod
from fastadmm.problem.problem import Problem
from fastadmm.problem.traits import Traits
from fastadmm.solver.history import Status
from fastadmm.solver.loop import run_rounds
from fastadmm.solver.solver import Solver
from fastadmm.solver.warm_start import StartingPoint

from resumed import assert_resumed_is_the_same


def problem(
    loss: str = "quantile", n: int = 300, widths: tuple[int, ...] = (60, 40), lam: float = 1e-3
) -> Problem:
    rng = np.random.default_rng(3)
    blocks = [rng.normal(size=(n, d)) for d in widths]
    z = 2.0 * sum(block @ rng.normal(size=block.shape[1]) for block in blocks) / np.sqrt(sum(widths))
    z += rng.standard_t(3, size=n)
    return make_problem(blocks, z if loss == "quantile" else (z > 0.0) * 1.0, loss=loss, lam=lam)


def test_more_columns_than_directions_are_kept_do_not_stall() -> None:
    found = solve(problem(n=1400, widths=(600, 600)), SolverOptions(gap=1e-6))
    assert found.certified
    assert len(found.history) <= 3


@pytest.mark.parametrize("loss", ["hinge", "quantile"])
def test_one_round_and_its_proof(loss: str) -> None:
    given = problem(loss)
    method = Solver(given, SolverOptions()).method
    assert isinstance(method, StackedSmoothedMethod)
    assert method.rows.how == "saddle"
    one, two = (solve(given, SolverOptions(gap=1e-6, n_threads=k)) for k in (1, 2))
    assert one.certified
    assert len(one.history) == 2
    for a, b in zip(one.weights, two.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    exact = solve(given, SolverOptions(gap=1e-7, directions="one", max_rounds=400))
    assert -2e-7 * exact.objective <= one.objective - exact.objective <= 1e-6 * exact.objective
    assert_resumed_is_the_same(given, SolverOptions(gap=0.0), rounds=1, after=2)


def test_where_no_saddle_is_found_centres_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacked_smoothed, "find_saddle", lambda *given: None)
    found = solve(problem(), SolverOptions(gap=1e-6))
    assert found.certified
    assert len(found.history) <= 6


def test_given_weights_are_the_beginning() -> None:
    near = solve(problem(lam=2e-3), SolverOptions(gap=1e-6))
    given = problem()
    found = solve(given, SolverOptions(gap=1e-6), start=StartingPoint(near.weights, near.intercept))
    exact = solve(given, SolverOptions(gap=1e-6))
    assert found.certified
    assert found.objective == pytest.approx(exact.objective, rel=1e-6)


def test_a_stop_is_heard_and_the_round_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interior_point, "_PRODUCTS", 1)
    given, options, asked = problem(), SolverOptions(gap=1e-6, n_threads=1), []
    straight, solver = solve(given, options), Solver(given, options)
    with pytest.raises(KeyboardInterrupt):
        run_rounds(solver, should_stop=lambda: bool(asked.append(None)) or len(asked) > 5)
    assert len(asked) == 6
    result = run_rounds(solver)
    assert result.status == Status.CONVERGED
    assert (result.objective, len(result.history)) == (straight.objective, len(straight.history))


def test_where_it_is_least_work() -> None:
    def pays(n: int, d: int, parties: int = 2) -> bool:
        widths, most = [d // parties] * parties, directions_for_kinks(parties, n)
        return saddle_pays(n, widths, [1.0] * parties, most)

    assert all(pays(n, d) for n, d in [(1000, 300), (1000, 900), (3500, 2200), (5000, 4000)])
    assert pays(50_000, 800)  # whose columns are too many bytes as messages
    assert not any(pays(n, d) for n, d in [(20_000, 300), (20_000, 1000), (100_000, 60)])  # few near kinks
    assert not pays(10_000, 8000)  # a system of 512 MB


def test_what_it_takes_is_planned() -> None:
    shape = Shape(Traits(False, True, True, False), 3500, 1, (1100, 1100), (1.0, 1.0), 1, as_they_are=True)
    planned = Subspace().columns_bytes(shape)
    assert planned is not None
    assert planned >= bytes_of_system(3500, 2200, dense=True)
    assert Subspace().columns_bytes(replace(shape, as_they_are=False)) is None
    assert bytes_of_saddle(3500, (1100, 1100), (0.1, 0.1), 64) is None  # sparse columns go another way

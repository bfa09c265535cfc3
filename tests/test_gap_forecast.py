"""The last round of `subspace` in one process asks for the proof alone."""

from __future__ import annotations

import numpy as np
import pytest
from fastadmm.conversation.exchange import Answers, Exchange
from fastadmm.conversation.threads import Threads
from fastadmm.coordinator.subspace.gap_forecast import GapForecast
from fastadmm.problem.problem import Problem, make_problem
from fastadmm.solver.solver import Solver, SolverOptions, solve


def problem(rows: int = 400, widths: tuple[int, ...] = (9, 7), **arguments: object) -> Problem:
    rng = np.random.default_rng(5)
    blocks = [rng.normal(size=(rows, d)) for d in widths]
    z = sum(block @ rng.normal(size=block.shape[1]) for block in blocks)
    return make_problem(blocks, (z + rng.logistic(size=rows) > 0) * 1.0, lam=1e-3, **arguments)  # type: ignore[arg-type]


def calls_of(solver: Solver) -> list[list[str]]:
    """Names of the calls of every round to come, until the run ends."""
    carry, names, rounds = solver.driver.carry, [], []

    def counting(exchange: Exchange) -> Answers | None:
        names.append(exchange.calls[0].name)
        return carry(exchange)

    solver.driver.carry = counting  # type: ignore[method-assign]
    while not rounds or solver.stop_reason(solver.last_record) is None:  # type: ignore[arg-type]
        names.clear()
        solver.round()
        rounds.append(list(names))
    return rounds


def test_a_falling_gap_is_expected_to_go_on_falling() -> None:
    forecast = GapForecast()
    forecast.wanted = 1e-6
    assert not forecast.expects(1.0)
    forecast.take(1e-2)
    assert not forecast.expects(1.0)
    forecast.take(1e-4)  # a hundredth of it next: 1e-6
    assert forecast.expects(1.0)
    assert not forecast.expects(0.1)
    forecast.take(2e-4)  # it rose
    assert not forecast.expects(1.0)
    forecast.wanted = 0.0  # a run of a fixed number of rounds
    forecast.take(1e-9)
    assert not forecast.expects(1.0)


def test_a_gap_proves_what_its_own_lower_bound_says() -> None:
    forecast = GapForecast()
    forecast.wanted = 0.5
    assert forecast.proves(1.0, 3.0)
    assert not forecast.proves(1.01, 3.0)
    assert not forecast.proves(1.0, 1.0)  # no positive lower bound


@pytest.mark.usefixtures("by_directions")
@pytest.mark.parametrize("intercept", [False, True])
def test_the_last_round_asks_for_no_message(intercept: bool) -> None:
    solver = Solver(problem(fit_intercept=intercept), SolverOptions(gap=1e-6))
    rounds = calls_of(solver)
    assert isinstance(solver.driver, Threads)
    assert rounds[-1] == ["squared_residual"]
    assert all(names[-1] == "respond" for names in rounds[:-1])
    record = solver.last_record
    assert record is not None
    assert record.gap <= 1e-6
    # The same certificate as that of a run that asks for directions in every round.
    asked = Solver(problem(fit_intercept=intercept), SolverOptions(gap=1e-6))
    asked.coordinator.forecast.wanted = 0.0
    for _ in rounds:
        other = asked.round()
    assert other.gap <= record.gap + 1e-15
    assert other.objective == pytest.approx(record.objective, rel=1e-6)


@pytest.mark.usefixtures("by_directions")
def test_a_wrong_forecast_costs_no_pass_over_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    given = problem()
    solver, plain = (Solver(given, SolverOptions(gap=1e-9)) for _ in range(2))
    plain.coordinator.forecast.wanted = 0.0
    monkeypatch.setattr(solver.coordinator.forecast, "expects", lambda objective: True)
    monkeypatch.setattr(solver.coordinator.forecast, "proves", lambda gap, objective: False)
    passes = []
    product = type(given.blocks[0]).transposed_products
    monkeypatch.setattr(
        type(given.blocks[0]), "transposed_products", lambda *a: passes.append(1) or product(*a)
    )
    for _ in range(5):
        passes.clear()
        mine = solver.round().objective
        count = len(passes)
        passes.clear()
        assert mine == plain.round().objective
        assert count == len(passes)


@pytest.mark.usefixtures("by_directions")
def test_a_proof_that_does_not_end_the_run_is_followed_by_a_whole_round() -> None:
    """As where the objective of the weights themselves is above that of the messages."""
    solver = Solver(problem(widths=(40, 30)), SolverOptions(gap=1e-6))
    assert calls_of(solver)[-1] == ["squared_residual"]
    carry, names = solver.driver.carry, []
    solver.driver.carry = lambda exchange: (names.append(exchange.calls[0].name), carry(exchange))[1]  # type: ignore[method-assign]
    solver.round()
    assert "respond" in names


def test_no_proof_is_asked_for_between_machines_or_where_one_direction_is() -> None:
    assert all(
        names[-1] == "respond" for names in calls_of(Solver(problem(), SolverOptions(directions="one")))
    )


def test_what_ended_a_run_is_true() -> None:
    given = problem()
    result, exact = solve(given, SolverOptions(gap=1e-6)), solve(given, SolverOptions(gap=1e-12))
    assert result.objective - exact.objective <= 1e-6 * exact.objective

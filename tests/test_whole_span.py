"""Few columns are sent at once where parties are in this process: one round with its proof."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm import SolverOptions, make_problem, solve
from fastadmm.coordinator.subspace import bent_rows
from fastadmm.coordinator.subspace.whole_span import whole_span_pays
from fastadmm.problem.problem import Problem
from fastadmm.solver.solver import Solver
from fastadmm.solver.warm_start import StartingPoint

N = 700


def problem(loss: str = "logistic", widths: tuple[int, ...] = (12, 9, 1), **arguments: object) -> Problem:
    rng = np.random.default_rng(3)
    blocks = [rng.normal(size=(N, d)) for d in widths]
    blocks[-1] += blocks[0][:, :1]
    z = sum(block @ rng.normal(size=block.shape[1]) for block in blocks) + rng.logistic(size=N)
    y = z if loss in ("squared", "huber", "quantile") else (z > 0) * 1.0
    y = rng.poisson(np.exp(0.2 * z)) * 1.0 if loss == "poisson" else y
    given = [sp.csr_array(np.where(rng.random(blocks[0].shape) < 0.3, blocks[0], 0.0)), *blocks[1:]]
    return make_problem(given, y, loss=loss, **{"lam": 1e-4, **arguments})  # type: ignore[arg-type]


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["logistic", "squared", "huber", "squared_hinge", "poisson"])
def test_one_round_and_its_proof(loss: str, intercept: bool) -> None:
    given = problem(loss, fit_intercept=intercept)
    solver = Solver(given, SolverOptions(gap=1e-6))
    found = solver.round()
    assert found.gap <= 1e-6
    for party, block in zip(solver.parties, given.blocks, strict=True):
        np.testing.assert_array_equal(party.directions, np.eye(block.shape[1]))
    assert solver.coordinator.metric is None  # no party has factorised anything
    exact = solve(given, SolverOptions(gap=1e-10, directions="one"))
    assert -1e-9 * exact.objective <= found.objective - exact.objective <= 1e-6 * exact.objective
    np.testing.assert_allclose(
        np.concatenate(solver.party_weights()), np.concatenate(exact.weights), rtol=0.0, atol=0.02
    )


@pytest.mark.parametrize("loss", ["hinge", "quantile"])
def test_kinks_take_fewer_rounds(loss: str, by_directions: None) -> None:
    options, given = SolverOptions(gap=1e-6), problem(loss)
    slow = solve(given, options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fastadmm.coordinator.subspace.subspace.whole_span_pays", lambda *shape: True)
        fast = solve(given, options)
    assert fast.gap <= 1e-6
    assert len(fast.history) < len(slow.history)


def test_columns_of_kinks_are_sent_at_once_beyond_the_limit_of_directions() -> None:
    rng = np.random.default_rng(7)
    blocks = [rng.normal(size=(900, 300)) for _ in range(2)]
    y = (sum(block @ rng.normal(size=300) for block in blocks) + 9.0 * rng.logistic(size=900) > 0.0) * 1.0
    given = make_problem(blocks, y, loss="hinge", lam=1e-2)
    found = solve(given, SolverOptions(gap=1e-6, n_threads=1))
    assert found.gap <= 1e-6
    assert len(found.history) <= 12


def test_the_same_bits_for_any_number_of_threads() -> None:
    one, two = (solve(problem(), SolverOptions(n_threads=k)) for k in (1, 2))
    for a, b in zip(one.weights, two.weights, strict=True):
        np.testing.assert_array_equal(a, b)


def test_given_weights_are_coefficients_of_the_columns() -> None:
    near = solve(problem(lam=2e-4), SolverOptions(gap=1e-6))
    solver = Solver(problem(), SolverOptions(gap=1e-6), start=StartingPoint(near.weights, near.intercept))
    solver.prepare()
    for found, given in zip(solver.party_weights(), near.weights, strict=True):
        np.testing.assert_array_equal(found, given)
    assert solver.round().objective <= near.objective
    assert solver.round().gap <= 1e-6


def test_a_smaller_gap_than_was_reached_takes_further_rounds_without_a_message() -> None:
    solver = Solver(problem(), SolverOptions(gap=0.0))
    objectives = [solver.round().objective for _ in range(4)]
    # The last ones differ by the rounding of a sum over 700 rows.
    assert all(later <= earlier * (1.0 + 1e-14) for earlier, later in pairwise(objectives))
    assert len(solver.coordinator.messages) == 22
    assert solver.last_record is not None
    assert solver.last_record.gap <= 1e-13


@pytest.mark.parametrize("options", [{"directions": "one"}, {"directions": "both"}, {"history": 8}], ids=str)
def test_directions_where_they_are_asked_for(options: dict) -> None:
    solver = Solver(problem(), SolverOptions(gap=1e-6, **options))
    solver.round()
    assert len(solver.coordinator.messages) <= 6


def test_where_columns_are_few_for_their_rows_and_entries() -> None:
    assert whole_span_pays(10_000, [10, 10], [1.0, 1.0], 64, False)
    assert whole_span_pays(200_000, [20, 20], [1.0, 1.0], 64, False)
    assert not whole_span_pays(200_000, [100, 100], [1.0, 1.0], 128, False)
    assert not whole_span_pays(30_000, [66, 57], [0.1, 0.1], 128, False)  # sparse rows: passes are cheap
    assert whole_span_pays(800, [40, 40], [0.1, 0.1], 64, False)  # so few rows that rounds are what costs
    assert not whole_span_pays(800, [40, 40], [0.1, 0.1], 32, False)  # no room
    assert whole_span_pays(20_000, [45, 45], [1.0, 1.0], 64, True)
    assert not whole_span_pays(20_000, [60, 60], [1.0, 1.0], 64, False)


def test_a_search_among_kinks_ends_where_only_rounding_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    searches, evaluations = [], []
    plain = bent_rows.best_length_of_lines

    def counting(lines, z, along, linear, square, engine, **more):  # type: ignore[no-untyped-def]
        searches.append(1)
        with pytest.MonkeyPatch.context() as patch:
            sums = engine.sum_over_rows
            patch.setattr(engine, "sum_over_rows", lambda *a: evaluations.append(1) or sums(*a))
            return plain(lines, z, along, linear, square, engine, **more)

    monkeypatch.setattr("fastadmm.coordinator.subspace.stacked.saddle_pays", lambda *shape: False)
    monkeypatch.setattr(bent_rows, "best_length_of_lines", counting)
    result = solve(problem("hinge", (4, 3), lam=1e-3), SolverOptions(gap=1e-6))
    assert result.gap <= 1e-6
    assert 0 < len(searches) <= 10 * len(result.history)
    assert len(evaluations) <= 15 * len(searches)

"""Few columns with l1, elastic net or bounds are sent at once where parties are in this process."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm import SolverOptions, make_problem, solve
from fastadmm.coordinator.proximal.narrow import (
    NarrowProximalMethod,
    all_columns_pay,
    goes_by_all_columns,
)
from fastadmm.coordinator.proximal.proximal import ProximalMethod
from fastadmm.engine.engine import Engine
from fastadmm.problem.problem import Problem
from fastadmm.solver.solver import Solver
from fastadmm.solver.warm_start import StartingPoint

from resumed import assert_resumed_is_the_same

N = 900
EXACT = SolverOptions(gap=1e-10, history=20)  # directions


def problem(loss: str = "logistic", regularizer: str = "l1", lam: float = 3e-3, **more: Any) -> Problem:
    rng = np.random.default_rng(7)
    blocks = [rng.normal(size=(N, d)) for d in (10, 8, 2)]
    blocks[1][:, 0] = blocks[0][:, 0]  # twice the same column
    blocks[2][:, 1] = 1e3 * blocks[0][:, 1] + rng.normal(size=N)
    z = blocks[0] @ np.linspace(-1.0, 1.0, 10) + blocks[1][:, 3] + rng.logistic(size=N)
    y = z if loss in ("squared", "huber") else (z > 0) * 1.0
    y = rng.poisson(np.exp(0.3 * z)) * 1.0 if loss == "poisson" else y
    given = [sp.csr_array(np.where(rng.random((N, 10)) < 0.3, blocks[0], 0.0)), *blocks[1:]]
    return make_problem(given, y, loss=loss, regularizer=regularizer, lam=lam, **more)


CASES = [
    ("l1", {}),
    ("l1", {"fit_intercept": False}),
    ("l1", {"constraint": "nonnegative"}),
    ("elastic_net", {}),
    ("l2", {"constraint": "box:-0.2,0.3"}),
    ("l1", {"constraint": "box:-0.2,0.3"}),
]


@pytest.mark.parametrize(("regularizer", "more"), CASES, ids=str)
@pytest.mark.parametrize("loss", ["logistic", "squared", "huber", "squared_hinge", "poisson"])
def test_the_same_optimum_in_a_few_rounds(loss: str, regularizer: str, more: dict) -> None:
    given = problem(loss, regularizer, **more)
    solver = Solver(given, SolverOptions(gap=1e-7))
    assert isinstance(solver.method, NarrowProximalMethod)
    result = solve(given, SolverOptions(gap=1e-7))
    assert result.certified
    assert len(result.history) <= 12
    exact = solve(given, EXACT)
    assert -1e-9 * exact.objective <= result.objective - exact.objective <= 1e-7 * exact.objective
    for x, own in zip(result.weights, given.party_constraints, strict=True):
        assert (x >= own.bounds[0]).all()
        assert (x <= own.bounds[1]).all()


def test_weights_are_zero_where_they_are_zero() -> None:
    result, exact = solve(problem(), SolverOptions(gap=1e-8)), solve(problem(), EXACT)
    zeros = [np.concatenate(r.weights) == 0.0 for r in (result, exact)]
    assert 3 <= zeros[0].sum() <= 16
    np.testing.assert_array_equal(*zeros)


def test_the_same_bits_for_any_number_of_threads() -> None:
    one, two = (solve(problem(), SolverOptions(n_threads=k)) for k in (1, 2))
    for a, b in zip(one.weights, two.weights, strict=True):
        np.testing.assert_array_equal(a, b)


def test_given_weights_are_the_beginning() -> None:
    near = solve(problem(lam=4e-3), SolverOptions(gap=1e-6))
    solver = Solver(problem(), SolverOptions(gap=1e-6), start=StartingPoint(near.weights, near.intercept))
    solver.prepare()
    for found, given in zip(solver.party_weights(), near.weights, strict=True):
        np.testing.assert_array_equal(found, given)
    cold = solve(problem(), SolverOptions(gap=1e-6))
    warm = [solver.round() for _ in range(4)]
    assert warm[-1].gap <= 1e-6
    assert warm[-1].objective == pytest.approx(cold.objective, rel=1e-6)


def test_a_run_that_stalls_goes_on_with_best_responses() -> None:
    given = problem()
    solver = Solver(given, SolverOptions(gap=1e-9))
    solver.round()
    solver.method.go_by_directions()
    while solver.round().gap > 1e-9:
        assert solver.n_rounds < 60
    assert solver.last_record is not None
    assert solver.last_record.objective == pytest.approx(solve(given, EXACT).objective, rel=1e-9)


def test_columns_that_were_sent_become_directions_that_parties_can_count_in() -> None:
    solver = Solver(problem(), SolverOptions(gap=1e-9))
    solver.round()
    weights = solver.party_weights()
    solver.method.go_by_directions()
    shared = solver.coordinator.shared
    for m, (party, x) in enumerate(zip(solver.parties, weights, strict=True)):
        c = solver.coordinator.coefficients(m)
        np.testing.assert_allclose(party.weights(c), x, rtol=1e-14)
        np.testing.assert_allclose(party.span.coefficients(x), c, rtol=1e-12, atol=1e-14)
        of_party = party.block.columns(np.arange(len(x)), solver.engine) @ party.directions.T
        np.testing.assert_allclose(shared.messages[shared.of(m)], of_party.T, rtol=1e-14, atol=1e-15)
        mine = np.ix_(shared.of(m), shared.of(m))
        np.testing.assert_allclose(shared.products[mine], party.directions @ party.directions.T, rtol=1e-14)
    solver.round()  # best responses: counted in unit vectors these would be far away
    assert solver.last_record.objective == pytest.approx(solve(problem(), EXACT).objective, rel=1e-6)


def test_a_run_goes_on_to_the_same_bits() -> None:
    options = SolverOptions(gap=0.0)
    assert_resumed_is_the_same(problem(), options, 2)


@pytest.mark.parametrize(
    "given",
    [
        {"regularizer": "group_lasso"},
        {"loss": "hinge"},
        {"constraint": "ball:1"},
        {"constraint": "box:0.1,0.3"},
    ],
    ids=str,
)
def test_what_goes_by_directions(given: dict) -> None:
    plain = problem(**given)
    with Engine(1) as engine:
        assert not goes_by_all_columns(plain, engine)
    assert type(Solver(problem(), SolverOptions(history=20)).method) is ProximalMethod


def test_where_columns_are_few_for_their_rows_and_entries() -> None:
    assert all_columns_pay(30_000, [66, 57], [0.1, 0.1])
    assert all_columns_pay(3000, [120, 120, 120], [0.5, 0.5, 0.5])
    assert not all_columns_pay(10_000, [200, 200, 200], [0.15, 0.15, 0.15])
    assert not all_columns_pay(10**6, [120, 120], [1.0, 1.0])  # memory

"""Few rows: no scheme's lower bound is above what another scheme reaches."""

import numpy as np
import pytest
from fastadmm import SolverOptions, make_problem, solve
from fastadmm.engine.engine import Engine
from fastadmm.method import certificate
from fastadmm.method.certificate import make_feasible, primal_value, sums_to_zero
from fastadmm.solver.loop import run_rounds
from fastadmm.solver.solver import Solver

#: What rounding may make of a bound, relative to the objective or to that of zero weights.
ROUNDING = 1e-11

WAYS = [
    {"scheme": "auto"},
    {"scheme": "subspace", "directions": "one"},
    {"scheme": "subspace", "directions": "both"},
    {"scheme": "proximal"},
]


def fitted(given, **options):
    """Proved bound, objective of the returned weights and objective of zero weights, per mean loss."""
    solver = Solver(make_problem(**given), SolverOptions(max_rounds=300, n_threads=1, **options))
    found = run_rounds(solver)
    objective = solver._objective_of(found.weights, found.intercept)
    return solver.bound.value, objective, solver.divergence.start


def check(given):
    found = [fitted(given, **way) for way in WAYS]
    least = min(objective for _, objective, _ in found)
    for way, (bound, _, start) in zip(WAYS, found):
        assert bound <= least + ROUNDING * max(least, 1e-5 * start), way


def test_six_rows_and_known_gradients():
    x = np.zeros((6, 2))
    x[0], y = 1.0, np.array([0.0, 1.0, 1.0, 1.0, 1.0, 0.0])
    given = {"blocks": [x[:, :1], x[:, 1:]], "y": y, "loss": "smoothed_hinge", "lam": 0.1}
    check(given)
    for way in WAYS:
        assert fitted(given, **way)[1] == pytest.approx(0.28484848484848485, rel=2e-6)
    # A known gradient stays as it is.
    random, engine = np.random.default_rng(3), Engine(1)
    y = (random.random(40) < 0.4).astype(float)
    problem = make_problem([random.normal(size=(40, 2))], y)
    total, gradient = random.normal(size=40), np.empty(40)
    best = primal_value(problem, total, 0.0, engine)
    z = total + best.intercept + 1e-3
    value = problem.loss.evaluate(z, y, problem.weight, gradient, engine)
    before, sums = gradient.copy(), engine.total_and_size(gradient)
    known = value, gradient, (float(sums[0]), float(sums[1]))
    near = total, best.intercept + 1e-3
    assert certificate._from_nearby(problem, *near, known, engine) is not None  # in a few Newton steps
    found = primal_value(problem, *near, engine, known)
    assert found.intercept == pytest.approx(best.intercept, abs=1e-12)
    assert found.gradient is not gradient
    assert np.array_equal(gradient, before)
    # What a sum that is not zero costs grows with the intercept: far away less of it is rounding.
    rounded = found.gradient + 5e-10 * np.abs(found.gradient).mean()
    for intercept, allowed in ((0.0, True), (1e3, False)):
        place = value, intercept
        assert make_feasible(problem, z, rounded.copy(), place, engine) == allowed
        assert sums_to_zero(rounded, engine, place=place) == allowed


@pytest.mark.parametrize("regularizer", ["l1", "elastic_net", "l2"])
@pytest.mark.parametrize(("of_columns", "of_targets"), [(1.0, 1e150), (1e150, 1.0), (1e150, 1e150)])
def test_huge_numbers_are_fitted(of_columns, of_targets, regularizer):
    random = np.random.default_rng(0)
    x, noise = random.normal(size=(40, 4)), 0.1 * random.normal(size=40)
    y = (x @ np.array([1.0, -1.0, 0.5, 0.0]) + noise) * of_targets
    blocks = [x[:, :2] * of_columns, x[:, 2:] * of_columns]
    for scheme in ["auto", "proximal"]:
        problem = make_problem(blocks, y, loss="squared", regularizer=regularizer, lam=1e-3)
        found = solve(problem, SolverOptions(scheme=scheme, max_rounds=50))
        # Of an objective near the largest number a run has one round.
        most = 0.006 if of_columns * of_targets <= 1e150 else 0.04
        assert found.objective <= most * of_targets**2

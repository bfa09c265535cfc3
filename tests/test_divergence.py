"""When a run counts as diverged: overflow, growth that stays, a cycle; never slow convergence."""

import math

import numpy as np
import pytest
from fastadmm.coordinator.divergence import DivergenceDetector
from fastadmm.problem.problem import make_problem
from fastadmm.solver.history import Status
from fastadmm.solver.solver import SolverOptions, solve


def feed(detector, objectives, residuals):
    """Number of the round in which the detector speaks; None if it never does."""
    for k, (objective, residual) in enumerate(zip(objectives, residuals, strict=True)):
        if detector.diverged(objective, residual):
            return k + 1
    return None


def test_growth_that_passes_and_cycles_are_not_divergence():
    assert feed(DivergenceDetector(1.0, guaranteed=True), [1.0, math.inf], [1.0, 1.0]) == 2
    assert feed(DivergenceDetector(1.0, guaranteed=True), [1.0, 1.0], [1.0, math.nan]) == 2
    # Growth that stays and growth that passes.
    grown = [1.0, *[3.0] * 60]
    assert feed(DivergenceDetector(1.0, guaranteed=False), [1.0] * 61, grown) == 41
    assert feed(DivergenceDetector(1.0, guaranteed=True), [1.0] * 61, grown) is None
    passing = [1.0, *[3.0] * 30, *[1.5] * 5, *[3.0] * 30]
    assert feed(DivergenceDetector(1.0, guaranteed=False), [1.0] * 66, passing) is None
    assert feed(DivergenceDetector(1.0, guaranteed=False), [1.0, 200.0], [1.0, 5.0]) == 2
    # A cycle is not slow convergence.
    rounds = 400
    cycle = 0.7 + 0.1 * np.sin(np.arange(rounds))
    assert feed(DivergenceDetector(1.0, guaranteed=False), 0.5 + 0.1 * cycle, cycle) == 200
    slow = 0.99999 ** np.arange(rounds)  # a residual that falls by 0.1 % in 100 rounds
    assert feed(DivergenceDetector(1.0, guaranteed=False), 0.9999 ** np.arange(rounds), slow) is None
    small = np.concatenate([[1.0], np.full(rounds - 1, 0.01)])  # stalled, but near an answer
    assert feed(DivergenceDetector(1.0, guaranteed=False), [0.5] * rounds, small) is None


@pytest.mark.parametrize("penalty", [1e2, 1e5])
def test_a_huge_penalty_is_slow_and_not_divergent(penalty):
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(200, 6))
    y = (matrix @ rng.normal(size=6) + rng.logistic(size=200) > 0).astype(float)
    problem = make_problem([matrix[:, :3], matrix[:, 3:]], y, lam=1e-2)
    result = solve(problem, SolverOptions(scheme="jacobi", penalty=penalty, max_rounds=350))
    assert result.status is not Status.DIVERGED

"""The default scheme on generated problems of every awkward kind, against an independent solver."""

import numpy as np
import pytest
from fastadmm.problem.problem import make_problem
from fastadmm.solver.history import Status
from fastadmm.solver.solver import SolverOptions, solve

import naive
from test_generated_penalties import blocks_of

KINDS = ("plain", "copies", "collinear", "zero block", "badly scaled", "sparse")
PROBLEMS_PER_TEST = 60


def generate(seed):
    """Blocks, targets, loss, lambda and intercept of one problem: 5 to 120 rows, 1 to 64 parties."""
    rng = np.random.default_rng(seed)
    loss = ("logistic", "squared")[seed % 2]
    n = int(rng.integers(5, 120))
    widths = rng.integers(1, 8, size=int(rng.choice([1, 2, 3, 5, 8, 16, 33, 64])))
    kind = KINDS[int(rng.integers(len(KINDS)))]
    blocks = blocks_of(kind, n, widths, 2, rng)
    z = sum(block @ rng.normal(size=block.shape[1]) / max(1.0, np.abs(block).max()) for block in blocks)
    y = z + rng.normal(size=n) if loss == "squared" else (z + rng.logistic(size=n) > 0).astype(float)
    if loss == "logistic" and y.min() == y.max():
        y[0] = 1.0 - y[0]
    return blocks, y, loss, 10.0 ** rng.uniform(-8, -1), bool(rng.integers(2))


@pytest.mark.parametrize(
    ("batch", "directions"), [(0, "auto"), pytest.param(1, "both", marks=pytest.mark.repeats)]
)
def test_the_default_is_certified_and_right(batch, directions):
    for seed in range(batch * PROBLEMS_PER_TEST, (batch + 1) * PROBLEMS_PER_TEST):
        blocks, y, loss, lam, intercept = generate(seed)
        problem = make_problem(blocks, y, loss=loss, lam=lam, fit_intercept=intercept)
        result = solve(problem, SolverOptions(max_rounds=200, n_threads=1, directions=directions))
        assert result.status is Status.CONVERGED, seed
        ones, zeros = np.ones(len(y)), np.zeros(len(y))
        best = naive.optimum(loss, np.hstack(blocks), y, lam, ones, zeros, intercept).objective
        rounding = 2e-14 * problem_scale(loss, y)
        for record in result.history:
            assert record.gap_absolute >= record.objective - best - rounding, seed
        # A fit that is nearly perfect ends at a gap that the objective at zero weights hides.
        assert result.objective - best <= 1e-6 * best + 1e-13 * problem_scale(loss, y), seed


def problem_scale(loss, y):
    """Objective at zero weights without an intercept: what rounding is relative to."""
    return float(np.log(2.0)) if loss == "logistic" else 0.5 * float(np.mean(y**2))

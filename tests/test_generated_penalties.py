"""The default scheme with kinks and sets on generated problems of every awkward kind, checked."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
from fastadmm.constraints import get_constraint
from fastadmm.history import Status
from fastadmm.problem import make_problem
from fastadmm.solver import SolverOptions, solve

KINDS = ("plain", "copies", "collinear", "zero block", "badly scaled", "sparse", "single columns")
PENALTIES = (
    ("l1", None),
    ("elastic_net", None),
    ("l1", "nonnegative"),
    ("l2", "nonnegative"),
    ("l2", "box:-0.2,0.3"),
    ("elastic_net", "box:-0.5,inf"),
)
PROBLEMS_PER_TEST = 12


def generate(seed):
    """Blocks, targets, lambda, regulariser and set of one problem: 5 to 120 rows, 1 to 64 parties."""
    rng = np.random.default_rng(10_000 + seed)
    n = int(rng.integers(5, 120))
    kind = KINDS[int(rng.integers(len(KINDS)))]
    parties = int(rng.choice([1, 2, 3, 5, 8, 16]))
    widths = rng.integers(1, 8, size=parties)
    if kind == "single columns":
        widths = np.ones(int(rng.choice([2, 16, 64])), dtype=int)
    blocks = [rng.normal(size=(n, d)) for d in widths]
    if kind == "copies":
        blocks = [blocks[0].copy() for _ in widths]
    elif kind == "collinear":
        for block in blocks:
            block[:, -1] = block[:, 0]
    elif kind == "zero block":
        blocks[int(rng.integers(len(blocks)))][:] = 0.0
    elif kind == "badly scaled":
        blocks = [block * 10.0 ** rng.uniform(-2, 2, size=block.shape[1]) for block in blocks]
    elif kind == "sparse":
        blocks = [np.where(rng.random(block.shape) < 0.8, 0.0, block) for block in blocks]
    z = sum(block @ rng.normal(size=block.shape[1]) / max(1.0, np.abs(block).max()) for block in blocks)
    y = z + rng.normal(size=n)
    return blocks, y, 10.0 ** rng.uniform(-8, -1), *PENALTIES[seed % len(PENALTIES)]


def least(X, y, lam, regularizer, constraint):
    """Optimum by bounded least squares: the square as rows, l1 as a linear term of split weights."""
    n, d = X.shape
    first, second = {"l1": (1.0, 0.0), "l2": (0.0, 1.0), "elastic_net": (0.5, 0.5)}[regularizer]
    low, high = get_constraint(constraint).bounds
    size = np.maximum(np.sqrt((X * X).sum(axis=0) / n), 1e-300)
    size[size <= 1e-300] = 1.0
    scaled = X / size

    def value(v):
        x = (v[:d] - v[d:]) / size
        r = X @ x - y
        smooth = 0.5 * (r @ r) / n + 0.5 * lam * second * (x @ x)
        slope = (scaled.T @ r) / n + lam * second * x / size
        l1 = lam * first / size
        return smooth + l1 @ (v[:d] + v[d:]), np.concatenate([slope + l1, l1 - slope])

    bounds = [(0.0, max(high * s, 0.0)) for s in size] + [(0.0, max(-low * s, 0.0)) for s in size]
    best = np.inf
    v = np.zeros(2 * d)
    for _ in range(3):
        found = scipy.optimize.minimize(
            value,
            v,
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": 20000, "maxfun": 40000, "ftol": 1e-15, "gtol": 1e-13, "maxcor": 40},
        )
        best, v = min(best, found.fun), found.x
    return best


@pytest.mark.parametrize("batch", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in range(1, 10))])
def test_the_default_is_certified_and_right(batch):
    for seed in range(batch * PROBLEMS_PER_TEST, (batch + 1) * PROBLEMS_PER_TEST):
        blocks, y, lam, regularizer, constraint = generate(seed)
        problem = make_problem(
            blocks,
            y,
            loss="squared",
            lam=lam,
            fit_intercept=False,
            regularizer=regularizer,
            constraint=constraint,
        )
        result = solve(problem, SolverOptions(max_rounds=4000, n_threads=1))
        assert result.status is Status.CONVERGED, seed
        best = least(np.hstack(blocks), y, lam, regularizer, constraint)
        rounding = 1e-13 * 0.5 * float(np.mean(y**2))
        assert result.objective <= best * (1 + 1e-6) + rounding, seed
        for record in result.history:
            assert record.gap_absolute >= record.objective - best - 1e-9 * best - rounding, seed

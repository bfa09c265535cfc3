"""The default scheme on generated problems of every convex kind, against an interior-point solver.

Losses with and without kinks, every regulariser and set that go together, 1 to 64 parties; blocks that are
copies, collinear, zero or single columns; more rows than columns and fewer; columns scaled by 1e-6 to 1e6.
"""

import itertools
import warnings
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from fastadmm.problem.constraints import get_constraint
from fastadmm.problem.losses import get_loss
from fastadmm.problem.problem import make_problem
from fastadmm.solver.history import Status
from fastadmm.solver.solver import SolverOptions, solve

import naive
from test_every_pair import terms

LOSSES = ("squared", "logistic", "hinge", "quantile", "huber", "squared_hinge", "poisson")
REGULARIZERS = ("l1", "elastic_net", "group_lasso", "l2", "none")
CONSTRAINTS = ("all", "nonnegative", "box:-0.4,0.6", "ball:0.8")
#: Every pair but ridge (see test_every_pair.py), group lasso in a box and none at all.
PAIRS = [
    pair
    for pair in itertools.product(REGULARIZERS, CONSTRAINTS)
    if pair not in (("l2", "all"), ("none", "all"), ("group_lasso", "box:-0.4,0.6"))
]
KINDS = ("plain", "copies", "collinear", "zero block", "badly scaled", "sparse", "single columns", "wide")

#: Accuracy of objectives, relative to the larger of 1 and the objective at zero weights.
ACCURACY = 1e-6

#: Most rounds, for every problem.
MAX_ROUNDS = 60

#: Rounding of an objective and of its bound, of the same scale: messages are combined.
ROUNDING = 1e-11


@dataclass
class Case:
    """One generated problem."""

    blocks: list[np.ndarray]
    y: np.ndarray
    loss: str
    lam: float
    regularizer: str
    constraint: str
    kind: str

    @property
    def edges(self):
        return np.cumsum([0] + [block.shape[1] for block in self.blocks])

    def value(self, x):
        """Objective at weights of shape (d,) in the set."""
        first, second = {
            "l1": (1.0, 0.0),
            "elastic_net": (0.5, 0.5),
            "l2": (0.0, 1.0),
            "none": (0.0, 0.0),
            "group_lasso": (0.0, 0.0),
        }[self.regularizer]
        own = first * np.abs(x).sum() + 0.5 * second * (x @ x)
        if self.regularizer == "group_lasso":
            parts = itertools.pairwise(self.edges)
            own = sum(np.sqrt(b - a) * np.linalg.norm(x[a:b]) for a, b in parts)
        losses = naive.value(get_loss(self.loss), np.hstack(self.blocks) @ x, self.y)
        return float(losses.mean() + self.lam * own)


def blocks_of(kind, n, widths, decades, rng):
    """Columns of an awkward kind, scaled over so many decades both ways."""
    blocks = [rng.normal(size=(n, d)) for d in widths]
    if kind == "copies":
        blocks = [blocks[0].copy() for _ in widths]
    elif kind == "collinear":
        for block in blocks:
            block[:, -1] = block[:, 0]
    elif kind == "zero block":
        blocks[int(rng.integers(len(blocks)))][:] = 0.0
    elif kind == "badly scaled":
        blocks = [block * 10.0 ** rng.uniform(-decades, decades, size=block.shape[1]) for block in blocks]
    elif kind == "sparse":
        blocks = [np.where(rng.random(block.shape) < 0.8, 0.0, block) for block in blocks]
    return blocks


def generate(seed):
    """A problem of 4 to 40 rows and at most 20 columns; of 64 where the parties are single columns."""
    rng = np.random.default_rng(20_000 + seed)
    regularizer, constraint = PAIRS[seed % len(PAIRS)]
    loss = LOSSES[(seed // len(PAIRS) + seed) % len(LOSSES)]
    kind = KINDS[int(rng.integers(len(KINDS)))]
    n = int(rng.integers(4, 40))
    parties = int(rng.choice([1, 2, 3, 5, 8]))
    widths = rng.integers(1, max(2, 20 // parties), size=parties)
    if kind == "single columns":
        widths = np.ones(int(rng.choice([2, 16, 64])), dtype=int)
    elif kind == "wide":
        n = int(rng.integers(4, 10))
    blocks = blocks_of(kind, n, widths, 6, rng)
    z = sum(block @ rng.normal(size=block.shape[1]) / max(1.0, np.abs(block).max()) for block in blocks)
    if loss in ("logistic", "hinge", "squared_hinge"):
        y = (z + rng.logistic(size=n) > 0).astype(float)
        if y.min() == y.max():
            y[0] = 1.0 - y[0]
    elif loss == "poisson":
        y = rng.poisson(np.exp(np.clip(z, -3.0, 3.0))).astype(float)
        y[0] += 1.0  # counts of nothing but zero have no best intercept
    else:
        y = z + rng.normal(size=n)
    return Case(blocks, y, loss, 10.0 ** rng.uniform(-8, -1), regularizer, constraint, kind)


def reference(case):
    """Objective at the feasible weights of an interior-point solver, and whether they are optimal.

    It is exact where it has quadratic and linear cones only: not for the logistic and the Poisson loss.
    """
    X, y = np.hstack(case.blocks), case.y
    n, d = X.shape
    size = np.sqrt((X * X).mean(axis=0))
    size[size == 0.0] = 1.0
    v = cp.Variable(d)
    x = cp.multiply(1.0 / size, v)  # the solver sees columns of one size
    z = (X / size) @ v
    parts = list(itertools.pairwise(case.edges))
    own: dict[str, Any] = {
        "l1": lambda: cp.norm1(x),
        "elastic_net": lambda: 0.5 * cp.norm1(x) + 0.25 * cp.sum_squares(x),
        "l2": lambda: 0.5 * cp.sum_squares(x),
        "none": lambda: 0.0,
        "group_lasso": lambda: sum(np.sqrt(b - a) * cp.norm(x[a:b]) for a, b in parts),
    }
    low, high = get_constraint(case.constraint).bounds
    inside = [v >= low * size] if np.isfinite(low) else []
    inside += [v <= high * size] if np.isfinite(high) else []
    if case.constraint.startswith("ball"):
        inside += [cp.norm(x[a:b]) <= 0.8 for a, b in parts]
    problem = cp.Problem(cp.Minimize(terms(case.loss, y)(z) / n + case.lam * own[case.regularizer]()), inside)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    assert v.value is not None
    found = v.value / size
    for a, b in parts:
        found[a:b] = get_constraint(case.constraint).project(found[a:b])
    return case.value(found), problem.status == "optimal" and case.loss not in ("logistic", "poisson")


@pytest.mark.parametrize(
    "seeds",
    [
        range(2),
        pytest.param(range(2, 40), marks=pytest.mark.repeats),
        *(pytest.param(range(start, start + 20), marks=pytest.mark.slow) for start in range(40, 320, 20)),
    ],
    ids=lambda seeds: f"{seeds.start}-{seeds.stop}",
)
def test_the_default_never_diverges_and_is_right(seeds):
    for seed in seeds:
        case = generate(seed)
        more = {"regularizer": case.regularizer, "constraint": case.constraint}
        problem = make_problem(case.blocks, case.y, loss=case.loss, lam=case.lam, fit_intercept=False, **more)
        result = solve(problem, SolverOptions(max_rounds=MAX_ROUNDS, n_threads=1))
        best, optimal = reference(case)
        scale = max(1.0, case.value(np.zeros(case.edges[-1])))
        assert result.status is not Status.DIVERGED, (seed, case)
        assert result.objective <= best + ACCURACY * scale, (seed, case)
        # Without a regulariser weights may grow for ever; their messages are rounded relative to the largest.
        terms = sum(float(np.abs(D * x).max(initial=0.0)) for D, x in zip(case.blocks, result.weights))
        assert result.objective == pytest.approx(
            case.value(np.concatenate(result.weights)), rel=ROUNDING, abs=ROUNDING * (scale + terms)
        )
        if optimal:
            assert result.objective >= best - ACCURACY * scale, (seed, case)
        for record in result.history:
            # The reference is feasible: no valid bound lies above it.
            assert record.objective - record.gap_absolute <= best + ROUNDING * scale, (seed, case)

"""Columns of very different sizes, uncentred: rounded predictors, so that objectives cannot order models."""

import numpy as np
import pytest
from fastadmm.problem.problem import make_problem
from fastadmm.solver.solver import SolverOptions, solve


def uneven(seed, loss):
    """Seven orders of magnitude between columns, means of up to 1e4."""
    rng = np.random.default_rng(seed)
    n, d, parties = int(rng.integers(40, 600)), int(rng.integers(4, 60)), int(rng.integers(1, 5))
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-3, 4, d)
    X += (rng.random(d) < 0.5) * 10.0 ** rng.uniform(0, 4, d)
    z = (X - X.mean(axis=0)) / X.std(axis=0) @ rng.normal(size=d)
    if loss in ("logistic", "hinge"):
        y = (z + 2.0 * rng.normal(size=n) > 0.0) * 1.0
    elif loss in ("poisson", "negative_binomial"):
        y = rng.poisson(np.exp(np.clip(z / 3.0, -3.0, 3.0))) * 1.0
    elif loss == "gamma":
        y = rng.gamma(2.0, np.exp(np.clip(z / 3.0, -3.0, 3.0))) + 1e-3
    else:
        y = z + rng.standard_t(2, size=n)
    lam = float(10.0 ** rng.uniform(-7, -1))
    blocks = np.array_split(X, parties, axis=1)
    return make_problem(blocks, y, lam=lam, loss=loss, fit_intercept=bool(seed % 3))


@pytest.mark.parametrize(
    ("seed", "loss"),
    [
        *((22, "logistic"), (154, "logistic"), (4, "poisson"), (50, "huber"), (122, "huber")),
        *((143, "negative_binomial"), (165, "gamma")),
    ],
)
def test_smooth_losses_are_certified(seed, loss):
    assert solve(uneven(seed, loss), SolverOptions(gap=1e-6, max_rounds=120)).gap <= 1e-6


@pytest.mark.parametrize(
    ("seed", "loss"),
    [
        *((55, "quantile"), (163, "quantile"), (247, "quantile"), (198, "hinge")),
        *((486, "hinge"), (328, "poisson")),
    ],
)
def test_losses_are_certified_where_predictors_round(seed, loss):
    """A narrow parabola at a kink, times large columns, makes much of a predictor's last digit."""
    assert solve(uneven(seed, loss), SolverOptions(gap=1e-6, max_rounds=200)).gap <= 1e-6


def uneven_classes(seed):
    """Five orders of magnitude between columns."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(60, 600)), int(rng.integers(4, 24))
    parties, classes = int(rng.integers(1, 4)), int(rng.integers(3, 6))
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-2, 3, d)
    X += (rng.random(d) < 0.5) * 10.0 ** rng.uniform(0, 3, d)
    z = (X - X.mean(axis=0)) / X.std(axis=0) @ rng.normal(size=(d, classes))
    y = (z + rng.gumbel(size=(n, classes)) - 0.7 * np.arange(classes)).argmax(axis=1)
    y = np.unique(y, return_inverse=True)[1].astype(float)
    lam, intercept = float(10.0 ** rng.uniform(-6, -2)), bool(seed % 3)
    blocks = np.array_split(X, parties, axis=1)
    return make_problem(blocks, y, lam=lam, loss="multinomial", fit_intercept=intercept)


@pytest.mark.parametrize("seed", [4, 22, 30, 42, 57, 78])
def test_several_classes_are_certified(seed):
    assert solve(uneven_classes(seed), SolverOptions(gap=1e-6, max_rounds=60)).gap <= 1e-6

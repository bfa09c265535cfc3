"""Columns far from zero, beside an intercept: what is proved is true, and nothing divides by zero."""

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm import SolverOptions, make_problem, solve

N, WIDTHS = 800, (12, 12)


def case(loss, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, sum(WIDTHS)))
    z = x @ rng.normal(size=x.shape[1]) * 0.4 + rng.logistic(size=N)
    return np.split(x, [WIDTHS[0]], axis=1), z if loss == "quantile" else (z > 0.0) * 1.0


@pytest.mark.representatives(4)
@pytest.mark.parametrize("regularizer", ["l2", "elastic_net", "group_lasso"])
@pytest.mark.parametrize("loss", ["hinge", "quantile", "logistic"])
def test_a_gap_is_a_bound_far_from_zero(loss, regularizer):
    """The intercept takes up what columns are shifted by: the optimum is that of centred columns."""
    for seed in range(4):
        centred, y = case(loss, seed)
        asked = {"loss": loss, "regularizer": regularizer, "lam": 1e-3}
        exact = solve(make_problem(centred, y, **asked), SolverOptions(gap=1e-9))
        far = solve(make_problem([1e6 + block for block in centred], y, **asked), SolverOptions(gap=1e-6))
        assert far.certified
        assert far.objective - exact.objective <= (1.01 * far.gap + 2e-9) * exact.objective


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("directions", ["auto", "one"])
def test_several_classes_far_from_zero(directions, sparse):
    rng = np.random.default_rng(5)
    centred, _ = case("logistic", 0)
    more = [sp.random_array((N, 300), density=0.02, rng=rng, format="csr")] if sparse else []
    z = sum(block @ rng.normal(size=(block.shape[1], 3)) for block in [*centred, *more])
    y = (z / z.std() + rng.gumbel(size=z.shape)).argmax(axis=1) * 1.0
    asked = {"loss": "multinomial", "lam": 1e-4}
    exact = solve(make_problem([*centred, *more], y, **asked), SolverOptions(gap=1e-9, max_rounds=100))
    assert exact.certified
    options = SolverOptions(gap=1e-6, directions=directions, max_rounds=100)
    far = solve(make_problem([*(1e6 + block for block in centred), *more], y, **asked), options)
    assert far.certified
    assert far.objective - exact.objective <= (1.01 * far.gap + 2e-9) * exact.objective


def test_a_hessian_of_rounding_ends_the_steps():
    """What the intercept leaves of a Gram matrix of 3e24 can be no number: steps end, and rounds go on."""
    rng = np.random.default_rng(3)
    steps, other = np.cumsum(rng.integers(1, 9, size=200)) * 1.0, rng.normal(size=200)
    block = np.column_stack([1.7e12 + steps, other])
    y = steps / steps.std() - 2.0 * other + 0.1 * rng.normal(size=200)
    for lam in (1e-3, 1e-6, 1e-9, 1e-12):
        problem = make_problem([block], y, loss="squared", regularizer="l2", lam=lam)
        assert solve(problem, SolverOptions(scheme="proximal", max_rounds=5)).history

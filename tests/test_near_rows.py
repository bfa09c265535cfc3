"""Rows near the bends of a loss: the same minimum over the span from few rows as from all."""

from dataclasses import replace

import numpy as np
import pytest
from fastadmm.coordinator.subspace import near_rows
from fastadmm.coordinator.subspace.near_rows import minimise_near_bends
from fastadmm.engine.engine import Engine
from fastadmm.method.span import SpanPoint, minimise_over_span
from fastadmm.method.span_hessian import SpanHessian
from fastadmm.problem.convex_losses import Huber, SmoothedHinge, SmoothedQuantile, SquaredHinge
from fastadmm.problem.problem import make_problem

N, K = 3000, 5

LOSSES = [SmoothedHinge(0.02), SmoothedQuantile(0.3, 0.05), Huber(0.05), SquaredHinge()]


def case(loss, intercept):
    rng = np.random.default_rng(5)
    V = rng.standard_normal((K, N))
    z = rng.standard_normal(K) @ V + rng.standard_normal(N)
    y = (z > 0.0) * 1.0 if loss.task == "classification" else z
    weight, offset = rng.uniform(0.0, 2.0, N), 0.1 * rng.standard_normal(N)
    problem = make_problem(
        [V.T], y, lam=1e-3, loss="squared", sample_weight=weight, offset=offset, fit_intercept=intercept
    )
    return replace(problem, loss=loss), V


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_a_loss_bends_between_its_ends_only(loss):
    problem, _ = case(loss, False)
    z = np.random.default_rng(6).normal(0.0, 2.0, N)
    ends = loss.bends(problem.y)
    assert ends is not None
    with Engine(1) as engine:
        curvature = loss.curvature(z, problem.y, np.ones(N), np.empty(N), engine)
    np.testing.assert_array_equal(curvature > 0.0, (z > ends[0]) & (z < ends[1]))


@pytest.mark.parametrize("tilted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_few_rows_find_the_minimum_over_all(loss, intercept, tilted, monkeypatch):
    """From afar, where many rows outside the first choice meet their bends, and from the minimum itself."""
    problem, V = case(loss, intercept)
    tilt = np.linspace(-2.0, 2.0, K) if tilted else None
    rows = []

    def watched(*arguments):
        rows.append(len(arguments[2]))  # type: ignore[arg-type]
        return on_few(*arguments)  # type: ignore[arg-type]

    on_few = near_rows._minimise_on
    monkeypatch.setattr(near_rows, "_minimise_on", watched)
    with Engine(1) as engine:
        start = SpanPoint(np.zeros(K), 0.0, np.zeros(N))
        best = minimise_over_span(problem, V, start, 1e-10, engine, tilt=tilt)
        hessian = SpanHessian(intercept)
        found = minimise_near_bends(problem, V, start, 1e-10, engine, hessian, tilt)
        again = minimise_near_bends(problem, V, best, 1e-10, engine, hessian, tilt)
    assert loss.name == "squared_hinge" or 0 < max(rows) < N // 2  # of the squared hinge too many bend
    for point in (found, again):
        np.testing.assert_allclose(point.coefficients, best.coefficients, atol=1e-5)
        np.testing.assert_allclose(point.total, point.coefficients @ V, atol=1e-10)
        assert point.intercept == pytest.approx(best.intercept, abs=1e-5)
        assert point.loss == pytest.approx(best.loss, rel=1e-6)
        assert point.gradient is not None

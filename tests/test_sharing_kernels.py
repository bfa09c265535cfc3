"""What the coordinator of ADMM sharing does row by row, and with states of several vectors, against NumPy."""

import numpy as np
import pytest
from fastadmm.engine.engine import Engine
from fastadmm.engine.rows import address_of
from fastadmm.engine.stacked import StackedRows
from fastadmm.kernels.sharing import (
    centres_in_metric,
    prox_in_metric,
)
from fastadmm.kernels.stacked import less_combination, products_in_metrics, replace_last, weighted_products
from fastadmm.problem.convex_losses import Huber, Logistic
from fastadmm.problem.log_link_losses import Poisson

START, STOP, N = 3, 1200, 1300
ROWS = slice(START, STOP)


def untouched(out):
    assert np.isnan(out[..., :START]).all()
    assert np.isnan(out[..., STOP:]).all()


def test_differences_and_what_is_left_of_a_combination():
    rng = np.random.default_rng(1)
    rows, (new, last) = rng.normal(size=(4, N)), rng.normal(size=(2, N))
    given, difference, out = last.copy(), np.full(N, np.nan), np.full(N, np.nan)
    other, both = rows[0].copy(), (difference, np.full(N, np.nan))
    replace_last((new, rows[1]), (given, other), both, START, STOP)
    np.testing.assert_array_equal(difference[ROWS], (new - last)[ROWS])
    np.testing.assert_array_equal(both[1][ROWS], (rows[1] - rows[0])[ROWS])
    np.testing.assert_array_equal(given[ROWS], new[ROWS])
    np.testing.assert_array_equal(other[ROWS], rows[1][ROWS])
    np.testing.assert_array_equal(given[STOP:], last[STOP:])
    less_combination(new, np.arange(4.0), rows, out, START, STOP)
    np.testing.assert_allclose(out[ROWS], (new - np.arange(4.0) @ rows)[ROWS], rtol=1e-12, atol=1e-13)
    untouched(difference)
    untouched(out)


@pytest.mark.parametrize("n", [10, 9_000])
def test_weighted_products_of_stacked_vectors(n):
    rng = np.random.default_rng(2)
    rows, v, weights = rng.normal(size=(4, 3 * n + 7)), rng.normal(size=3 * n + 7), np.array([2.0, 0.5])
    out = np.ones(4)
    weighted_products(rows, v, weights, n, out, 2, n - 1)
    expected = 1.0 + sum(
        w * rows[:, j * n + 2 : (j + 1) * n - 1] @ v[j * n + 2 : (j + 1) * n - 1]
        for j, w in enumerate(weights)
    )
    np.testing.assert_allclose(out, expected, rtol=1e-10, atol=1e-10)
    metrics, which, out = tuple(rng.random((2, n))), np.array([1, 0, 1]), np.ones(4)
    products_in_metrics(rows, v, metrics, which, n, out, 2, n - 1)
    expected = 1.0 + sum(
        rows[:, j * n + 2 : (j + 1) * n - 1] @ (metrics[m][2:-1] * v[j * n + 2 : (j + 1) * n - 1])
        for j, m in enumerate(which)
    )
    np.testing.assert_allclose(out, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("threads", [1, 3])
def test_stacked_rows(threads, idle_machine):
    rng, n = np.random.default_rng(2), 70_000
    u, v = rng.normal(size=(2, 3 * n + 7))
    with Engine(threads) as engine:
        stacked = StackedRows(engine, n)
        assert stacked.dot(u[: 3 * n], v[: 3 * n]) == pytest.approx(u[: 3 * n] @ v[: 3 * n], rel=1e-9)
        assert stacked.norm(v[: 2 * n]) == pytest.approx(np.linalg.norm(v[: 2 * n]))
        np.testing.assert_array_equal(stacked.difference(u, v), u - v)
        rows, metric = np.array([u, v]), rng.random(n)
        found = stacked.weighted_products(rows, v, [(slice(0, 2 * n), 3.0), (slice(2 * n, 3 * n), 0.5)])
        expected = rows[:, : 2 * n] @ (3.0 * v[: 2 * n]) + rows[:, 2 * n : 3 * n] @ (0.5 * v[2 * n : 3 * n])
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        found = stacked.weighted_products(rows, v, [(slice(0, 2 * n), metric)])
        np.testing.assert_allclose(found, rows[:, : 2 * n] @ (np.tile(metric, 2) * v[: 2 * n]), rtol=1e-9)


def test_centres_where_every_sample_has_a_penalty():
    rng = np.random.default_rng(0)
    total, u = rng.normal(size=(2, N))
    metric = rng.random(N) + 0.5
    weight = np.random.default_rng(3).random(N)
    out, r = np.full((2, N), np.nan), 0.3 * metric
    centres_in_metric(total, u, weight, 0.3, metric, *out, START, STOP)
    np.testing.assert_allclose(out[0, ROWS], (total + u / r)[ROWS], rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(out[1, ROWS], (weight / metric)[ROWS], rtol=1e-13)
    untouched(out)


@pytest.mark.parametrize("loss", [Logistic(), Huber(delta=0.7), Poisson()])
def test_prox_where_every_sample_has_a_penalty(loss):
    """The gradient at the new z is that of the sample's own penalty, and sums are of it."""
    rng = np.random.default_rng(3)
    centre, base, target = rng.normal(size=N), rng.normal(size=N), (rng.random(N) < 0.5) * 1.0
    (metric, weight), penalty, b = rng.uniform(0.5, 2.0, (2, N)), 0.3, 0.2
    kernels, extra, scaled = loss.kernels(), loss.kernel_arguments(), weight / metric
    z, u, sums = np.zeros(N), np.full(N, np.nan), np.array([1.0, 2.0])
    calls = (
        address_of(kernels.prox, (centre, base, target, scaled, extra, penalty, z, u, 0, 0)),
        address_of(kernels.evaluate, (z, target, weight, extra, u, 0, 0)),
        address_of(kernels.curvature, (z, target, weight, extra, u, 0, 0)),
    )
    given = centre, scaled, base, target, weight
    prox_in_metric(calls, extra, given, b, penalty, metric, z, u, sums, START, STOP)
    np.testing.assert_allclose(u[ROWS], (penalty * metric * (centre - z))[ROWS], rtol=1e-8, atol=1e-9)
    assert np.isnan(u[:START]).all()
    assert np.isnan(u[STOP:]).all()
    assert not z[:START].any()
    bent = np.empty(N)
    kernels.curvature(z + base + b, target, weight, extra, bent, START, STOP)
    rises = bent * penalty * metric / (penalty * metric + bent)
    np.testing.assert_allclose(sums, [1.0 + u[ROWS].sum(), 2.0 + rises[ROWS].sum()], rtol=1e-11)

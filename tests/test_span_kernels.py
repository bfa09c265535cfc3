"""A step in the span of messages, for every loss, and the kernels it is made of, against NumPy."""

import math
import os
from types import SimpleNamespace

import numpy as np
import pytest
from fastadmm.engine.engine import Engine, SomeRowsEngine
from fastadmm.engine.rows import address_of
from fastadmm.engine.stacked import StackedRows
from fastadmm.kernels.blas import routine
from fastadmm.kernels.fused_multiply_add import fma
from fastadmm.kernels.metric_drift import metric_drift
from fastadmm.kernels.policy import kernel
from fastadmm.kernels.sharing import (
    centres_in_metric,
    prox_in_metric,
)
from fastadmm.kernels.span import span_move, span_slopes
from fastadmm.kernels.span_hessian import span_border, span_hessian, span_products
from fastadmm.kernels.stacked import less_combination, products_in_metrics, replace_last, weighted_products
from fastadmm.kernels.vectors import (
    add_squares,
    chosen,
    products,
    shifted_sum,
    total_and_size,
)
from fastadmm.method.span_hessian import SpanHessian
from fastadmm.problem.convex_losses import Huber, Logistic
from fastadmm.problem.log_link_losses import Poisson
from fastadmm.problem.losses import LOSSES
from numba.core.errors import TypingError

import naive

SCALAR = [loss for loss in LOSSES.values() if not loss.vector and loss.weak_convexity == 0.0]
COMPILED = os.environ.get("NUMBA_DISABLE_JIT", "0") == "0"


def span(n_messages, n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n_messages, n)) * 0.3, rng.normal(size=n_messages), *rng.normal(size=(2, n))


def targets_of(loss, y, rng):
    """Numbers as targets that the loss takes."""
    if loss.link(1.0) is not None:
        return 1.0 + rng.poisson(2.0, len(y))
    return (y > 0) * 1.0 if loss.task == "classification" else y


@pytest.mark.representatives(8)
@pytest.mark.parametrize("n", [1, 31, 512, 1500])
@pytest.mark.parametrize("n_messages", [0, 1, 3, 4, 9])
def test_move_and_slopes(n_messages, n):
    messages, step, origin, base = span(n_messages, n)
    total, z = np.full(n, np.nan), np.full(n, np.nan)
    start, stop = n // 3, n
    span_move(messages, step, origin, base, 0.7, total, z, start, stop)
    expected = origin + step @ messages
    np.testing.assert_allclose(total[start:], expected[start:], rtol=0, atol=1e-13)
    np.testing.assert_allclose(z[start:], (base + expected + 0.7)[start:], rtol=0, atol=1e-13)
    assert np.isnan(total[:start]).all()
    assert np.isnan(z[:start]).all()

    out = np.ones(n_messages)
    span_slopes(messages, base, out, start, stop)
    np.testing.assert_allclose(out, 1.0 + messages[:, start:] @ base[start:], rtol=0, atol=1e-12)


@pytest.mark.representatives(5)
@pytest.mark.parametrize("loss", SCALAR, ids=lambda loss: loss.name)
def test_advance_is_move_evaluate_and_slopes(loss):
    n, n_messages = 9000, 6  # two pieces
    messages, step, origin, base = span(n_messages, n, seed=2)
    rng = np.random.default_rng(3)
    y = rng.normal(size=n)
    y = targets_of(loss, y, rng)
    weight = rng.random(n) + 0.1
    total, z, gradient, expected_gradient = np.empty((4, n))
    with Engine(2) as engine:
        rows = SimpleNamespace(y=y, weight=weight, offset=base)
        value, slopes, sums = loss.advance(messages, step, origin, rows, 0.2, total, z, gradient, engine)
        expected = loss.evaluate(base + origin + step @ messages + 0.2, y, weight, expected_gradient, engine)
    assert value == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(slopes, messages @ gradient, rtol=0, atol=1e-10)
    np.testing.assert_allclose(sums, [gradient.sum(), np.abs(gradient).sum()], rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(total, origin + step @ messages, rtol=0, atol=1e-13)


@pytest.mark.representatives(5)
@pytest.mark.parametrize(
    ("loss", "n"),
    [*((loss, 700) for loss in SCALAR), (SCALAR[0], 140_000)],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_a_loss_at_a_sum_of_messages_is_that_of_a_step_without_messages(loss, n):
    rng = np.random.default_rng(3)
    total, base, y, weight = *rng.normal(size=(3, n)), rng.random(n) + 0.1
    y = targets_of(loss, y, rng)
    z, gradient, expected_z, expected_gradient = np.empty((4, n))
    with Engine(2) as engine:
        rows = SimpleNamespace(y=y, weight=weight, offset=base)
        (sums,) = engine.together(loss.measure_parts(rows, total, 0.2, z, gradient, engine))
        given = np.empty((0, n)), np.empty(0), total, rows, 0.2, np.empty(n), expected_z
        value, _, (signed, size) = loss.advance(*given, expected_gradient, engine)
    np.testing.assert_array_equal(sums, [value, signed, size])
    np.testing.assert_array_equal(z, expected_z)
    np.testing.assert_array_equal(gradient, expected_gradient)
    np.testing.assert_allclose(z, base + total + 0.2, rtol=0, atol=1e-13)


@pytest.mark.skipif(not COMPILED, reason="only the compiled operation rounds once")
def test_fused_multiply_add_rounds_once():
    @kernel
    def one(a, b, c):
        return fma(a, b, c)

    # (1 + e)(1 - e) - 1 = -e^2, which two roundings lose.
    e = 2.0**-30
    assert one(1.0 + e, 1.0 - e, -1.0) == -(2.0**-60)


@pytest.mark.parametrize("lead", [0, 1])
@pytest.mark.parametrize("n_messages", [0, 1, 5, 30])
def test_hessian_over_the_span(lead, n_messages):
    n = 2500  # two blocks and a part of one
    messages = span(n_messages, n)[0]
    root = np.random.default_rng(1).random(n)
    out = np.ones((lead + n_messages, lead + n_messages))
    span_hessian(messages, root, lead, routine("dsyrk"), out, 100, n - 3)
    rows = np.vstack([np.ones((lead, n)), messages])[:, 100:-3]
    expected = 1.0 + naive.gram(rows.T, root[100:-3] ** 2)
    np.testing.assert_allclose(np.triu(out), np.triu(expected), rtol=0, atol=1e-11)


@pytest.mark.parametrize("known", [1, 4])
def test_products_of_new_messages_and_of_other_vectors(known):
    messages, _, gradient, curvature = span(5, 2500)
    out = np.ones((5, 6 - known))
    span_border(messages, known, curvature, gradient, routine("dgemm"), out, 100, 2490)
    rows = np.vstack([messages[known:] * curvature, gradient])
    expected = naive.products(messages[:, 100:2490], rows[:, 100:2490])
    np.testing.assert_allclose(out, 1.0 + expected, rtol=0, atol=1e-10)
    out = np.ones((5, 6 - known))
    span_products(messages, rows, routine("dgemm"), out, 100, 2490)
    np.testing.assert_allclose(out, 1.0 + expected, rtol=0, atol=1e-10)


@pytest.mark.skipif(not COMPILED, reason="only compiled kernels read by addresses")
def test_rows_that_are_apart_are_refused():
    with pytest.raises(TypingError, match="C-contiguous"):
        span_products(np.ones((4, 9))[::2], np.ones((2, 9)), routine("dgemm"), np.zeros((2, 2)), 0, 9)


@pytest.mark.parametrize("lead", [0, 1])
@pytest.mark.parametrize(("n_messages", "n_new"), [(7, 0), (7, 1), (7, 3), (7, 7), (1, 1), (2, 1), (40, 8)])
def test_extension_is_products_with_weighted_new_messages_and_gradient(n_messages, n_new, lead):
    n = 9000  # two leaves
    messages, _, gradient, curvature = span(n_messages, n, seed=11)
    curvature = np.abs(curvature)
    hessian = SpanHessian(intercept=bool(lead))
    with Engine(2) as engine, engine.limited():
        hessian.refresh(messages[: n_messages - n_new], curvature, engine)
        slopes = hessian.extend(messages, gradient, engine)
    rows = np.vstack([np.ones((lead, n)), messages])
    np.testing.assert_allclose(slopes, messages @ gradient, rtol=0, atol=1e-10)
    np.testing.assert_allclose(hessian.matrix, rows * curvature @ rows.T, rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("size", [0.0, 1e-3, 0.5, 300.0])
def test_drift_is_weighted_squares_of_logarithms(size):
    n, floor = 3000, 1e-3
    rng = np.random.default_rng(12)
    metric = rng.uniform(0.01, 1.0, n)
    curvature = metric * np.exp(size * rng.uniform(-1.0, 1.0, n))
    out, rows = np.zeros(3), slice(5, 2900)
    metric_drift(curvature, metric, floor, out, 5, 2900)
    h, m = np.maximum(curvature, floor)[rows], metric[rows]
    sums = [(h + m) @ np.log(h / m) ** 2, (h + m).sum(), curvature[rows].sum()]
    np.testing.assert_allclose(out, sums, rtol=1e-11, atol=1e-25)


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


FIRST = np.random.default_rng(0).normal(size=1000)
SECOND = np.random.default_rng(1).normal(size=1000)


def test_rows_and_numbers():
    out = np.full(1000, 7.0)
    shifted_sum(FIRST, 1.0, SECOND, 0.3, 1.0, out, 5, 900)
    assert np.array_equal(out[5:900], ((FIRST + SECOND) + 0.3)[5:900])
    shifted_sum(FIRST, -1.0, SECOND, 0.0, 0.25, out, 5, 900)
    assert np.array_equal(out[5:900], ((FIRST - SECOND) * 0.25)[5:900])
    assert (out[[*range(5), *range(900, 1000)]] == 7.0).all()
    vectors, places = (FIRST, SECOND), np.array([3, 4, 9, 30, 999])
    out = np.full((2, 5), np.nan)
    factors = np.array([1.0, 3.0])
    chosen(vectors, places, factors, out, 1, 4)
    for v, factor, own in zip(vectors, factors, out):
        assert np.array_equal(own[1:4], factor * v[places[1:4]])
        assert np.isnan(own[[0, 4]]).all()


@pytest.mark.parametrize("rows", [(0, 1000), (3, 4), (7, 71), (10, 10), (936, 1000)])
def test_sums_are_added_to_what_is_there(rows):
    out, own = np.array([1.0, 2.0]), FIRST[slice(*rows)]
    total_and_size(FIRST, out, *rows)
    # 64 running sums, then six levels: each number is rounded at most some twenty times.
    exact = np.array([1.0 + math.fsum(own), 2.0 + math.fsum(np.abs(own))])
    assert np.abs(out - exact).max() <= 30 * 2.0**-53 * (2.0 + np.abs(own).sum())


@pytest.mark.parametrize("n", [0, 1, 63, 64, 1000])
def test_products_depend_on_no_address(n):
    rng, found = np.random.default_rng(n), []
    rows, v = rng.normal(size=(3, 2, n)), rng.normal(size=(2, n))
    for before in (0, 1):
        for behind in (0, 1):
            own = np.pad(rows, ((0, 0), (0, 0), (before, behind)), constant_values=np.nan)
            other = np.pad(v, ((0, 0), (before, behind)), constant_values=np.nan)
            out = np.ones(3)
            products(own, other, out, before, before + n)
            found.append(tuple(out))
    assert len(set(found)) == 1
    exact = [1.0 + math.fsum((row * v).ravel()) for row in rows]
    np.testing.assert_allclose(found[0], exact, rtol=0, atol=1e-12)


@pytest.mark.parametrize("n", [1, 5, 600])
def test_squares_are_added_to_what_is_there(n):
    wide, out = np.random.default_rng(n).normal(size=(4, n + 2)), np.full(n + 2, 7.0)
    add_squares(wide, out, 1, n + 1)
    np.testing.assert_allclose(out[1:-1], 7.0 + (wide * wide).sum(axis=0)[1:-1], atol=1e-14)
    assert out[[0, -1]].tolist() == [7.0, 7.0]


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_number_is_seen(bad):
    spoilt = FIRST.copy()
    spoilt[400] = bad
    with Engine(1) as engine:
        assert not np.isfinite(engine.total(spoilt))


def test_an_engine_of_some_rows_has_the_other_do_its_work():
    rows, asked = np.arange(0, 70_000, 3), list[str]()

    class Whole(Engine):
        def over_rows(self, *given):
            asked.append("rows")
            super().over_rows(*given)

        def _into_leaves(self, *given):
            asked.append("sums")
            super()._into_leaves(*given)

    v, found = np.random.default_rng(0).normal(size=len(rows)), []
    for threads in (1, 2, 3):
        with Whole(threads) as whole:
            some = SomeRowsEngine(whole, rows, 70_000)
            doubled = some.plus(v, v)
            found.append(some.total(doubled))
        assert np.array_equal(doubled, 2.0 * v)
        assert asked == ["rows", "sums"]
        asked.clear()
    assert found[0] == found[1] == found[2]

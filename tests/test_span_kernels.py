"""A step in the span of messages, for every loss, and the kernels it is made of, against NumPy."""

import itertools
import os
from types import SimpleNamespace

import numpy as np
import pytest
from fastadmm.engine.engine import Engine
from fastadmm.kernels.blas import routine
from fastadmm.kernels.fused_multiply_add import fma
from fastadmm.kernels.metric_drift import metric_drift
from fastadmm.kernels.policy import kernel
from fastadmm.kernels.span import span_blocks, span_move, span_slopes
from fastadmm.kernels.span_hessian import span_border, span_hessian, span_products
from fastadmm.method.span_hessian import SpanHessian
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


@pytest.mark.parametrize("n_messages", [1, 40, 200])
def test_blocks_cover_the_range_once(n_messages):
    blocks = span_blocks(n_messages, 7, 20_000)
    assert blocks[0][0] == 7
    assert blocks[-1][1] == 20_000
    assert all(a[1] == b[0] and a[0] < a[1] for a, b in itertools.pairwise(blocks))


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


@pytest.mark.parametrize("bent", [0, 60, 8000])
def test_hessians_of_losses_with_flat_pieces_leave_out_what_does_not_bend(bent):
    messages, curvature = span(40, 9000)[0], np.zeros(9000)
    rng = np.random.default_rng(1)
    curvature[rng.permutation(9000)[:bent]] = rng.random(bent)
    hessian = SpanHessian(intercept=True)
    with Engine(2) as engine, engine.limited():
        hessian.refresh(messages, curvature, engine)
    rows = np.vstack([np.ones((1, 9000)), messages])
    np.testing.assert_allclose(hessian.matrix, rows * curvature @ rows.T, rtol=1e-12, atol=1e-11)


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

r"""Minimise over the span if the loss has curvature at few samples: Newton's method on the rows near these.

A loss whose derivative is a clamped line is linear at most samples once the sloping part is narrow. With the
set S of rows in or near it, and the loss of all others replaced by its tangent,

.. math:: \min_{c, b}\; \sum_{i \in S} s_i\, \ell(z_i) + \langle e, (b, c)\rangle + \frac{\lambda W}2 \|c\|^2,
          \qquad e = \sum_{i \notin S} g_i\, (1, V_{:i}),

bounds the objective from below (convexity), equals it at the start, and a step on it costs :math:`|S| / N` of
one on the objective. Its minimiser is that of the objective itself unless rows outside S have left their
linear piece; then a line search finds the best point on the way there. Either way S is chosen anew until the
slope over all rows is small enough: two passes over all messages for each choice.
"""

from __future__ import annotations

import math

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.engine.some_rows import SomeRowsEngine
from fastadmm.method.bent_rows import minimise_over_bends
from fastadmm.method.span import Here, SomeRows, Span, SpanPoint, minimise_over_span
from fastadmm.method.span_hessian import SpanHessian
from fastadmm.problem.problem import Problem

Array = np.ndarray

#: Size of S: at least this share of all rows, and so many times those with curvature at the start.
_LEAST_SHARE, _TIMES_BENDING = 1 / 16, 2.0

#: A larger share is no saving.
MOST_SHARE = 0.4

#: Choices of rows in one call.
_MOST_CHOICES = 12

#: If the decrease is less than this share of what S promises, other rows have left their linear piece.
_KEPT = 0.5


def minimise_near_bends(
    problem: Problem,
    messages: Array,
    point: SpanPoint,
    tolerance: float,
    engine: Engine,
    hessian: SpanHessian,
    tilt: Array | None = None,
) -> SpanPoint:
    """:func:`fastadmm.method.span.minimise_over_span` on few rows, if few have curvature."""
    ends = problem.loss.bends(problem.y)
    span, share, here = Span(problem, messages, engine, tilt), _LEAST_SHARE, None
    for _ in range(_MOST_CHOICES):
        z = problem.offset + point.total + point.intercept
        rows = None if ends is None else _near(z, *ends, share, engine)
        if rows is None:
            return minimise_over_span(problem, messages, point, tolerance, engine, hessian, tilt)
        if here is None:
            hessian.forget()
            here = _begun(span, point)
        found, promised = _minimise_on(span, here, rows, tolerance)
        step = span.between(here.point, found)
        trial = span.advance(here, step)
        if not here.value - trial.value >= _KEPT * promised:
            share *= 2.0
            trial = span.advance(here, span.best_length(here, step, trial) * step)
        if not trial.value < here.value:
            break
        here, point = trial, trial.point
        if span.gap_share(here) <= tolerance:
            break
    return point


def _near(z: Array, low: Array, high: Array, share: float, engine: Engine) -> Array | None:
    """Numbers of the local rows whose predictors are nearest to where the loss has curvature, ties included.

    None if too many rows have curvature.
    """
    distance, all_rows = np.maximum(low - z, z - high), engine.all_rows(len(z))
    bending = float(engine.total((distance <= 0.0) * 1.0))
    most = MOST_SHARE * all_rows
    n = max(int(share * all_rows), int(_TIMES_BENDING * bending))
    if n > most:
        return None
    near = distance <= engine.smallest(distance, n)
    return None if float(engine.total(near * 1.0)) > most + 1.0 else np.flatnonzero(near)


def _begun(span: Span, point: SpanPoint) -> Here:
    """The point with loss, gradient and slope."""
    if point.gradient is None or not math.isfinite(point.loss):
        point = span.evaluated(point)
    return _with_slope(span, point)


def _with_slope(span: Span, point: SpanPoint) -> Here:
    gradient = point.gradient
    assert gradient is not None
    return span.here(point, span.engine.dot(span.messages, gradient))


def _columns(messages: Array, rows: Array, engine: Engine) -> Array:
    """Some columns of messages, read leaf by leaf because messages may be in a scratch file."""
    few = np.empty((len(messages), len(rows)))

    def piece(part: tuple[int, int]) -> None:
        start, stop = np.searchsorted(rows, part)
        few[:, start:stop] = messages[:, rows[start:stop]]

    engine.by_leaf(piece, engine.leaves(messages.shape[1]), light=True)
    return few


def _minimise_on(span: Span, here: Here, rows: Array, tolerance: float) -> tuple[SpanPoint, float]:
    """The minimiser with all other rows linear, and the decrease to it."""
    problem, point, engine = span.problem, here.point, span.engine
    assert point.gradient is not None
    assert isinstance(problem, Problem)
    few = _columns(span.messages, rows, engine)
    engine = SomeRowsEngine(engine, rows, len(point.total))
    some = SomeRows.of(problem, rows, engine)
    near = Span(some, few, engine)
    own = near.evaluated(SpanPoint(point.coefficients, point.intercept, point.total[rows]))
    assert own.gradient is not None
    start = _with_slope(near, own)
    tilt = here.slope - start.slope
    near = Span(some, few, engine, tilt)
    found = minimise_over_bends(some, few, own, tolerance, engine, tilt)
    return found, near.value_at(own) - near.value_at(found)

"""The span of few rows: all of Newton's steps in one compiled call.

Whether the rows of a problem are a single leaf depends neither on threads nor on processes. So this method is
chosen by the size of the data alone.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.engine.rows import address_of
from fastadmm.engine.tree import leaves_of
from fastadmm.method.span_hessian import SpanHessian
from fastadmm.problem.problem import Problem


def is_one_leaf(problem: Any, engine: Engine) -> bool:
    """Whether all rows of a problem are one leaf; never for a subset of rows, which may be anywhere."""
    return isinstance(problem, Problem) and leaves_of(engine.all_rows(problem.n_samples)) == 1


def newton_on_one_leaf(
    span: Any, here: Any, tolerance: float, hessian: SpanHessian, fresh: bool, limits: tuple[Any, ...]
) -> tuple[tuple[Any, ...], bool]:
    """Newton's method as in :func:`fastadmm.method.span.minimise_over_span`."""
    from fastadmm.kernels.blas import routine
    from fastadmm.kernels.loss_loops import curvature_at
    from fastadmm.kernels.span_hessian import span_hessian
    from fastadmm.kernels.span_newton import BEST, HERE, LONG, RENEWED, SLOTS, newton_over_span

    problem, messages, lead, point = span.problem, span.messages, span.lead, here.point
    k, n, kernels = len(messages), len(point.total), problem.loss.kernels()
    extra, nothing, syrk = problem.loss.kernel_arguments(), np.empty(0), routine("dsyrk")
    points, slopes = np.empty((SLOTS, 1 + k)), np.empty((SLOTS, lead + k))
    totals, gradients, numbers = np.empty((SLOTS, n)), np.empty((SLOTS, n)), np.empty((SLOTS, 4))
    matrix = np.empty((lead + k, lead + k)) if fresh else hessian.matrix.copy(order="C")
    bend = np.empty(n)
    points[0, 0], points[0, 1:] = point.intercept, point.coefficients
    totals[0], gradients[0] = point.total, point.gradient
    numbers[0] = point.loss, here.value, *(point.sums or span.engine.total_and_size(point.gradient))
    slopes[0] = here.slope
    given = problem.offset, problem.y, problem.weight
    told = told_of_steps(span, limits)
    state = np.empty((SLOTS, k + 3)), points, slopes, numbers, matrix
    memory = memory_of_steps(lead + k, fresh, not fresh, tolerance, limits[0])
    curve = address_of(kernels.curvature, (bend, *given[1:], extra, bend, 0, 0))
    at = curve, given[0], bend, 0.0, *given[1:], extra, bend, bend, nothing
    move = messages, bend, bend, given[0], 0.0, *given[1:], extra
    calls = (
        address_of_next_step(limits),
        address_of(kernels.advance, (*move, bend, bend, bend, nothing, 0, 0)),
        address_of(curvature_at, (*at, 0, 0)),
        curve,
        address_of(span_hessian, (messages, bend, lead, syrk, matrix, 0, 0)),
        syrk,
    )
    newton_over_span(calls, messages, given, extra, (totals, gradients, bend), told, state, memory)
    control = memory[0]
    if control[RENEWED]:
        hessian.matrix, hessian.reference = matrix, bend
    long = bool(control[LONG])
    best = int(control[HERE if long else BEST])
    loss, _, *sums = numbers[best].tolist()
    found = points[best, 1:].copy(), points[best, 0].item(), totals[best].copy(), loss, gradients[best].copy()
    products = slopes[best, lead:] - told[3][lead:] - span.scale * found[0]
    return (*found, (sums[0], sums[1]), products), not long


def told_of_steps(span: Any, limits: tuple[Any, ...]) -> tuple[Any, Any, Any, Any]:
    """The first arguments of :func:`fastadmm.kernels.span_newton.next_step`."""
    from fastadmm.kernels.blas import lapack

    tilt = np.zeros(span.lead + span.n_messages) if span.tilt is None else span.tilt
    about = int(span.lead), float(span.scale), float(span.problem.total_weight)
    return (lapack("dpotrf"), lapack("dpotrs")), about, limits, tilt


@lru_cache(maxsize=8)
def address_of_next_step(limits: tuple[Any, ...]) -> Any:
    """Address of :func:`fastadmm.kernels.span_newton.next_step`, with arguments of fixed types."""
    from fastadmm.kernels.span_newton import next_step

    vector, table, told = np.empty(0), np.empty((0, 0)), ((0, 0), (0, 0.0, 0.0), limits)
    state = table, table, table, table, table
    return address_of(next_step, (*told, vector, state, memory_of_steps(0, True, True, 0.0, 0)))


def memory_of_steps(n: int, fresh: bool, known: bool, tolerance: float, most: int) -> tuple[Any, ...]:
    """The memory of :func:`fastadmm.kernels.span_newton.next_step` before the first step."""
    from fastadmm.kernels.span_newton import (
        CONTROLS,
        ENOUGH,
        FRESH,
        HESSIAN,
        NUMBERS,
        PASS,
        RENEWED,
        START,
        STEP,
        WANTED,
    )
    from fastadmm.kernels.vectors import LANES

    control, proved = np.zeros(CONTROLS, dtype=np.int64), np.empty(NUMBERS)
    control[FRESH], control[RENEWED], control[START] = fresh, fresh, not known
    control[WANTED] = (HESSIAN if fresh else STEP) if known else PASS
    proved[ENOUGH] = tolerance
    solving = np.empty(n), np.empty((n, n)), np.empty(n), np.empty(n)
    return control, proved, (*solving, np.empty((2, most, n)), np.empty(most), np.empty(n), np.empty(LANES))

"""The span of few rows: all of Newton's steps in one compiled call.

A problem of one leaf is one leaf for every number of threads, in whatever process its rows are. So who takes
this way follows from the size of the data alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fastadmm.coordinator.subspace.span_hessian import SpanHessian
from fastadmm.engine.engine import Engine
from fastadmm.engine.rows import address_of
from fastadmm.engine.tree import leaves_of
from fastadmm.problem.problem import Problem

__all__ = ["is_one_leaf", "newton_on_one_leaf"]


def is_one_leaf(problem: Any, engine: Engine) -> bool:
    """Whether all rows of a problem are one leaf; never of some rows of a problem, which may lie anywhere."""
    return isinstance(problem, Problem) and leaves_of(engine.all_rows(problem.n_samples)) == 1


def newton_on_one_leaf(
    span: Any, here: Any, tolerance: float, hessian: SpanHessian, fresh: bool, limits: tuple[Any, ...]
) -> tuple[tuple[Any, ...], bool]:
    """Newton's method as of :func:`fastadmm.coordinator.subspace.span.descend`.

    Parameters
    ----------
    span : Span
    here : Here
        The start, with loss and gradient; its slope counts for nothing where ``fresh`` is wanted.
    tolerance : float
    hessian : SpanHessian
        Changed.
    fresh : bool
        Whether it is to be that of the start.
    limits : tuple
        As of :func:`fastadmm.kernels.span_newton.newton_over_span`.

    Returns
    -------
    point : tuple
        What a ``SpanPoint`` holds.
    ended : bool
        Otherwise the minimiser along the next step from there is wanted.
    """
    from fastadmm.kernels.blas import lapack, routine
    from fastadmm.kernels.span_hessian import span_hessian
    from fastadmm.kernels.span_newton import SLOTS, newton_over_span

    problem, messages, lead, point = span.problem, span.messages, span.lead, here.point
    k, n, kernels, extra = (
        len(messages),
        len(point.total),
        problem.loss.kernels(),
        problem.loss.kernel_arguments(),
    )
    points, slopes = np.empty((SLOTS, 1 + k)), np.empty((SLOTS, lead + k))
    totals, gradients, numbers = np.empty((SLOTS, n)), np.empty((SLOTS, n)), np.empty((SLOTS, 4))
    matrix = np.empty((lead + k, lead + k)) if fresh else hessian.matrix.copy(order="C")
    bend = np.empty(n)
    points[0, 0], points[0, 1:] = point.intercept, point.coefficients
    totals[0], gradients[0] = point.total, point.gradient
    numbers[0] = point.loss, here.value, *(point.sums or span.engine.total_and_size(point.gradient))
    slopes[0] = here.slope
    given, syrk = (problem.offset, problem.y, problem.weight), routine("dsyrk")
    ends = totals[0], bend, gradients[0], bend
    calls = (
        address_of(kernels.advance, (messages, bend, bend, given[0], 0.0, *given[1:], *extra, *ends, 0, 0)),
        address_of(kernels.curvature, (bend, *given[1:], *extra, bend, 0, 0)),
        address_of(span_hessian, (messages, bend, lead, syrk, matrix, 0, 0)),
        syrk,
        lapack("dpotrf"),
        lapack("dpotrs"),
    )
    tilt = np.zeros(lead + k) if span.tilt is None else span.tilt
    about = lead, span.scale, problem.total_weight, tolerance, tilt, fresh
    state = points, slopes, numbers, totals, gradients, matrix, bend
    best, ended, renewed = newton_over_span(calls, messages, given, extra, limits, *about, state)
    if renewed:
        hessian.matrix, hessian.reference = matrix, bend
    loss, _, *sums = numbers[best].tolist()
    found = points[best, 1:].copy(), points[best, 0].item(), totals[best].copy(), loss, gradients[best].copy()
    products = slopes[best, lead:] - tilt[lead:] - span.scale * found[0]
    return (*found, (sums[0], sums[1]), products), ended

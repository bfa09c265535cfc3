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

__all__ = ["address_of_next_step", "controls", "is_one_leaf", "newton_on_one_leaf"]

Array = np.ndarray


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
    from fastadmm.kernels.curvature_at import curvature_at
    from fastadmm.kernels.span_hessian import span_hessian
    from fastadmm.kernels.span_newton import NUMBERS, SLOTS, newton_over_span

    problem, messages, lead, point = span.problem, span.messages, span.lead, here.point
    k, n, kernels = len(messages), len(point.total), problem.loss.kernels()
    extra, nothing = problem.loss.kernel_arguments(), np.empty(0)
    points, slopes = np.empty((SLOTS, 1 + k)), np.empty((SLOTS, lead + k))
    totals, gradients, numbers = np.empty((SLOTS, n)), np.empty((SLOTS, n)), np.empty((SLOTS, 4))
    matrix = np.empty((lead + k, lead + k)) if fresh else hessian.matrix.copy(order="C")
    bend = np.empty(n)
    points[0, 0], points[0, 1:] = point.intercept, point.coefficients
    totals[0], gradients[0] = point.total, point.gradient
    numbers[0] = point.loss, here.value, *(point.sums or span.engine.total_and_size(point.gradient))
    slopes[0] = here.slope
    tilt = np.zeros(lead + k) if span.tilt is None else span.tilt
    given, syrk, libraries = (
        (problem.offset, problem.y, problem.weight),
        routine("dsyrk"),
        (lapack("dpotrf"), lapack("dpotrs")),
    )
    curve = address_of(kernels.curvature, (bend, *given[1:], *extra, bend, 0, 0))
    at = curve, given[0], bend, 0.0, *given[1:], extra, bend, bend, nothing
    move = messages, bend, bend, given[0], 0.0, *given[1:], *extra
    calls = (
        address_of_next_step(libraries, limits),
        address_of(kernels.advance, (*move, bend, bend, bend, nothing, 0, 0)),
        address_of(curvature_at, (*at, 0, 0)),
        curve,
        address_of(span_hessian, (messages, bend, lead, syrk, matrix, 0, 0)),
        syrk,
    )
    about = lead, span.scale, problem.total_weight, tolerance, tilt
    memory = controls(fresh, not fresh), np.empty(NUMBERS)
    state = points, slopes, numbers, totals, gradients, matrix, bend, *memory
    best, ended, renewed = newton_over_span(calls, libraries, messages, given, extra, limits, *about, state)
    if renewed:
        hessian.matrix, hessian.reference = matrix, bend
    loss, _, *sums = numbers[best].tolist()
    found = points[best, 1:].copy(), points[best, 0].item(), totals[best].copy(), loss, gradients[best].copy()
    products = slopes[best, lead:] - tilt[lead:] - span.scale * found[0]
    return (*found, (sums[0], sums[1]), products), ended


def controls(fresh: bool, known: bool) -> Array:
    """What Newton's method remembers before the first step, of shape (CONTROLS,).

    Parameters
    ----------
    fresh : bool
        Whether the Hessian is to be computed for it.
    known : bool
        Whether objective and slope are known where it begins.
    """
    from fastadmm.kernels.span_newton import CONTROLS, FRESH, HESSIAN, PASS, RENEWED, START, STEP, WANTED

    control = np.zeros(CONTROLS, dtype=np.int64)
    control[FRESH], control[RENEWED], control[START] = fresh, fresh, not known
    control[WANTED] = (HESSIAN if fresh else STEP) if known else PASS
    return control


def address_of_next_step(libraries: tuple[int, int], limits: tuple[Any, ...]) -> Any:
    """Address of :func:`fastadmm.kernels.span_newton.next_step`, the same for all spans.

    Parameters
    ----------
    libraries, limits : tuple
        As there.
    """
    from fastadmm.kernels.span_newton import next_step

    vector, table = np.empty(1), np.empty((1, 1))
    work = vector, table, vector, vector, np.empty((1, 1, 1)), vector, vector, vector
    told = libraries, (0, 0.0, 0.0), limits, (0.0, 0.0), vector, table, table, table, table, table
    return address_of(next_step, (*told, controls(False, True), vector, work))

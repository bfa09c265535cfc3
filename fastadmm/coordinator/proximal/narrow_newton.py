r"""The best weights of few columns: proximal Newton steps on the Gram matrix of all.

With the columns of all parties as rows of V, a step minimises the parabola that touches the loss, and the
penalty itself,

.. math:: \min_x\; \langle s, x\rangle + \tfrac12 (x - c)^\top V H V^\top (x - c) + h(x),

by coordinate descent, which never reads a row (Friedman, Hastie and Tibshirani 2010; Yuan, Ho and Lin 2012
search along the step). The Hessian is kept while steps contract. An intercept is eliminated: of its own
minimiser nothing is left but a smaller Hessian.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fastadmm.coordinator.proximal.small_steps import NOTHING, change_along, change_to
from fastadmm.coordinator.subspace.span import Here, SomeRows, Span, SpanPoint
from fastadmm.coordinator.subspace.span_hessian import SpanHessian
from fastadmm.parties.xupdate.gram_descent import minimise_on_gram
from fastadmm.problem.penalty import PartyPenalty
from fastadmm.problem.problem import Problem

__all__ = ["loss_alone", "minimise_over_all_columns"]

Array = np.ndarray

_MAX_STEPS, _SHORTEST = 60, 0.5**40

#: A gap of so many times the goal is small: the goal is a thousandth of the wanted gap.
_OF_GAP = 30.0

#: Share of the promised decrease that a step must keep, and of the last promise that the next may be with
#: the same Hessian.
_ARMIJO, _CONTRACTION = 1e-4, 0.1


def loss_alone(problem: Problem) -> SomeRows:
    """What the span needs of a problem whose penalty is added elsewhere."""
    whole = problem.y, problem.weight, problem.offset, 0.0, problem.total_weight, problem.fit_intercept
    return SomeRows(problem.loss, *whole)


def minimise_over_all_columns(
    problem: Problem,
    penalty: PartyPenalty,
    span: Span,
    point: SpanPoint,
    goal: float,
    hessian: SpanHessian,
) -> SpanPoint:
    """Proximal Newton steps from a point; never returns a worse one.

    Parameters
    ----------
    problem : Problem
        With a smooth convex loss and one predictor per sample.
    penalty : PartyPenalty
        Of every party: a sum over columns.
    span : Span
        Of :func:`loss_alone`, over the columns of all parties.
    point : SpanPoint
        Weights of all parties in the set, with loss and gradient.
    goal : float
        A step that promises no more than this is the last. Summed scaling.
    hessian : SpanHessian
        Kept from call to call; changed.

    Returns
    -------
    SpanPoint
    """
    lead, scale = span.lead, (*penalty.coefficients, *penalty.constraint.bounds)
    l1, l2 = scale[:2]

    def moved(here: Here) -> tuple[Array, Array, float]:
        """Where the parabola is least, the step there, and the decrease that it promises."""
        c = here.point.coefficients
        x, rise = _least(hessian.matrix, here.slope, c, scale, lead, problem.n_samples)
        step = np.append(np.full(lead, rise), x - c)
        return x, step, -change_along(here.slope, step, c, x, l1, l2)

    def kept(trial: Here, length: float) -> bool:
        """Whether a step of a length keeps its promise."""
        given = length * step, here.point.coefficients, trial.point.coefficients, l1, l2, promised
        return change_to(here, trial, *given) <= -_ARMIJO * length * promised

    fresh = hessian.reference is None or hessian.n_messages < span.n_messages
    here = span.refreshed(point, hessian) if fresh else span.start(point, hessian)
    x, step, promised = moved(here)
    for _ in range(_MAX_STEPS):
        if not promised > NOTHING * abs(here.value):
            if fresh:
                break
        else:
            trial, length = _at(span.advance(here, step), x), 1.0
            good = kept(trial, length)
            while fresh and not good:
                length *= 0.5
                if length < _SHORTEST:
                    return here.point
                trial = span.advance(here, length * step)
                good = kept(trial, length)
            if good:
                here, last, fresh = trial, promised, False
                if promised <= goal:
                    break
                x, step, promised = moved(here)
                # A step gains the square of a slope, in which the gap may be linear.
                whole = abs(here.value) + l1 * float(np.abs(here.point.coefficients).sum())
                if promised * whole <= (_OF_GAP * goal) ** 2:
                    break
                if promised <= _CONTRACTION * last:
                    continue
        span.renew(hessian, here.point)
        fresh = True
        x, step, promised = moved(here)
    return here.point


def _at(here: Here, x: Array) -> Here:
    """The end of a whole step, whose weights are on their kinks exactly."""
    return replace(here, point=replace(here.point, coefficients=x))


def _least(
    matrix: Array, slope: Array, c: Array, scale: tuple[float, float, float, float], lead: int, n_samples: int
) -> tuple[Array, float]:
    """Weights and change of the intercept where parabola and penalty are least."""
    if not lead:
        return minimise_on_gram(matrix, slope, c, scale, c, n_samples), 0.0
    own, cross, first = float(matrix[0, 0]), matrix[0, 1:], float(slope[0])
    if not own > 0.0:  # saturated losses have no curvature left
        return minimise_on_gram(np.ascontiguousarray(matrix[1:, 1:]), slope[1:], c, scale, c, n_samples), 0.0
    rest = matrix[1:, 1:] - np.outer(cross, cross / own)
    x = minimise_on_gram(rest, slope[1:] - cross * (first / own), c, scale, c, n_samples)
    return x, -(first + float(cross @ (x - c))) / own

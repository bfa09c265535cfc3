r"""The best weights of few columns: proximal Newton steps on the Gram matrix of all.

With all columns as rows of V, a step minimises the parabola that touches the loss, and the
penalty itself,

.. math:: \min_x\; \langle s, x\rangle + \tfrac12 (x - c)^\top V H V^\top (x - c) + h(x),

by coordinate descent, which never reads a row (Friedman, Hastie and Tibshirani 2010; Yuan, Ho and Lin 2012
search along the step). The Hessian is kept while steps contract. An intercept is eliminated: of its own
minimiser nothing is left but a smaller Hessian.

What a step changes is added up weight by weight where the objective's own rounding would hide it.
A slope that keeps a relative gap of 1e-6 open may promise as little as 1e-20 of the objective: with a norm
the gap is linear in the slope, and a step gains its square. The difference of two objectives cannot
show that. Half the sum of the slopes at both ends of a short step, times the step, keeps all digits of it.
"""

import math
from dataclasses import replace
from typing import Protocol

import numpy as np

from fastadmm.method.span import Here, SomeRows, Span, SpanPoint
from fastadmm.method.span_hessian import SpanHessian
from fastadmm.parties.xupdate.gram_descent import minimise_on_gram
from fastadmm.problem.penalty import PartyPenalty
from fastadmm.problem.problem import Problem

Array = np.ndarray

_MAX_STEPS, _SHORTEST = 60, 0.5**40

#: Violations that a minimiser of the parabola leaves, as a share of the root of the promised decrease, which
#: is a square of slopes; how many times more are as good; and at least and at most.
_INEXACT, _AS_GOOD, _FINEST, _COARSEST = 0.01, 10.0, 1e-14, 1e-4

#: A gap of so many times the goal is small: the goal is a thousandth of the wanted gap.
_OF_GAP = 30.0

#: Share of the promised decrease that a step must keep, and of the last promise that the next may be with
#: the same Hessian.
_ARMIJO, _CONTRACTION = 1e-4, 0.1

#: With so few columns a Hessian costs no more than a step: the next promise may be this share at most.
_FEW_COLUMNS, _CONTRACTION_OF_FEW = 32, 0.01


def loss_alone(problem: Problem) -> SomeRows:
    """What the span needs of a problem whose penalty is added elsewhere."""
    whole = problem.y, problem.weight, problem.offset, 0.0, problem.total_weight, problem.fit_intercept
    return SomeRows(problem.loss, *whole)


def of_promise(promised: float, objective: float) -> float:
    """The goal, as of :func:`minimise_over_all_columns`, that a last step reaches which promises so much."""
    # The root of a product, of which neither the product nor a square of the root need be a double.
    return math.sqrt(max(promised, 0.0)) * math.sqrt(abs(objective)) / _OF_GAP


def minimise_over_all_columns(
    problem: Problem, penalty: PartyPenalty, span: Span, point: SpanPoint, goal: float, hessian: SpanHessian
) -> SpanPoint:
    """Proximal Newton steps from a point; never returns a worse one. Scaling: goal summed scaling."""
    lead, scale = span.lead, (*penalty.coefficients, *penalty.constraint.bounds)
    l1, l2 = scale[:2]
    exact = problem.loss.name == "squared"  # the parabola is the loss

    def whole(here: Here) -> float:
        """The objective, but for the square."""
        return abs(here.value) + l1 * float(np.abs(here.point.coefficients).sum())

    def is_last(here: Here, promised: float) -> bool:
        """Whether the gap is small: it may be linear in slopes, whose squares steps gain."""
        return of_promise(promised, whole(here)) <= goal

    def moved(here: Here) -> tuple[Array, Array, float]:
        """Where the parabola is least, the step there, and the decrease that it promises."""
        x = c = here.point.coefficients
        value = whole(here) or math.inf
        finest = max(goal / value, _FINEST)
        tolerance = _AS_GOOD * finest if exact else _COARSEST
        while True:
            x, rise = _least(hessian.matrix, here.slope, c, x, scale, lead, problem.n_samples, tolerance)
            step = np.append(np.full(lead, rise), x - c)
            promised = -change_along(here.slope, step, c, x, l1, l2)
            asked = max(_INEXACT * math.sqrt(max(promised, 0.0) / value), finest)
            if not tolerance > _AS_GOOD * asked:  # nor where rounding leaves no number to promise
                return x, step, promised
            tolerance = asked

    def kept(trial: Here, length: float) -> bool:
        """Whether a step of a length keeps its promise."""
        given = length * step, here.point.coefficients, trial.point.coefficients, l1, l2, promised
        return change_to(here, trial, *given) <= -_ARMIJO * length * promised

    contraction = _CONTRACTION_OF_FEW if span.n_messages <= _FEW_COLUMNS else _CONTRACTION
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
                x, step, promised = moved(here)
                if is_last(here, promised):
                    break
                if promised <= contraction * last:
                    continue
                if last <= goal:
                    break
        span.renew(hessian, here.point)
        fresh = True
        x, step, promised = moved(here)
    return here.point


def _at(here: Here, x: Array) -> Here:
    """The end of a whole step, whose weights are on their kinks exactly."""
    return replace(here, point=replace(here.point, coefficients=x))


def _least(
    matrix: Array,
    slope: Array,
    c: Array,
    start: Array,
    scale: tuple[float, float, float, float],
    lead: int,
    n_samples: int,
    tolerance: float,
) -> tuple[Array, float]:
    """Weights and change of the intercept where parabola and penalty are least."""
    told = c, scale, start, n_samples, tolerance
    if not lead:
        return minimise_on_gram(matrix, slope, *told), 0.0
    own, cross, first = float(matrix[0, 0]), matrix[0, 1:], float(slope[0])
    if not own > 0.0:  # saturated losses have no curvature left
        return minimise_on_gram(np.ascontiguousarray(matrix[1:, 1:]), slope[1:], *told), 0.0
    rest = matrix[1:, 1:] - np.outer(cross, cross / own)
    x = minimise_on_gram(rest, slope[1:] - cross * (first / own), *told)
    return x, -(first + float(cross @ (x - c))) / own


#: The gain of a step that promises less than this share of the loss is hidden by the loss's rounding; a step
#: that promises less than this share of the objective gains nothing.
FLAT, NOTHING = 1e-13, 1e-28


class Place(Protocol):
    """A point with the loss there, and its slope in intercepts (first, if there are any) and weights."""

    slope: Array
    value: float


def change_along(
    slope: Array, step: Array, c: Array, x: Array, l1: float | Array, l2: float | Array
) -> float:
    r"""Change, along a step, of the loss's tangent and of :math:`l_1 \|x\|_1 + \tfrac{l_2}{2} \|x\|^2`.

    Shapes: l1, l2 (d,).
    """
    lead = step.shape[-1] - c.shape[-1]
    moves = step[..., lead:]
    own = slope[..., lead:] * moves
    own += l1 * (np.abs(x) - np.abs(c))
    if np.any(l2):
        own += 0.5 * l2 * moves * (x + c)
    change = float(own.sum())
    return change + float(np.sum(slope[..., :lead] * step[..., :lead])) if lead else change


def change_to(
    here: Place,
    there: Place,
    step: Array,
    c: Array,
    x: Array,
    l1: float | Array,
    l2: float | Array,
    promised: float,
) -> float:
    """Of loss and penalty from one place to another, by a step that promised so much less."""
    if promised <= FLAT * abs(here.value):
        return change_along(0.5 * (here.slope + there.slope), step, c, x, l1, l2)
    return there.value - here.value + change_along(np.zeros_like(step), step, c, x, l1, l2)

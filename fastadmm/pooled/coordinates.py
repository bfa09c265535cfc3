"""Proximal Newton over the columns that have weights: norms and bounds that are sums over weights.

Over all columns by their Gram matrix where that is little work; else by coordinate descent on the columns
themselves.
"""

import math

from fastadmm.method.span_hessian import SpanHessian
from fastadmm.pooled import cost
from fastadmm.pooled.coordinate_newton import ClassCoordinateNewton, CoordinateNewton
from fastadmm.pooled.goal import SHARE_OF_WANTED, Goal, Point
from fastadmm.pooled.gram_newton import loss_alone, minimise_over_all_columns
from fastadmm.pooled.table_span import TableSpan

#: Steps end that promise this share of the wanted gap; each further attempt promises so much less.
_ACCURACY, _SHARPER, _ATTEMPTS = 1e-3, 0.05, 6


class Coordinates:
    """Smooth losses, penalties that are one sum over all weights."""

    name = "coordinates"

    def takes(self, goal: Goal) -> bool:
        """Whether the problem is one for this."""
        problem = goal.problem
        smooth = problem.loss.smooth and not problem.is_ridge
        return smooth and goal.in_memory and problem.traits.a_sum

    def cost(self, goal: Goal) -> float:
        """No other way takes these problems but the last."""
        return 0.0

    def minimise(self, goal: Goal, point: Point, wanted: float, otherwise: float) -> Point:
        """Steps until the gap is reached, or they no longer close it."""
        problem = goal.problem
        if not math.isfinite(point.lower):  # a norm that holds all weights needs no columns one by one
            point = goal.at(point.weights, point.intercept)
        if point.gap <= wanted:
            return point
        fits = not problem.loss.vector and cost.gram_fits(goal)
        if fits and cost.gram(goal) <= cost.EASY * cost.product(goal):
            return _by_gram(goal, point, wanted)
        kind = ClassCoordinateNewton if problem.loss.vector else CoordinateNewton
        left = SHARE_OF_WANTED * wanted * (abs(point.value) if math.isfinite(point.value) else 1.0)
        found = kind(problem, goal.penalty, goal.engine).minimise(point.weights, point.intercept, left)
        return goal.at(found.coefficients, found.intercept)


def _by_gram(goal: Goal, point: Point, wanted: float) -> Point:
    """The same on the Gram matrix of all columns, ever more accurately until the gap is reached."""
    span = TableSpan(loss_alone(goal.problem), goal.rows(), goal.engine)
    for number in range(_ATTEMPTS):
        accuracy = _ACCURACY * _SHARPER**number * wanted * abs(point.value)
        start = span.at_weights(point.weights, point.intercept).point
        hessian = SpanHessian(goal.problem.fit_intercept)
        end = minimise_over_all_columns(goal.problem, goal.penalty, span, start, accuracy, hessian)
        found = goal.at(end.coefficients, end.intercept)
        better = found.value < point.value or found.gap < point.gap
        point = found if better else point
        if point.gap <= wanted or not better:
            break
    return point

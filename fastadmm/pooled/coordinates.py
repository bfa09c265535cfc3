"""Proximal Newton over the columns that have weights: norms and bounds that are sums over weights.

Working sets first, where a norm holds most weights at zero; over all columns by their Gram matrix where that
is little work; else by coordinate descent on the columns themselves.
"""

import math
from functools import partial

import numpy as np

from fastadmm.method.certificate import PrimalValue
from fastadmm.method.span import SpanPoint
from fastadmm.method.span_hessian import SpanHessian
from fastadmm.pooled import cost
from fastadmm.pooled.coordinate_newton import ClassCoordinateNewton, CoordinateNewton
from fastadmm.pooled.goal import SHARE_OF_WANTED, Goal, Point
from fastadmm.pooled.gram_newton import loss_alone, minimise_over_all_columns
from fastadmm.pooled.table_span import TableSpan
from fastadmm.pooled.working_sets import WorkingSets

Array = np.ndarray

#: Products that a Gram matrix of all columns may cost to be formed at once.
_EASY = 50.0

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
        """Steps until the gap is reached, or attempts no longer close it."""
        if goal.problem.loss.vector:
            return _of_classes(goal, point, wanted)
        attempt = partial(_attempt, goal, self._by_gram(goal))
        for number in range(_ATTEMPTS):
            found = attempt(point, _ACCURACY * _SHARPER**number * wanted, wanted)
            better = found.value < point.value or found.gap < point.gap
            point = found if better else point
            if point.gap <= wanted or not better:
                break
        return point

    @staticmethod
    def _by_gram(goal: Goal) -> bool:
        """Whether the Gram matrix of all columns is little work."""
        return cost.gram_fits(goal) and cost.gram(goal) <= _EASY * cost.product(goal)


def _attempt(goal: Goal, by_gram: bool, point: Point, accuracy: float, wanted: float) -> Point:
    """The best weights from a point on, to an accuracy of a step's promise, relative to the objective."""
    problem, engine, penalty = goal.problem, goal.engine, goal.penalty
    size = abs(point.value)
    if penalty.coefficients[0] > 0.0:
        primal = PrimalValue(
            point.value - goal.regulariser(point.weights), point.gradient, point.intercept, True
        )
        enough = SHARE_OF_WANTED * wanted * size
        found = WorkingSets(goal).minimise(point.weights, primal, accuracy * size, enough, by_gram)
        if found.ended:
            return goal.at(found.coefficients, found.primal.intercept)
        point = goal.at(found.coefficients, found.primal.intercept)
    if by_gram:
        rows, order = goal.rows()
        span = TableSpan(loss_alone(problem), rows, engine)
        start = span.at_weights(point.weights[order], point.intercept).point
        hessian = SpanHessian(problem.fit_intercept)
        end: SpanPoint = minimise_over_all_columns(problem, penalty, span, start, accuracy * size, hessian)
        weights = np.empty(len(order))
        weights[order] = end.coefficients
        return goal.at(weights, end.intercept)
    steps = CoordinateNewton(problem, penalty, engine)
    last = steps.minimise(point.weights, point.intercept, SHARE_OF_WANTED * wanted * size)
    return goal.at(last.coefficients, last.intercept)


def _of_classes(goal: Goal, point: Point, wanted: float) -> Point:
    """The same over the weights of several classes."""
    steps = ClassCoordinateNewton(goal.problem, goal.penalty, goal.engine)
    left = SHARE_OF_WANTED * wanted * (abs(point.value) if math.isfinite(point.value) else 1.0)
    found = steps.minimise(point.weights, point.intercept, left)
    return goal.at(found.coefficients, found.intercept)

r"""Truncated Newton over the weights of all columns, for smooth losses with squared l2.

A step solves :math:`(D^\top H D + \lambda W) \Delta = -s` by conjugate gradients, as accurately as the step
deserves (Dembo, Eisenstat and Steihaug 1982; for these losses Lin, Weng and Keerthi 2008). They are
preconditioned by the Cholesky factor of a Gram matrix, of a sample of the rows or of an earlier point, where
that costs less than a few products or where products have cost as much; else by the columns' sizes. An
intercept is eliminated: if columns have means far from zero, a weight's slope means little before the
intercept's is zero.

Many rows begin with samples of them, each from the minimiser of the one before: it differs from that for all
rows by a statistical error only, about a share d / n of the loss.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fastadmm.method.row_samples import ACCURACY
from fastadmm.method.span import Best, Here, SpanPoint, is_lower, span_solver
from fastadmm.pooled import cost
from fastadmm.pooled.goal import SHARE_OF_WANTED, Goal, Point
from fastadmm.pooled.table_span import (
    ClassTableSpan,
    HessianOfRows,
    TableSpan,
    samples_of,
)

Array = np.ndarray

#: Products of all steps without a Gram matrix, and Gram matrices of all steps, about.
_PRODUCTS, _FACTORS = 80.0, 3.0

#: Entries that the products of a round read, about: large tables show progress, and can be interrupted.
_ENTRIES_OF_ROUND = 1e9

#: Products of a round over several classes, at least.
_FEWEST_OF_CLASSES = 64.0

_MAX_STEPS, _MAX_HALVINGS, _MAX_PRODUCTS = 60, 40, 250

#: Conjugate gradients leave this share of the slope's length in a step, and no less of the slope than this
#: share of what the accuracy allows.
_FORCING, _SHARE_OF_ACCURACY = 0.1, 0.1

#: As of :mod:`fastadmm.method.span`.
_FLAT, _MOST_IDLE = 1e-13, 3

Solve = Callable[[Array], Array]


class Newton:
    """Smooth losses with squared l2, of any table."""

    name = "newton"

    def takes(self, goal: Goal) -> bool:
        """Whether the problem is one for this."""
        return goal.problem.is_ridge and goal.problem.loss.smooth

    def cost(self, goal: Goal) -> float:
        """Steps with products alone, or with a Gram matrix of columns or rows."""
        factor = _Factor(goal)
        return (cost.EASY + min(_PRODUCTS, _FACTORS * factor.price)) * cost.product(goal)

    def minimise(self, goal: Goal, point: Point, wanted: float, otherwise: float) -> Point:
        """Steps until the gap is reached, or as many as a round may take."""
        if goal.problem.loss.vector:
            return _of_classes(goal, point, wanted)
        engine, problem = goal.engine, goal.problem
        rows: Any  # the table itself does for all but Gram matrices
        rows = goal.rows() if goal.in_memory else goal.table
        span, factor = TableSpan(problem, rows, engine), _Factor(goal)
        c, intercept = point.weights, point.intercept
        if goal.in_memory and not point.weights.any():
            samples = samples_of(problem, rows, engine)
            for stride, own in samples:
                share = ACCURACY * stride * len(c) / goal.n_samples
                end = _descend(own, own.at_weights(c, intercept), share, factor, math.inf)
                c, intercept = end.coefficients, end.intercept
        here = span.at_weights(c, intercept)
        found = _descend(span, here, SHARE_OF_WANTED * wanted, factor, _most(span))
        return goal.at(found.coefficients, found.intercept)  # as a run that goes on finds it again


def _most(span: Any) -> float:
    """Products of a round."""
    return max(8.0, _ENTRIES_OF_ROUND / max(span.size[1], 1.0))


def _of_classes(goal: Goal, point: Point, wanted: float) -> Point:
    """The same over the weights of several classes."""
    span = ClassTableSpan(goal)
    first = SpanPoint(point.weights, point.intercept, goal.product(point.weights))
    here = span.at(span.evaluated(first))
    end = _descend(span, here, SHARE_OF_WANTED * wanted, None, max(_most(span), _FEWEST_OF_CLASSES))
    return goal.at(end.coefficients, end.intercept)


class _Factor:
    """The factor of the columns' Gram matrix, made where that pays."""

    solve: Solve | None = None

    def __init__(self, goal: Goal) -> None:
        fits = goal.in_memory and cost.gram_fits(goal)
        self.price = cost.gram(goal) / cost.product(goal) if fits else math.inf
        self.spent = math.inf if self.price <= cost.EASY else 0.0  # products since it was made

    def prepare(self, span: TableSpan, hessian: HessianOfRows) -> None:
        """Make it here, if products with the last one have cost more."""
        if self.spent < self.price:
            return
        self.spent = 0.0
        matrix = span.rows.gram(span.engine, hessian.bend)
        matrix[np.diag_indices(len(matrix))] += span.scale
        if hessian.border is not None:
            matrix -= np.outer(hessian.border, hessian.border / hessian.total)
        self.solve = span_solver(matrix)


def _descend(span: Any, here: Here, share: float, factor: _Factor | None, most: float) -> Any:
    """Steps until the gap is about this share of the objective; a point that is no worse."""
    best, hessian, products = Best(span, here, _MOST_IDLE), None, 0
    for _ in range(_MAX_STEPS):
        gap = _gap(span, here, hessian)
        enough = share * abs(here.value - gap)
        if gap <= enough or products >= most:
            break
        hessian = span.hessian_at(here.point)
        if factor is not None:
            factor.prepare(span, hessian)
        target = -hessian.without_intercept(here.slope)
        solve = None if factor is None else factor.solve
        stop = _SHARE_OF_ACCURACY * enough * 2.0 * span.scale
        found, spent = _conjugate_gradients(hessian.product, hessian.sizes, solve, target, stop)
        step, products = hessian.with_intercept(found, here.slope), products + spent
        if factor is not None:
            factor.spent += spent
        decrease = -float(here.slope @ step)
        if not decrease > 0.0:
            break
        trial = _lower(span, here, step)
        if trial is None:
            break
        here = trial
        if best.take(here, decrease, 0.0):
            break
    return best.here.point


def _gap(span: Any, here: Here, hessian: Any) -> float:
    """About the gap at a point, by its slope once the intercept is best, for which a Hessian is near it."""
    left = here.slope[span.lead :] if hessian is None else hessian.without_intercept(here.slope)
    return float(left @ left) / (2.0 * span.scale)


def _lower(span: Any, here: Here, step: Array) -> Here | None:
    """A point along a step with a lower objective; None if there is none."""
    for _ in range(_MAX_HALVINGS):
        trial: Here = span.advance(here, step)
        if is_lower(span, here, trial, step):
            return trial
        if -float(here.slope @ step) <= _FLAT * abs(here.value):
            return None
        step = 0.5 * step
    return None


def _conjugate_gradients(
    product: Solve, sizes: Array, solve: Solve | None, target: Array, enough: float
) -> tuple[Array, int]:
    """Solve a positive definite system approximately; its solution and the number of products.

    Shapes: sizes, target and the solution (K,).
    """
    x, residual, room = np.zeros(len(target)), target.copy(), np.empty(len(target))
    scaled = residual / sizes if solve is None else solve(residual)
    direction, before = scaled.copy(), float(residual @ scaled)
    first = before
    for number in range(1, _MAX_PRODUCTS + 1):
        image = product(direction)
        bend = float(direction @ image)
        if not bend > 0.0:
            return x, number
        x += np.multiply(direction, before / bend, out=room)
        residual -= np.multiply(image, before / bend, out=room)
        if float(residual @ residual) <= enough:
            break
        scaled = residual / sizes if solve is None else solve(residual)
        last, before = before, float(residual @ scaled)
        if before <= _FORCING**2 * first:
            break
        direction *= before / last
        direction += scaled
    return x, number

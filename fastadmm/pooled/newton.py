r"""Truncated Newton over the weights of all columns, for smooth losses with squared l2.

A step solves :math:`(D^\top H D + \lambda W) \Delta = -s` by conjugate gradients, as accurately as the step
deserves (Dembo, Eisenstat and Steihaug 1982; for these losses Lin, Weng and Keerthi 2008). They are
preconditioned by the Cholesky factor of a Gram matrix, of a sample of the rows or of an earlier point, where
that costs less than a few products or where products have cost as much; else by the columns' sizes and
directions of the system before (Morales and Nocedal 2000). An intercept is eliminated: if columns have means
far from zero, a weight's slope means little before the intercept's is zero.

Many rows begin with samples of them, each from the minimiser of the one before: it differs from that for all
rows by a statistical error only, about a share d / n of the loss.
"""

import math
from collections.abc import Callable
from functools import cached_property, reduce
from typing import Any

import numpy as np

from fastadmm.method.class_certificate import hessian_sums
from fastadmm.method.row_samples import ACCURACY
from fastadmm.method.span import Best, Here, SpanPoint, is_lower, span_solver
from fastadmm.pooled import cost
from fastadmm.pooled.goal import SHARE_OF_WANTED, Goal, Point
from fastadmm.pooled.table_span import (
    ClassTableSpan,
    HessianOfRows,
    TableSpan,
    give_back_samples,
    samples_of,
)

Array = np.ndarray

#: Products that an easy step takes: a Gram matrix that costs no more is formed at once.
_EASY = 14.0

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

#: Directions of the system before that are kept: they about span the eigenvectors of the largest eigenvalues;
#: and used, if a product with the matrix reads at least so many entries per unknown.
_DIRECTIONS, _ENTRIES = 8, 256.0

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
        return (_EASY + min(_PRODUCTS, _FACTORS * factor.price)) * cost.product(goal)

    def minimise(self, goal: Goal, point: Point, wanted: float, otherwise: float) -> Point:
        """Steps until the gap is reached, or as many as a round may take."""
        if goal.problem.loss.vector:
            return _of_classes(goal, point, wanted)
        engine, problem = goal.engine, goal.problem
        rows: Any  # the table itself does for all but Gram matrices
        rows, order = goal.rows() if goal.in_memory else (goal.table, np.arange(sum(goal.widths)))
        span, factor = TableSpan(problem, rows, engine), _Factor(goal)
        c, intercept = point.weights[order], point.intercept
        if goal.in_memory and not point.weights.any():
            samples = samples_of(problem, rows, engine)
            for stride, own in samples:
                share = ACCURACY * stride * len(c) / goal.n_samples
                end = _descend(own, own.at_weights(c, intercept), share, factor, math.inf)
                c, intercept = end.coefficients, end.intercept
            give_back_samples(samples, engine)
        here = span.at_weights(c, intercept)
        found = _descend(span, here, SHARE_OF_WANTED * wanted, factor, _most(span))
        weights = np.empty(len(c))
        weights[order] = found.coefficients
        return goal.ended(weights, found)


def _most(span: Any) -> float:
    """Products of a round."""
    return max(8.0, _ENTRIES_OF_ROUND / max(span.size[1], 1.0))


def _of_classes(goal: Goal, point: Point, wanted: float) -> Point:
    """The same over the weights of several classes."""
    span, factor = ClassTableSpan(goal), _ClassFactor(goal)
    first = SpanPoint(point.weights, point.intercept, goal.product(point.weights))
    here = span.at(span.evaluated(first))
    end = _descend(span, here, SHARE_OF_WANTED * wanted, factor, max(_most(span), _FEWEST_OF_CLASSES))
    return goal.at(end.coefficients, end.intercept)


class _ClassFactor:
    """A factor for each class: of the Gram matrix of centred columns times the class's mean curvature."""

    solve: Solve | None = None

    def __init__(self, goal: Goal) -> None:
        d, classes = sum(goal.widths), goal.problem.n_outputs
        price = (cost.gram(goal) / classes + cost.dense_gram(0, d)) / cost.product(goal)
        fits = goal.in_memory and cost.gram_fits(goal) and classes * d * d <= goal.n_samples * goal.entries
        self.pays = fits and price <= _EASY
        self.goal, self.spent = goal, 0.0

    @cached_property
    def _gram(self) -> Array:
        """Mean over the rows of products of centred columns, (d, d)."""
        goal, n = self.goal, self.goal.n_samples
        rows, order = goal.rows()
        share = np.full(rows.shape[0], 1.0 / n)
        found = np.empty((len(order), len(order)))
        found[np.ix_(order, order)] = rows.gram(goal.engine, share)
        if goal.problem.fit_intercept:
            mean = goal.images(np.tile(share, (goal.problem.n_outputs, 1)))[0]
            found -= np.outer(mean, mean)
        return found

    def prepare(self, span: ClassTableSpan, hessian: Any) -> None:
        """Make them here."""
        if not self.pays:
            return
        sums = np.diag(hessian_sums(hessian.likely, span.problem.weight, span.engine))
        classes, (d, _), lead = len(sums), self._gram.shape, span.lead
        solvers = [span_solver(own * self._gram + span.scale * np.eye(d)) for own in sums]

        def solve(residual: Array) -> Array:
            parts = residual[lead:].reshape(classes, d)
            found = np.concatenate([own(part) for own, part in zip(solvers, parts)])
            return np.append(residual[:lead] / hessian.sizes[:lead], found)

        self.solve = solve


class _Factor:
    """The factor of a Gram matrix, of the columns or of fewer rows, made where that pays."""

    solve: Solve | None = None

    def __init__(self, goal: Goal) -> None:
        self.price, self.rows_price = math.inf, math.inf
        if goal.in_memory and cost.gram_fits(goal):
            self.price = cost.gram(goal) / cost.product(goal)
        few = goal.in_memory and goal.n_samples < sum(goal.widths)
        if few and cost.kernel(goal) / cost.product(goal) < self.price:
            self.price = self.rows_price = cost.kernel(goal) / cost.product(goal)
        self.goal = goal
        self.spent = math.inf if self.price <= _EASY else 0.0  # products since it was made

    @cached_property
    def _kernel(self) -> Array:
        """Gram matrix of the rows, (N, N)."""
        return reduce(np.add, [block.kernel_gram() for block in self.goal.problem.blocks])

    def prepare(self, span: TableSpan, hessian: HessianOfRows) -> None:
        """Make it here, if products with the last one have cost more."""
        if self.spent < self.price:
            return
        self.spent = 0.0
        if self.price == self.rows_price:
            self.solve = _by_rows(self._kernel, span, hessian)
            return
        matrix = span.rows.gram(span.engine, hessian.bend)
        matrix[np.diag_indices(len(matrix))] += span.scale
        if hessian.border is not None:
            matrix -= np.outer(hessian.border, hessian.border / hessian.total)
        self.solve = span_solver(matrix)


def _by_rows(kernel: Array, span: TableSpan, hessian: HessianOfRows) -> Solve:
    """The inverse of a Hessian, but for its intercept, by Woodbury's formula. Shapes: kernel (N, N)."""
    root, rows, engine, scale = np.sqrt(hessian.bend), span.rows, span.engine, span.scale
    matrix = root[:, np.newaxis] * kernel * root
    matrix[np.diag_indices(len(matrix))] += scale
    solved = span_solver(matrix)

    def solve(residual: Array) -> Array:
        inner = root * solved(root * rows.product(residual, engine))
        return (residual - rows.transposed_product(inner, engine)) / scale

    return solve


def _descend(span: Any, here: Here, share: float, factor: _Factor | _ClassFactor, most: float) -> Any:
    """Steps until the gap is about this share of the objective; a point that is no worse."""
    best, hessian, products = Best(span, here, _MOST_IDLE), None, 0
    precondition = Preconditioner(*span.size)
    for _ in range(_MAX_STEPS):
        gap = _gap(span, here, hessian)
        enough = share * abs(here.value - gap)
        if gap <= enough or products >= most:
            break
        hessian = span.hessian_at(here.point)
        precondition.begin(hessian.sizes)
        factor.prepare(span, hessian)
        target, solve = -hessian.without_intercept(here.slope), factor.solve
        stop = _SHARE_OF_ACCURACY * enough * 2.0 * span.scale
        found, spent = _conjugate_gradients(hessian.product, precondition, solve, target, stop)
        step, products = hessian.with_intercept(found, here.slope), products + spent
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


class Preconditioner:
    r"""A positive definite approximation of a matrix's inverse (Morales and Nocedal 2000).

    The systems of successive Newton steps differ only by the curvature. The directions p of the previous one,
    conjugate in its matrix A, :math:`p_i^\top A p_j = 0`, give its inverse on their span, and its diagonal S
    approximates it elsewhere:

    .. math:: M = P P^\top + (I - P Y^\top) S^{-1} (I - Y P^\top), \qquad Y = A P, \quad P^\top Y = I.
    """

    def __init__(self, unknowns: int, entries: float) -> None:
        most = _DIRECTIONS if entries >= _ENTRIES * unknowns else 0
        self._new, self._old = (np.empty((2, most, unknowns)) for _ in range(2))
        self._count = self._known = 0
        self.sizes: Array = np.ones(unknowns)

    def begin(self, sizes: Array) -> None:
        """Start on another matrix, with a diagonal of about ``sizes``, of shape (K,)."""
        self.sizes = sizes
        if self._count:
            self._new, self._old, self._known, self._count = self._old, self._new, self._count, 0

    def learn(self, direction: Array, image: Array, bend: float) -> None:
        """Add a direction, conjugate in the matrix to those before. Shapes: direction, image (K,)."""
        if self._count < self._new.shape[1]:
            root = math.sqrt(bend)
            for place, vector in zip(self._new[:, self._count], (direction, image)):
                np.divide(vector, root, out=place)
            self._count += 1

    def __call__(self, residual: Array, out: Array) -> Array:
        """Write the preconditioned residual, of shape (K,), to ``out``."""
        if not self._known:
            return np.divide(residual, self.sizes, out=out)
        directions, images = self._old[:, : self._known]
        shares = directions @ residual
        np.matmul(shares, images, out=out)
        np.subtract(residual, out, out=out)
        out /= self.sizes
        out += (shares - images @ out) @ directions
        return out

    def squared_length(self, residual: Array, scaled: Array, room: Array) -> float:
        """Squared length of a residual in the metric of the diagonal alone, independent of the directions.

        Shapes: residual, scaled, room (K,).
        """
        return float(residual @ (np.divide(residual, self.sizes, out=room) if self._known else scaled))


def _conjugate_gradients(
    product: Solve, sizes: Preconditioner, solve: Solve | None, target: Array, enough: float
) -> tuple[Array, int]:
    """Solve a positive definite system approximately; its solution and the number of products.

    Shapes: target and the solution (K,).
    """
    x, residual, room = np.zeros(len(target)), target.copy(), np.empty(len(target))

    def preconditioned() -> Array:
        return sizes(residual, np.empty(len(target))) if solve is None else solve(residual)

    def length(scaled: Array) -> float:
        squared = sizes.squared_length(residual, scaled, room) if solve is None else float(residual @ scaled)
        return squared

    scaled = preconditioned()
    direction, before, first = scaled.copy(), float(residual @ scaled), length(scaled)
    for number in range(1, _MAX_PRODUCTS + 1):
        image = product(direction)
        bend = float(direction @ image)
        if not bend > 0.0:
            return x, number
        sizes.learn(direction, image, bend)
        x += np.multiply(direction, before / bend, out=room)
        residual -= np.multiply(image, before / bend, out=room)
        if float(residual @ residual) <= enough:
            break
        scaled = preconditioned()
        if length(scaled) <= _FORCING**2 * first:
            break
        last, before = before, float(residual @ scaled)
        direction *= before / last
        direction += scaled
    return x, number

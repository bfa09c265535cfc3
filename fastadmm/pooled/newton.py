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
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from fastadmm.engine.engine import Engine, SomeRowsEngine
from fastadmm.method.class_certificate import hessian_sums, multinomial_of, shifted
from fastadmm.method.row_samples import ACCURACY, chosen_rows, strides
from fastadmm.method.span import Best, Here, SomeRows, SpanPoint, is_lower, span_solver
from fastadmm.pooled import cost
from fastadmm.pooled.goal import SHARE_OF_WANTED, Goal, Point
from fastadmm.problem.problem import Problem

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
        c, intercept, vector = point.weights, point.intercept, goal.problem.loss.vector
        in_memory = goal.in_memory and not vector
        # The table itself does for all but Gram matrices.
        span = TableSpan(goal.problem, goal.rows() if in_memory else goal.table, goal.engine)
        factor, most = _Factor(goal), max(8.0, _ENTRIES_OF_ROUND / max(span.entries, 1.0))
        if in_memory and not c.any():
            for stride, sample in span.samples():
                share = ACCURACY * stride * len(c) / goal.n_samples
                end = _descend(sample, sample.at(c, intercept), share, factor, math.inf)
                c, intercept = end.coefficients, end.intercept
        most = max(most, _FEWEST_OF_CLASSES) if vector else most
        found = _descend(span, span.at(c, intercept), SHARE_OF_WANTED * wanted, factor, most)
        return goal.at(found.coefficients, found.intercept)  # as a run that goes on finds it again


class _Factor:
    """The factor of the columns' Gram matrix, made where that pays."""

    solve: Solve | None = None

    def __init__(self, goal: Goal) -> None:
        fits = goal.in_memory and cost.gram_fits(goal) and not goal.problem.loss.vector
        self.price = cost.gram(goal) / cost.product(goal) if fits else math.inf
        self.spent = math.inf if self.price <= cost.EASY else 0.0  # products since it was made

    def prepare(self, span: "TableSpan", hessian: Any) -> None:
        """Make it here, if products with the last one have cost more."""
        if self.spent < self.price:
            return
        self.spent = 0.0
        matrix = span.table.gram(span.engine, hessian.bend)
        matrix[np.diag_indices(len(matrix))] += span.scale
        if hessian.border is not None:
            matrix -= np.outer(hessian.border, hessian.border / hessian.total)
        self.solve = span_solver(matrix)


def _descend(span: "TableSpan", here: Here, share: float, factor: _Factor, most: float) -> SpanPoint:
    """Steps until the gap is about this share of the objective; a point that is no worse."""
    best, hessian, products = Best(span, here, _MOST_IDLE), None, 0
    for _ in range(_MAX_STEPS):
        gap = _gap(span, here, hessian)
        enough = share * abs(here.value - gap)
        if gap <= enough or products >= most:
            break
        hessian = span.hessian_at(here.point)
        factor.prepare(span, hessian)
        target = -hessian.without_intercept(here.slope)
        stop = _SHARE_OF_ACCURACY * enough * 2.0 * span.scale
        found, spent = _conjugate_gradients(hessian.product, hessian.sizes, factor.solve, target, stop)
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
    point: SpanPoint = best.here.point
    return point


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


class TableSpan:
    """Passes over all columns of a table, read in place, for the weights of one predictor or of several.

    Vectors over all weights are flat: intercepts, if there are any, then weights, class after class. Points
    are computed from their weights: no rounding of steps accumulates.
    """

    def __init__(self, problem: Problem | SomeRows, table: Any, engine: Engine) -> None:
        self.problem: Any = problem
        self.table, self.engine = table, engine
        self.scale, self.vector, self.n = problem.regularization, problem.loss.vector, table.shape[0]
        self.lead = problem.n_outputs * int(problem.fit_intercept)

    @property
    def entries(self) -> float:
        """Entries that are read for all classes in the rows of all workers."""
        n, columns = self.engine.all_rows(self.n), self.table.shape[1]
        return self.problem.n_outputs * n * columns * self.table.density

    @cached_property
    def mean_squares(self) -> Array:
        """Mean square of each column, of shape (d,)."""
        squares: Array = self.table.column_squares(self.engine) / self.engine.all_rows(self.n)
        return squares

    @cached_property
    def centre(self) -> Array:
        """Mean of each column, of shape (d,), where there are intercepts; else zero."""
        mean = np.full(self.n, bool(self.lead) / self.engine.all_rows(self.n))
        centre: Array = self.table.transposed_product(mean, self.engine)
        return centre

    def at(self, c: Array, intercept: Any) -> Here:
        """The point with weights of shape (d,) or (C, d), its loss and gradient, and its slope."""
        problem, engine = self.problem, self.engine
        total = self.table.product(c, engine).ravel()
        z, gradient = engine.vector(len(total)), engine.vector(len(total))
        if self.vector:
            z, rows = shifted(problem.offset + total, intercept), gradient.reshape(problem.n_outputs, -1)
            loss = problem.loss.evaluate(z, problem.y, problem.weight, gradient, engine)
            sums = engine.total(rows)
        else:
            parts = problem.loss.measure_parts(problem, total, intercept, z, gradient, engine)
            (loss, sums, _), rows = engine.together(parts)[0].tolist(), gradient
        slope = (self.table.transposed_product(rows, engine) + self.scale * c).ravel()
        slope = np.append(sums, slope) if self.lead else slope
        value = loss + 0.5 * self.scale * float(np.sum(c * c))
        return Here(SpanPoint(c, intercept, total, loss, gradient), slope, value)

    def advance(self, here: Here, step: Array) -> Here:
        """The point a step further."""
        c, intercept, move = here.point.coefficients, here.point.intercept, step[: self.lead]
        if self.lead:  # of several, a constant changes nothing
            intercept = intercept + (move - move.mean() if self.vector else float(move[0]))
        return self.at(c + step[self.lead :].reshape(c.shape), intercept)

    def gap_share(self, here: Here) -> float:
        """What the slope in the weights adds to the duality gap."""
        slope = here.slope[self.lead :]
        return float(slope @ slope) / (2.0 * self.scale)

    def hessian_at(self, point: SpanPoint) -> "_HessianOfClasses | _Hessian":
        """The Hessian of loss and regulariser at a point, by its products."""
        problem, engine = self.problem, self.engine
        if self.vector:
            z = shifted(problem.offset + point.total, point.intercept)
            likely = multinomial_of(problem).probabilities(z, problem.y, problem.weight, engine)
            bends = np.diag(hessian_sums(likely, problem.weight, engine))
            # What centring leaves of a constant column is only rounding.
            left = np.maximum(self.mean_squares - self.centre**2, _NOTHING * self.mean_squares)
            sizes = (bends[:, np.newaxis] * left + self.scale).ravel()
            if self.lead:
                sizes = np.concatenate([bends + _NOTHING * problem.total_weight, sizes])
            return _HessianOfClasses(self, likely, sizes)
        h = np.empty(len(point.total))
        parts = problem.loss.curvature_parts(problem, point.total, point.intercept, h, engine)
        total = float(engine.together(parts)[0][0])
        sizes = total * self.mean_squares
        if not self.lead:
            return _Hessian(self, h, sizes + self.scale, None, 1.0)
        # If all rows are on flat pieces of the loss, the intercept has no curvature of its own.
        total = total or problem.total_weight
        border = self.table.transposed_product(h, engine)
        # What the intercept leaves of a constant column is only rounding.
        left = np.maximum(sizes - border * (border / total), _NOTHING * sizes)
        return _Hessian(self, h, left + self.scale, border, total)

    def samples(self) -> Iterator[tuple[int, "TableSpan"]]:
        """Copies of growing samples of rows, as spans, and of how many rows each has one."""
        problem, engine, d = self.problem, self.engine, self.table.shape[1]
        for stride in strides(engine.all_rows(self.n), d, problem.loss.name == "squared"):
            numbers = chosen_rows(self.n, stride, engine)
            own = SomeRowsEngine(engine, numbers, self.n)
            part = SomeRows.of(problem, numbers, own, stride)
            yield stride, TableSpan(part, self.table.some_rows(numbers), own)


#: Relative rounding of a column's squared length; relative curvature that an intercept has at least, as no
#: class may be without any.
_NOTHING = 1e-12


class _Hessian(NamedTuple):
    """A Hessian over all weights, as products with vectors, from which the intercept is eliminated."""

    span: TableSpan
    bend: Array  # of shape (N,): second derivatives of the loss
    sizes: Array  # of shape (d,): approximate diagonal
    border: Array | None  # of shape (d,)
    total: float  # second derivative in the intercept

    def product(self, v: Array) -> Array:
        """The Hessian-vector product with v, of shape (d,)."""
        table, engine = self.span.table, self.span.engine
        message = table.product(v, engine)
        image: Array = table.transposed_product(engine.times(message, self.bend, message), engine)
        image += self.span.scale * v
        if self.border is not None:
            image -= (float(self.border @ v) / self.total) * self.border
        return image

    def without_intercept(self, slope: Array) -> Array:
        """The weights' slope after the intercept's Newton step; from one of shape (d,) or (d + 1,)."""
        return slope if self.border is None else slope[1:] - (float(slope[0]) / self.total) * self.border

    def with_intercept(self, step: Array, slope: Array) -> Array:
        """A step of the weights, of shape (d,), with the intercept's that belongs to it in front."""
        if self.border is None:
            return step
        return np.append(-(float(slope[0]) + float(self.border @ step)) / self.total, step)


class _HessianOfClasses(NamedTuple):
    """The Hessian over all weights and intercepts, as products with vectors.

    Intercepts are those of centred columns. So weights hardly move the rows on average, and conjugate
    gradients need few products, however far from zero the columns are.
    """

    span: TableSpan
    likely: Array  # of shape (C, N): probabilities of the classes
    sizes: Array  # of shape (lead + C d,): approximate diagonal

    def product(self, v: Array) -> Array:
        """The Hessian-vector product with v, of shape (lead + C d,)."""
        span, lead, engine, centre = self.span, self.span.lead, self.span.engine, self.span.centre
        x = v[lead:].reshape(len(self.likely), -1)
        moved = span.table.product(x, engine)
        if lead:
            moved += (v[:lead] - x @ centre)[:, np.newaxis]
        bent = multinomial_of(span.problem).action(self.likely, span.problem.weight, moved, engine)
        image: Array = span.table.transposed_product(bent, engine) + span.scale * x
        if not lead:
            return image.ravel()
        sums = engine.total(bent)
        return np.append(sums, image - np.outer(sums, centre))

    def without_intercept(self, slope: Array) -> Array:
        """A slope, of shape (lead + C d,), with the intercepts of centred columns."""
        lead, found = self.span.lead, slope.copy()
        if lead:
            found[lead:] -= np.outer(slope[:lead], self.span.centre).ravel()
        return found

    def with_intercept(self, step: Array, slope: Array) -> Array:
        """A step with the intercepts of centred columns as one with those of the columns as they are."""
        lead, x = self.span.lead, step[self.span.lead :].reshape(len(self.likely), -1)
        return np.append(step[:lead] - (x @ self.span.centre)[:lead], x)

"""The span of all columns, read in place: passes over the rows of a table, no messages; of samples, too.

Messages are dense. In sparse rows a step costs one operation per stored entry, and a Hessian one per pair of
entries in a row.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastadmm.blocks.block import CSRBlock
from fastadmm.blocks.side_by_side import Rows, some_rows
from fastadmm.engine.engine import Engine
from fastadmm.engine.some_rows import SomeRowsEngine
from fastadmm.method.class_certificate import hessian_sums, multinomial_of, shifted
from fastadmm.method.row_samples import chosen_rows, strides
from fastadmm.method.span import Here, SomeRows, Span, SpanPoint
from fastadmm.method.span_hessian import SpanHessian
from fastadmm.pooled.goal import Goal
from fastadmm.problem.problem import Problem

Array = np.ndarray


#: Relative rounding error of a column's squared length.
_ROUNDING = 1e-12

#: Relative curvature that an intercept has at least, as no class may be without any; and relative rounding of
#: a column's mean square.
_LEAST_OF_CLASS = 1e-12


class HessianOfRows(NamedTuple):
    """A Hessian over all weights, as products with vectors, from which the intercept is eliminated.

    Shapes: rows (N, d); bend (N,); sizes, border (d,).
    """

    rows: Rows  # of shape (N, d)
    bend: Array  # of shape (N,): second derivatives of the loss
    engine: Engine
    scale: float  # the regulariser's
    sizes: Array  # of shape (d,): approximate diagonal
    border: Array | None  # of shape (d,)
    total: float  # second derivative in the intercept

    def product(self, v: Array) -> Array:
        """The Hessian-vector product with v, of shape (d,)."""
        message = self.rows.product(v, self.engine)
        image = self.rows.transposed_product(self.engine.times(message, self.bend, message), self.engine)
        image += self.scale * v
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


class TableSpan(Span):
    """Passes over all columns, whose directions are the unit vectors. Shapes: rows (N, d)."""

    def __init__(self, problem: Problem | SomeRows, rows: Rows, engine: Engine) -> None:
        super().__init__(problem, np.empty((0, rows.shape[0])), engine)
        self.rows = rows
        self._squares: Array | None = None

    @property
    def n_messages(self) -> int:
        return self.rows.shape[1]

    @property
    def size(self) -> tuple[int, float]:
        """Number of columns, and of stored entries in the rows of all workers."""
        n, columns = self.engine.all_rows(self.rows.shape[0]), self.rows.shape[1]
        return columns, n * columns * self.rows.density

    def at(self, point: SpanPoint) -> Here:
        """A point that has loss and gradient, with its slope, in one pass over the columns."""
        assert point.gradient is not None
        if point.products is not None:
            return self.here(point, point.products)
        return self.here(point, self.rows.transposed_product(point.gradient, self.engine))

    def start(self, point: SpanPoint, hessian: SpanHessian) -> Here:
        return self.at(point)

    def refreshed(self, point: SpanPoint, hessian: SpanHessian) -> Here:
        self.renew(hessian, point)
        return self.at(point)

    def renew(self, hessian: SpanHessian, point: SpanPoint) -> None:
        hessian.reference = h = self.curvature(point)
        gram = self.rows.bordered_gram if self.lead else self.rows.gram
        hessian.matrix = gram(self.engine, h)

    def advance(self, here: Here, step: Array) -> Here:
        old, lead = here.point, self.lead
        intercept = old.intercept + (float(step[0]) if lead else 0.0)
        return self.at_weights(old.coefficients + step[lead:], intercept)

    def at_weights(self, c: Array, intercept: float) -> Here:
        """The point with weights of shape (d,), computed from these: no rounding of steps accumulates."""
        return self.at(self.evaluated(SpanPoint(c, intercept, self.combined(c))))

    def _mean_squares(self) -> Array:
        """Mean over rows of the columns' squares."""
        if self._squares is None:  # no cached property: that locks out workers which are threads
            self._squares = self.rows.column_squares(self.engine) / self.engine.all_rows(self.rows.shape[0])
        return self._squares

    def hessian_at(self, point: SpanPoint) -> HessianOfRows:
        """The Hessian of loss and regulariser at a point, by its products."""
        lead, engine, rows, h = self.lead, self.engine, self.rows, np.empty(len(point.total))
        there = self.problem, point.total, point.intercept, h, engine
        ((sum_of_all, _),) = engine.together(self.problem.loss.curvature_parts(*there))
        total = float(sum_of_all)
        sizes = total * self._mean_squares()
        if not lead:
            return HessianOfRows(rows, h, engine, self.scale, sizes + self.scale, None, 1.0)
        # If all rows are on flat pieces of the loss, the intercept has no curvature of its own.
        total = total or self.problem.total_weight
        border = rows.transposed_product(h, engine)
        # What the intercept leaves of a constant column is only rounding.
        left = np.maximum(sizes - border * (border / total), _ROUNDING * sizes)
        return HessianOfRows(rows, h, engine, self.scale, left + self.scale, border, total)

    def combined(self, c: Array) -> Array:
        return self.rows.product(c, self.engine)


class HessianOfClasses(NamedTuple):
    """The Hessian over all weights and intercepts, as products with vectors.

    Intercepts are those of centred columns. So weights hardly move the rows on average, and conjugate
    gradients need few products, however far from zero the columns are.

    Shapes: likely (C, N); sizes (lead + C d,).
    """

    span: ClassTableSpan
    likely: Array  # of shape (C, N): probabilities of the classes
    sizes: Array  # of shape (lead + C d,): approximate diagonal

    def product(self, v: Array) -> Array:
        """The Hessian-vector product with v, of shape (lead + C d,)."""
        span, lead, classes = self.span, self.span.lead, len(self.likely)
        x = v[lead:].reshape(classes, -1)
        moved = span.table.product(x, span.engine)
        if lead:
            moved += (v[:lead] - x @ span.centre)[:, np.newaxis]
        bent = multinomial_of(span.problem).action(self.likely, span.problem.weight, moved, span.engine)
        image = np.empty_like(v)
        weights = image[lead:].reshape(classes, -1)
        np.add(span.table.transposed_product(bent, span.engine), span.scale * x, out=weights)
        if lead:
            image[:lead] = span.engine.total(bent)
            weights -= np.outer(image[:lead], span.centre)
        return image

    def without_intercept(self, slope: Array) -> Array:
        """A slope, of shape (lead + C d,), with the intercepts of centred columns."""
        lead, found = self.span.lead, slope.copy()
        if lead:
            found[lead:] -= np.outer(slope[:lead], self.span.centre).ravel()
        return found

    def with_intercept(self, step: Array, slope: Array) -> Array:
        """A step with the intercepts of centred columns as one with those of the columns as they are.

        ``slope``: not needed.
        """
        lead, found = self.span.lead, step.copy()
        if lead:
            found[:lead] -= step[lead:].reshape(len(self.likely), -1) @ self.span.centre
        return found


class ClassTableSpan:
    """Passes over all blocks, as they are, for the weights of several classes.

    Vectors over all weights are flat: intercepts, if there are any, then weights, class after class.
    """

    def __init__(self, goal: Goal) -> None:
        self.problem, self.engine, self.table = goal.problem, goal.engine, goal.table
        self.scale = self.problem.regularization
        self.lead = self.problem.n_outputs * int(self.problem.fit_intercept)
        self._means: tuple[Array, Array] | None = None

    @property
    def centre(self) -> Array:
        """Mean of each column, of shape (d,)."""
        return self._mean_and_square()[0]

    def _mean_and_square(self) -> tuple[Array, Array]:
        """Of each column the mean and the mean square."""
        if self._means is None:  # no cached property: that locks out workers which are threads
            engine, n = self.engine, self.engine.all_rows(self.problem.n_samples)
            squares = self.table.column_squares(engine) / n
            ones = np.full(self.problem.n_samples, 1.0 / n)
            mean = self.table.transposed_product(ones, engine) if self.lead else np.zeros(len(squares))
            self._means = mean, squares
        return self._means

    @property
    def size(self) -> tuple[int, float]:
        """Number of unknowns, and of entries that are read for all classes in the rows of all workers."""
        problem, classes = self.problem, self.problem.n_outputs
        unknowns = self.lead + classes * self.table.shape[1]
        return unknowns, classes * self.table.entries * self.engine.all_rows(problem.n_samples)

    def evaluated(self, point: SpanPoint) -> SpanPoint:
        """The point with loss and gradient."""
        problem, gradient = self.problem, np.empty(len(point.total))
        z = shifted(problem.offset + point.total, point.intercept)
        loss = problem.loss.evaluate(z, problem.y, problem.weight, gradient, self.engine)
        return SpanPoint(point.coefficients, point.intercept, point.total, loss, gradient)

    def at(self, point: SpanPoint) -> Here:
        """A point that has loss and gradient, with its slope, in one pass over the columns."""
        assert point.gradient is not None
        gradient, c = point.gradient.reshape(self.problem.n_outputs, -1), point.coefficients
        slope = (self.table.transposed_product(gradient, self.engine) + self.scale * c).ravel()
        if self.lead:
            slope = np.concatenate([self.engine.total(gradient), slope])
        return Here(point, slope, point.loss + 0.5 * self.scale * float(np.sum(c * c)))

    def advance(self, here: Here, step: Array) -> Here:
        """The point a step further, computed from its weights: no rounding of steps accumulates."""
        old, lead = here.point, self.lead
        c = old.coefficients + step[lead:].reshape(old.coefficients.shape)
        intercept = np.array(old.intercept)
        if lead:
            intercept += step[:lead] - step[:lead].mean()  # a constant changes nothing
        return self.at(self.evaluated(SpanPoint(c, intercept, self.table.product(c, self.engine).ravel())))

    def hessian_at(self, point: SpanPoint) -> HessianOfClasses:
        """The Hessian of loss and regulariser at a point, by its products."""
        problem, engine = self.problem, self.engine
        z = shifted(problem.offset + point.total, point.intercept)
        likely = multinomial_of(problem).probabilities(z, problem.y, problem.weight, engine)
        bends = np.diag(hessian_sums(likely, problem.weight, engine))
        mean, squares = self._mean_and_square()
        # What centring leaves of a constant column is only rounding.
        left = np.maximum(squares - mean * mean, _LEAST_OF_CLASS * squares)
        sizes = (bends[:, np.newaxis] * left + self.scale).ravel()
        if self.lead:
            sizes = np.concatenate([bends + _LEAST_OF_CLASS * problem.total_weight, sizes])
        return HessianOfClasses(self, likely, sizes)

    def gap_share(self, here: Here) -> float:
        """What the slope in the weights adds to the duality gap."""
        slope = here.slope[self.lead :]
        return float(slope @ slope) / (2.0 * self.scale)


def samples_of(problem: Problem | SomeRows, rows: Rows, engine: Engine) -> list[tuple[int, TableSpan]]:
    """Copies of growing samples of rows, as spans, and of how many rows each has one."""
    (n, d), samples = rows.shape, []
    for stride in strides(engine.all_rows(n), d, problem.loss.name == "squared"):
        numbers = chosen_rows(n, stride, engine)
        own = SomeRowsEngine(engine, numbers, n)
        part: Rows
        if isinstance(rows, CSRBlock):
            part = some_rows(rows, numbers, own)
        else:
            part = rows.some_rows(numbers, own)
        samples.append((stride, TableSpan(SomeRows.of(problem, numbers, own, stride), part, own)))
    return samples

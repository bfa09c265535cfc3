"""The span of all columns, read in place: passes over the rows of a table, no messages.

Messages are dense. In sparse rows a step costs one operation per stored entry, and a Hessian one per pair of
entries in a row.
"""

from typing import NamedTuple

import numpy as np

from fastadmm.blocks.block import CSRBlock
from fastadmm.blocks.mixed import Rows
from fastadmm.blocks.side_by_side import Beside
from fastadmm.engine.engine import Engine
from fastadmm.method.span import Here, SomeRows, Span, SpanPoint
from fastadmm.method.span_hessian import SpanHessian
from fastadmm.problem.problem import Problem

Array = np.ndarray


#: Relative rounding error of a column's squared length.
_ROUNDING = 1e-12


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
        image = self.rows.hessian_product(v, self.bend, self.engine)
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
        self.rows, self.side_by_side = rows, isinstance(rows, Beside)
        self._squares: Array | None = None

    @property
    def n_messages(self) -> int:
        return self.rows.shape[1]

    @property
    def size(self) -> tuple[int, float]:
        """Number of columns, and of stored entries in the rows of all workers."""
        n, columns = self.engine.all_rows(self.rows.shape[0]), self.rows.shape[1]
        return columns, n * columns * (1.0 if isinstance(self.rows, Beside) else self.rows.density)

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
        h, lead, engine = self.curvature(point), self.lead, self.engine
        hessian.reference = h
        if not isinstance(self.rows, CSRBlock):
            hessian.matrix = self.rows.gram(engine, h, lead)
            return
        hessian.matrix = gram = self.rows.gram(engine, h)
        if lead:
            hessian.matrix = np.empty((1 + len(gram), 1 + len(gram)))
            hessian.matrix[1:, 1:], hessian.matrix[0, 0] = gram, engine.total_and_size(h)[0]
            hessian.matrix[0, 1:] = hessian.matrix[1:, 0] = self.rows.transposed_product(h, engine)

    def advance(self, here: Here, step: Array) -> Here:
        old, lead = here.point, self.lead
        intercept = old.intercept + (float(step[0]) if lead else 0.0)
        return self.at_weights(old.coefficients + step[lead:], intercept)

    def unmeasured(self, c: Array, intercept: float) -> SpanPoint:
        """The point with weights of shape (d,), without a gradient."""
        return SpanPoint(c, intercept, np.empty(0) if self.side_by_side else self.combined(c))

    def at_weights(self, c: Array, intercept: float) -> Here:
        """The point with weights of shape (d,), computed from these: no rounding of steps accumulates."""
        if not isinstance(self.rows, Beside):
            return self.at(self.evaluated(self.unmeasured(c, intercept)))
        problem, n = self.problem, self.rows.shape[0]
        total, z, gradient = (self.engine.vector(n) for _ in range(3))
        given = problem.offset, intercept, problem.y, problem.weight, total, z, gradient, self.engine
        loss, products, sums = problem.loss.advance(self.rows.matrices, c, np.empty(0), *given)
        point = SpanPoint(c, intercept, total, loss, gradient, sums)
        return self.here(point, products)

    def _mean_squares(self) -> Array:
        """Mean over rows of the columns' squares."""
        if self._squares is None:  # no cached property: that locks out workers which are threads
            self._squares = self.rows.column_squares(self.engine) / self.engine.all_rows(self.rows.shape[0])
        return self._squares

    def hessian_at(self, point: SpanPoint) -> HessianOfRows:
        """The Hessian of loss and regulariser at a point, by its products."""
        lead, engine, rows, h = self.lead, self.engine, self.rows, np.empty(len(point.total))
        there = self.problem.offset, point.total, point.intercept, self.problem.y, self.problem.weight
        ((sum_of_all, _),) = engine.together(self.problem.loss.curvature_parts(*there, h, engine))
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

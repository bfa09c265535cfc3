"""The span of all columns where most of their entries are zero: passes over sparse rows instead of messages.

As messages columns are dense. Side by side as they are, a Gram matrix costs the pairs of entries of every
row, and a step their number.
"""

from __future__ import annotations

import numpy as np

from fastadmm.blocks.block import CSRBlock
from fastadmm.coordinator.subspace.span import Here, SomeRows, Span, SpanPoint
from fastadmm.coordinator.subspace.span_hessian import SpanHessian
from fastadmm.engine.engine import Engine
from fastadmm.problem.problem import Problem

__all__ = ["StackedSpan"]

Array = np.ndarray


class StackedSpan(Span):
    """Passes over the columns of all parties, whose directions are the unit vectors.

    Parameters
    ----------
    problem : Problem or SomeRows
        One predictor per sample, smooth loss.
    rows : CSRBlock of shape (N, d)
    engine : Engine
    """

    def __init__(self, problem: Problem | SomeRows, rows: CSRBlock, engine: Engine) -> None:
        super().__init__(problem, np.empty((0, rows.shape[0])), engine)
        self.rows = rows

    @property
    def n_messages(self) -> int:
        return self.rows.shape[1]

    def start(self, point: SpanPoint, hessian: SpanHessian) -> Here:
        assert point.gradient is not None
        return self.here(point, self.rows.transposed_product(point.gradient, self.engine))

    def refreshed(self, point: SpanPoint, hessian: SpanHessian) -> Here:
        self.renew(hessian, point)
        return self.start(point, hessian)

    def renew(self, hessian: SpanHessian, point: SpanPoint) -> None:
        h, lead, engine = self.curvature(point), self.lead, self.engine
        gram = self.rows.gram(engine, h)
        hessian.reference, hessian.matrix = h, gram
        if lead:
            hessian.matrix = np.empty((1 + len(gram), 1 + len(gram)))
            hessian.matrix[1:, 1:], hessian.matrix[0, 0] = gram, engine.total_and_size(h)[0]
            hessian.matrix[0, 1:] = hessian.matrix[1:, 0] = self.rows.transposed_product(h, engine)

    def advance(self, here: Here, step: Array) -> Here:
        old, lead = here.point, self.lead
        c = old.coefficients + step[lead:]
        intercept = old.intercept + (float(step[0]) if lead else 0.0)
        # Of all weights, not of the step: one vector less to read, and nothing adds up.
        found = self.evaluated(SpanPoint(c, intercept, self.combined(c)))
        assert found.gradient is not None
        return self.here(found, self.rows.transposed_product(found.gradient, self.engine))

    def combined(self, c: Array) -> Array:
        return self.rows.product(c, self.engine)

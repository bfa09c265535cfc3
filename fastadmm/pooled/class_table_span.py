r"""Passes over all columns, for the weights of several classes.

As :mod:`fastadmm.pooled.table_span`. Vectors over all weights are flat: intercepts, if there
are any, then the weights of one class after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.method.class_certificate import hessian_sums, multinomial_of, shifted
from fastadmm.method.span import Here, SpanPoint
from fastadmm.problem.problem import Problem

Array = np.ndarray

#: Relative curvature that an intercept has at least, as no class may be without any; and relative rounding of
#: a column's mean square.
_LEAST = 1e-12


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
        moved = span.combined(x)
        if lead:
            moved += (v[:lead] - x @ span.centre)[:, np.newaxis]
        bent = multinomial_of(span.problem).action(self.likely, span.problem.weight, moved, span.engine)
        image = np.empty_like(v)
        weights = image[lead:].reshape(classes, -1)
        np.add(span.products(bent), span.scale * x, out=weights)
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
    """Passes over all blocks, as they are."""

    def __init__(self, problem: Problem, engine: Engine) -> None:
        self.problem, self.engine, self.scale = problem, engine, problem.regularization
        self.lead = problem.n_outputs * int(problem.fit_intercept)
        self._columns = tuple(pairwise(accumulate((b.shape[1] for b in problem.blocks), initial=0)))
        self._means: tuple[Array, Array] | None = None

    @property
    def centre(self) -> Array:
        """Mean of each column, of shape (d,)."""
        return self._mean_and_square()[0]

    def _mean_and_square(self) -> tuple[Array, Array]:
        """Of each column the mean and the mean square."""
        if self._means is None:  # no cached property: that locks out workers which are threads
            blocks, engine, n = self.problem.blocks, self.engine, self.engine.all_rows(self.problem.n_samples)
            ones = np.full(self.problem.n_samples, 1.0 / n)
            mean = [block.transposed_product(ones, engine) for block in blocks] if self.lead else []
            squares = np.concatenate([block.column_squares(engine) for block in blocks]) / n
            self._means = np.concatenate(mean) if mean else np.zeros(len(squares)), squares
        return self._means

    @property
    def size(self) -> tuple[int, float]:
        """Number of unknowns, and of entries that are read for all classes in the rows of all workers."""
        problem, classes = self.problem, self.problem.n_outputs
        entries = sum(block.shape[1] * block.density for block in problem.blocks)
        unknowns = self.lead + classes * self._columns[-1][1]
        return unknowns, classes * entries * self.engine.all_rows(problem.n_samples)

    def parted(self, x: Array) -> list[Array]:
        """Weights of shape (C, d) by party."""
        return [np.ascontiguousarray(x[:, begin:end]) for begin, end in self._columns]

    def combined(self, x: Array) -> Array:
        """Sums of the messages, of shape (C, N), for weights of shape (C, d)."""
        pairs = zip(self.problem.blocks, self.parted(x))
        return reduce(_added, (block.matrix_product(own, self.engine) for block, own in pairs))

    def products(self, v: Array) -> Array:
        """Products of all columns with v of shape (C, N), of shape (C, d)."""
        blocks: Sequence = self.problem.blocks
        return np.concatenate([block.transposed_matrix_product(v, self.engine) for block in blocks], axis=1)

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
        slope = (self.products(gradient) + self.scale * c).ravel()
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
        return self.at(self.evaluated(SpanPoint(c, intercept, self.combined(c).ravel())))

    def hessian_at(self, point: SpanPoint) -> HessianOfClasses:
        """The Hessian of loss and regulariser at a point, by its products."""
        problem, engine = self.problem, self.engine
        z = shifted(problem.offset + point.total, point.intercept)
        likely = multinomial_of(problem).probabilities(z, problem.y, problem.weight, engine)
        bends = np.diag(hessian_sums(likely, problem.weight, engine))
        mean, squares = self._mean_and_square()
        # What centring leaves of a constant column is only rounding.
        left = np.maximum(squares - mean * mean, _LEAST * squares)
        sizes = (bends[:, np.newaxis] * left + self.scale).ravel()
        if self.lead:
            sizes = np.concatenate([bends + _LEAST * problem.total_weight, sizes])
        return HessianOfClasses(self, likely, sizes)

    def gap_share(self, here: Here) -> float:
        """What the slope in the weights adds to the duality gap."""
        slope = here.slope[self.lead :]
        return float(slope @ slope) / (2.0 * self.scale)


def _added(total: Array, own: Array) -> Array:
    total += own
    return total

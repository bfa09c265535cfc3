r"""The best weights of many columns in several classes: all classes' weights of a column descend together.

As :mod:`fastadmm.pooled.coordinate_newton`, by :mod:`fastadmm.kernels.class_descent`.
"""

import numpy as np

from fastadmm.engine.engine import row_ranges
from fastadmm.method.class_certificate import class_primal_value, hessian_sums, multinomial_of, shifted
from fastadmm.method.span import Here, SpanPoint
from fastadmm.parties.common_shift import sparsest_shift
from fastadmm.pooled.coordinate_newton import CoordinateSteps

Array = np.ndarray

#: The loss does not bend where all classes' weights move alike, but its stand-in this much of the mean.
_COMMON = 0.01

#: What images are divided by at least, where probabilities are nothing: neither is anything then.
_UNLIKELY = 1e-300


class ClassCoordinateNewton(CoordinateSteps):
    """The steps for the multinomial loss."""

    def at(self, c: Array, intercept: Array) -> Here:
        problem, columns = self.whole, self.columns
        total = np.concatenate([columns.product(own) for own in c])
        found = class_primal_value(problem, total, intercept, self.engine)
        rows = found.gradient.reshape(len(c), -1)
        slope = np.stack([columns.transposed_product(own) for own in rows])
        if self.lead:
            slope = np.column_stack([self.engine.total(rows), slope])
        return Here(SpanPoint(c, found.intercept, total, found.loss, found.gradient), slope, found.loss)

    def least(self, here: Here, chosen: Array, gap: float) -> tuple[Array, Array]:
        from fastadmm.kernels.class_descent import class_blocks, descend_class_columns

        problem, columns, lead = self.whole, self.columns, self.lead
        c, slope, n = here.point.coefficients, np.ascontiguousarray(here.slope[:, lead:]), self.classes
        z = shifted(problem.offset + here.point.total, here.point.intercept)
        likely = multinomial_of(problem).probabilities(z, problem.y, problem.weight, self.engine)
        bend, arrays = likely * problem.weight, (columns.indptr, columns.rows, columns.data)
        blocks, cross = np.empty((2, len(chosen), n, n))
        given = *arrays, likely, bend, chosen, blocks, cross
        self.engine.over_rows(class_blocks, row_ranges(len(chosen)), *given)
        inverse: Array = np.zeros((n * lead, n * lead))
        first = np.ascontiguousarray(here.slope[:, :lead].T.ravel())
        if lead:
            whole = hessian_sums(likely, problem.weight, self.engine)
            # The loss does not depend on the same number added to all intercepts.
            inverse = np.linalg.pinv(whole + max(float(np.trace(whole)), _UNLIKELY) / n**2, hermitian=True)
            blocks -= cross @ inverse @ cross
        places = np.zeros(columns.shape[1], dtype=np.int64)
        places[chosen] = np.arange(len(chosen))
        start, pull, divisor = c[:, chosen], slope[:, chosen], np.maximum(bend, _UNLIKELY)
        metric = arrays, (likely, bend, blocks, cross, places), (inverse, first), slope, self.terms

        def value(own: Array, image: Array, along: Array) -> float:
            loss = float(np.sum(pull * (own - start))) + 0.5 * self.engine.dot(image, image / divisor)
            end = first + along[: len(first)]
            return loss - 0.5 * float(end @ inverse @ end) + self.penalty(own)

        x, image, moved = c.copy(), np.zeros_like(likely), np.zeros(2 + n)
        descend = lambda *given: descend_class_columns(*metric, *given)  # noqa: E731
        if self.passes(descend, value, chosen, x, image, moved, self.price(chosen)):
            lift = inverse, first, np.moveaxis(cross, 1, 0).reshape(-1, n)[:, : n * lead]
            there = pull.ravel(), start.ravel(), x[:, chosen].ravel()
            found = self.on_gram(self._gram(chosen, likely, bend), *there, lift, gap).reshape(n, -1)
            l1, l2, low, high = self.terms
            if low == -np.inf and high == np.inf and max(l1, l2) > 0.0:
                found -= sparsest_shift(found, l1, l2)
            x[:, chosen] = found
            moved[2:] = np.einsum("kce,ek->c", cross, found - start)
        return x, (-inverse @ (first + moved[2 : 2 + n * lead])).reshape(n, lead)

    def _gram(self, chosen: Array, likely: Array, bend: Array) -> Array:
        """Hessian in all classes' weights of some columns, class by class."""
        n, k = len(likely), len(chosen)
        block, found = self.columns.some(chosen), np.zeros((n, k, n, k))
        for c in range(n):
            for e in range(c):
                pair = block.gram(self.engine, bend[c] * likely[e])
                found[c, :, e], found[e, :, c] = -pair, -pair
                found[c, :, c] += pair  # what a class gains others lose
                found[e, :, e] += pair
        found += np.einsum("ckcj->kj", found)[np.newaxis, :, np.newaxis] * (_COMMON / n**2)
        return found.reshape(n * k, n * k)

r"""Rows as the central path sees them: predictors of all weights, the loss there, and Newton's equations.

One predictor per row, or C of them: then all weights stand class by class, and the loss bends by
:math:`s\,(\mathrm{diag}(p) - p p^\top)`, the squares of :math:`\sqrt{s p_c}\,(v_c - \langle p, v\rangle)`: C
equations for each row, in which :math:`1 - p_c` is the sum of the others' probabilities, so that a class that
is nearly sure keeps its digits.
"""

from typing import Any

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.method.class_certificate import balancing, multinomial_of
from fastadmm.pooled.barrier import LossBarrier
from fastadmm.problem.problem import Problem

Array = np.ndarray

#: A row that bends less than this adds no equation.
_BENT = 1e-300


class PredictorRows:
    """Rows with one predictor. Shapes: values (N, d); none (C,)."""

    none: Any = 0.0  # of shape (C,): an intercept of zero

    def __init__(self, problem: Problem, values: Array, engine: Engine) -> None:
        self.problem, self.values, self.engine = problem, values, engine
        self.lead = int(problem.fit_intercept)
        self.barrier = LossBarrier(problem, engine)
        self.n_logarithms = self.barrier.n_logarithms
        #: With ones for an intercept first.
        self.whole = np.column_stack([np.ones(len(values)), values]) if self.lead else values

    def moved(self, step: Array, rise: Any) -> Array:
        """What a step of all weights, and one of the intercept, make of predictors."""
        moved: Array = self.values @ step + rise
        return moved

    def at(self, z: Array, mu: float) -> tuple[float, Array, Array]:
        """Value, gradient and curvature of the loss at predictors."""
        return self.barrier.at(z, mu)

    def slopes(self, u: Array) -> Array:
        """In all weights, of a gradient."""
        slopes: Array = self.values.T @ u
        return slopes

    def sums(self, u: Array) -> Array:
        """In all intercepts."""
        return np.full(self.lead, u.sum())

    def bent(self, h: Array, along: Array) -> Array:
        """What a curvature makes of a gradient along a step of predictors."""
        return h * along

    def stiff(self, h: Array) -> Array:
        """Diagonal of the Hessian."""
        stiff: Array = ((self.values * self.values) * h[:, None]).sum(axis=0)
        return stiff

    def balanced(self, u: Array, h: Array) -> Array:
        """With an intercept the sum of a loss gradient is to vanish to the last digits."""
        return u - h * (float(u.sum()) / float(h.sum())) if self.lead else u

    def rise(self, step: Array) -> Any:
        """Of the intercept, in a step of shape (lead,)."""
        return float(step.sum())

    def normal(self, u: Array, h: Array) -> tuple[Array, Array]:
        """Hessian and slope in intercepts and weights."""
        whole = self.whole
        return whole.T @ (whole * h[:, None]), whole.T @ u

    def equations(self, u: Array, h: Array) -> tuple[Array, Array]:
        """Rows and right-hand side of the least squares problem that these are the normal equations of."""
        rows = h > _BENT
        root = np.sqrt(h[rows])
        return self.whole[rows] * root[:, None], -u[rows] / root


class ClassRows(PredictorRows):
    """Rows with a predictor for each of C classes.

    Curvatures are probabilities, of shape (C, N). Intercepts may all move alike: the last one's stays.
    """

    def __init__(self, problem: Problem, values: Array, engine: Engine) -> None:
        self.problem, self.values, self.engine = problem, values, engine
        self.loss, self.classes = multinomial_of(problem), problem.n_outputs
        self.none, self.n_logarithms = np.zeros(self.classes), 0
        self.whole, each = np.column_stack([np.ones(len(values)), values]), values.shape[1] + 1
        weights = np.arange(self.classes * each).reshape(self.classes, each)
        self.lead = self.classes - 1 if problem.fit_intercept else 0
        #: Where intercepts and weights are in blocks of every class's intercept and weights.
        self.order = np.append(weights[: self.lead, 0], weights[:, 1:].ravel())

    def moved(self, step: Array, rise: Any) -> Array:
        return (step.reshape(self.classes, -1) @ self.values.T + rise[:, None]).ravel()

    def at(self, z: Array, mu: float) -> tuple[float, Array, Array]:
        problem, g = self.problem, np.empty_like(z)
        given = problem.y, problem.weight
        value = self.loss.evaluate(z, *given, g, self.engine)
        return value, g, self.loss.probabilities(z, *given, self.engine)

    def slopes(self, u: Array) -> Array:
        slopes: Array = (u.reshape(self.classes, -1) @ self.values).ravel()
        return slopes

    def sums(self, u: Array) -> Array:
        sums: Array = u.reshape(self.classes, -1).sum(axis=1)[: self.lead]
        return sums

    def bent(self, h: Array, along: Array) -> Array:
        direction = np.ascontiguousarray(along.reshape(self.classes, -1))
        return self.loss.action(h, self.problem.weight, direction, self.engine).ravel()

    def _others(self, h: Array) -> Array:
        """1 - p, of shape (C, N)."""
        others: Array = (1.0 - np.eye(self.classes)) @ h
        return others

    def stiff(self, h: Array) -> Array:
        stiff: Array = (self.problem.weight * h * self._others(h)) @ (self.values * self.values)
        return stiff.ravel()

    def balanced(self, u: Array, h: Array) -> Array:
        if not self.lead:
            return u
        weighted, excess = self.problem.weight * h, u.reshape(self.classes, -1).sum(axis=1)
        sums = -weighted @ h.T
        np.fill_diagonal(sums, (weighted * self._others(h)).sum(axis=1))
        return u - self.bent(h, np.repeat(balancing(sums, excess), len(self.values)))

    def rise(self, step: Array) -> Any:
        return np.append(step, np.zeros(self.classes - len(step)))

    def normal(self, u: Array, h: Array) -> tuple[Array, Array]:
        classes, each = self.classes, self.whole.shape[1]
        weighted, others = self.problem.weight * h, self._others(h)
        system = np.empty((classes * each, classes * each))
        for c in range(classes):
            for k in range(c + 1):
                bend = weighted[c] * (others[c] if c == k else -h[k])
                block = self.whole.T @ (self.whole * bend[:, None])
                system[c * each :, k * each :][:each, :each] = block
                system[k * each :, c * each :][:each, :each] = block.T
        right = (u.reshape(classes, -1) @ self.whole).ravel()
        return system[np.ix_(self.order, self.order)], right[self.order]

    def equations(self, u: Array, h: Array) -> tuple[Array, Array]:
        weighted, others = self.problem.weight * h, self._others(h)
        found, right = [], []
        for c, own in enumerate(u.reshape(self.classes, -1)):
            rows = weighted[c] > _BENT
            root = np.sqrt(weighted[c, rows])
            factors = -h[:, rows]
            factors[c] = others[c, rows]
            parts = (factors * root)[:, :, None] * self.whole[rows]
            found.append(np.concatenate(list(parts), axis=1)[:, self.order])
            right.append(-own[rows] / root)
        return np.vstack(found), np.concatenate(right)

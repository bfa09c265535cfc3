r"""Minimise the multinomial objective over the span of all messages, each class with its own coefficients.

.. math:: \min_{c, b}\; \sum_i s_i\, \ell\bigl(o_i + b + (V_k^\top c_k)_{i,\,k = 1 \ldots C}\bigr)
          + \frac{\lambda W}{2} \sum_k \|c_k\|^2

A message holds one row per class, and class k weighs the k-th rows of all
messages. Newton's method with backtracking. The Hessian has the structure of
the softmax, :math:`\mathrm{diag}(p) - p p^\top` per sample: a block per class,
minus one product of all rows with themselves. Up to a size it is formed
and factorised; beyond that conjugate gradients only apply it, with the blocks
per class as preconditioner.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from fastadmm.coordinator.class_certificate import hessian_sums, multinomial_of, shifted
from fastadmm.engine.engine import Engine
from fastadmm.problem.problem import Problem

__all__ = ["ClassSpanPoint", "minimise_over_class_span"]

Array = np.ndarray

_MAX_STEPS = 30

#: Largest Newton system that is formed; its cost grows with the square of the size.
_LARGEST_SYSTEM = 1024

#: Conjugate gradients: share of the residual that is left, and most steps.
_REDUCTION = 1e-2
_MAX_CG_STEPS = 60


@dataclass
class ClassSpanPoint:
    """A point of the span.

    Attributes
    ----------
    coefficients : ndarray of shape (C, K)
    intercept : ndarray of shape (C,)
    total : ndarray of shape (C N,)
        Sum of all parties' messages, class-major.
    """

    coefficients: Array
    intercept: Array
    total: Array


def minimise_over_class_span(
    problem: Problem, messages: Array, point: ClassSpanPoint, tolerance: float, engine: Engine
) -> ClassSpanPoint:
    """Newton's method from a point; never returns a worse one.

    Parameters
    ----------
    problem : Problem
        With the multinomial loss.
    messages : ndarray of shape (C, K, N)
        V: for each class its rows of all messages.
    point : ClassSpanPoint
        Start; its ``total`` must belong to its coefficients.
    tolerance : float
        Stop when half the squared Newton decrement is at most this. Summed scaling.
    engine : Engine
    """
    loss, y, weight, scale = multinomial_of(problem), problem.y, problem.weight, problem.regularization
    gradient = np.empty_like(point.total)
    classes = problem.n_outputs
    if messages.shape[1] == 0:
        return point

    def value(total: Array, c: Array, b: Array) -> float:
        loss_value = loss.evaluate(shifted(problem.offset + total, b), y, weight, gradient, engine)
        return loss_value + 0.5 * scale * float(np.sum(c * c))

    c, b, total = point.coefficients, point.intercept, point.total
    current = value(total, c, b)
    for _ in range(_MAX_STEPS):
        likely = loss.probabilities(shifted(problem.offset + total, b), y, weight, engine)
        slopes = gradient.reshape(classes, -1)
        slope = _project(messages, slopes, engine) + scale * c
        lift = engine.total(slopes) if problem.fit_intercept else np.zeros(classes)
        system = _System(problem, messages, likely, engine)
        step, rise = system.solve(slope, lift)
        decrease = -float(np.sum(slope * step)) - float(lift @ rise)
        if not (math.isfinite(decrease) and decrease > 0.0):
            break
        move = _combine(messages, step, engine).ravel()
        length = 1.0
        while True:
            trial = total + length * move, c + length * step, b + length * rise
            following = value(*trial)
            if following <= current - 1e-4 * length * decrease or length < 1e-12:
                break
            length *= 0.5
        if not following < current:
            break
        (total, c, b), current = trial, following
        if 0.5 * decrease <= tolerance:
            break
    return ClassSpanPoint(c, b, total)


def _combine(messages: Array, coefficients: Array, engine: Engine) -> Array:
    """Rows of all messages, weighed per class, of shape (C, N)."""
    out = np.empty((len(messages), messages.shape[2]))

    def work(rows: tuple[int, int]) -> None:
        for k in range(len(messages)):
            out[k, rows[0] : rows[1]] = coefficients[k] @ messages[k, :, rows[0] : rows[1]]

    engine.by_leaf(work, engine.leaves(messages.shape[2]), light=True)
    return out


def _project(messages: Array, v: Array, engine: Engine) -> Array:
    """Products of every message's rows with v of shape (C, N), of shape (C, K)."""

    def piece(rows: tuple[int, int]) -> Array:
        part = slice(*rows)
        return np.array([messages[k][:, part] @ v[k, part] for k in range(len(messages))])

    found: Array = engine.sums(piece, engine.leaves(messages.shape[2]), light=True)
    return found


class _System:
    """The Newton system at one point: unknowns are coefficients (C, K) and intercepts (C,)."""

    def __init__(self, problem: Problem, messages: Array, likely: Array, engine: Engine) -> None:
        self.problem, self.messages, self.likely, self.engine = problem, messages, likely, engine
        self.ridge = problem.regularization
        self.classes, self.k = messages.shape[:2]
        # On constants the loss does not depend on the intercepts: any positive value there will do.
        self.constant = problem.total_weight / self.classes**2

    def solve(self, slope: Array, lift: Array) -> tuple[Array, Array]:
        """Newton step in coefficients, of shape (C, K), and intercepts, of shape (C,)."""
        if self.classes * (self.k + 1) <= _LARGEST_SYSTEM:
            return self._direct(slope, lift)
        return self._iterative(slope, lift)

    def _direct(self, slope: Array, lift: Array) -> tuple[Array, Array]:
        classes, k, intercept = self.classes, self.k, self.problem.fit_intercept
        width = k + 1 if intercept else k
        hessian = self._blocks()
        hessian[np.diag_indices(len(hessian))] += self._diagonal_shift(width)
        right = np.empty((classes, width))
        right[:, :k] = slope
        if intercept:
            right[:, k] = lift
            corner = np.arange(classes) * width + k
            hessian[np.ix_(corner, corner)] += self.constant
        step = -_solve_positive(hessian, right.ravel()).reshape(classes, width)
        return step[:, :k], self._centred(step[:, k] if intercept else np.zeros(classes))

    def _diagonal_shift(self, width: int) -> Array:
        shift = np.full((self.classes, width), self.ridge)
        if self.problem.fit_intercept:
            shift[:, -1] = 1e-14 * self.problem.total_weight
        return shift.ravel()

    def _centred(self, rise: Array) -> Array:
        return rise - rise.mean() if self.problem.fit_intercept else np.zeros(self.classes)

    def _blocks(self) -> Array:
        """Hessian of the loss: blocks per class minus the product of all rows with themselves."""
        classes, k, intercept = self.classes, self.k, self.problem.fit_intercept
        width = k + 1 if intercept else k
        likely, weight, messages = self.likely, self.problem.weight, self.messages

        def piece(rows: tuple[int, int]) -> Array:
            part = slice(*rows)
            root = np.sqrt(weight[part])
            scaled = np.empty((classes, width, rows[1] - rows[0]))
            for c in range(classes):
                p = likely[c, part] * root
                np.multiply(messages[c][:, part], p, out=scaled[c, :k])
                if intercept:
                    scaled[c, k] = p
            flat = scaled.reshape(classes * width, -1)
            out = -(flat @ flat.T)
            for c in range(classes):
                # s p v v' from the rows at hand, each s^1/2 p v
                shares = likely[c, part]
                rows_of_class = scaled[c] / np.sqrt(np.maximum(shares, 1e-300))
                span = slice(c * width, (c + 1) * width)
                out[span, span] += rows_of_class @ rows_of_class.T
            return out

        leaves = self.engine.leaves(messages.shape[2])
        total = self.engine.sums(piece, leaves, size=(classes * width) ** 2)
        return 0.5 * (total + total.T)

    def _iterative(self, slope: Array, lift: Array) -> tuple[Array, Array]:
        """Preconditioned conjugate gradients on the system that is only applied."""
        precondition = self._preconditioner()
        step, rise = np.zeros_like(slope), np.zeros_like(lift)
        left, left_lift = -slope, -lift
        ready, ready_lift = precondition(left, left_lift)
        direction, direction_lift = ready, ready_lift
        power = float(np.sum(left * ready)) + float(left_lift @ ready_lift)
        target = _REDUCTION**2 * power
        for _ in range(_MAX_CG_STEPS):
            image, image_lift = self._apply(direction, direction_lift)
            curvature = float(np.sum(direction * image)) + float(direction_lift @ image_lift)
            if not curvature > 0.0:
                break
            length = power / curvature
            step, rise = step + length * direction, rise + length * direction_lift
            left, left_lift = left - length * image, left_lift - length * image_lift
            ready, ready_lift = precondition(left, left_lift)
            following = float(np.sum(left * ready)) + float(left_lift @ ready_lift)
            if not following > target:
                break
            direction = ready + (following / power) * direction
            direction_lift = ready_lift + (following / power) * direction_lift
            power = following
        return step, self._centred(rise)

    def _apply(self, direction: Array, lift: Array) -> tuple[Array, Array]:
        loss, engine = multinomial_of(self.problem), self.engine
        move = _combine(self.messages, direction, engine) + lift[:, np.newaxis]
        image = loss.action(self.likely, self.problem.weight, move, engine)
        up = engine.total(image) + self.constant * lift.sum() if self.problem.fit_intercept else 0.0 * lift
        return _project(self.messages, image, engine) + self.ridge * direction, up

    def _preconditioner(self):  # type: ignore[no-untyped-def]
        """Inverse of the blocks per class, and of the intercepts' block."""
        weight, messages = self.problem.weight, self.messages

        def piece(rows: tuple[int, int]) -> Array:
            here = slice(*rows)
            blocks = np.empty((self.classes, self.k, self.k))
            for c, block in enumerate(blocks):
                likely = self.likely[c, here]
                part = messages[c][:, here] * np.sqrt(weight[here] * likely * (1.0 - likely))
                np.matmul(part, part.T, out=block)
            return blocks

        leaves = self.engine.leaves(messages.shape[2])
        blocks = self.engine.sums(piece, leaves, size=self.classes * self.k**2)

        def factor(c: int) -> tuple[Array, bool]:
            block = blocks[c]
            block[np.diag_indices(self.k)] += self.ridge
            return scipy.linalg.cho_factor(block, check_finite=False)

        factors = self.engine.map(factor, range(self.classes))
        corner = hessian_sums(self.likely, weight, self.engine) + self.constant
        corner[np.diag_indices(self.classes)] += 1e-14 * self.problem.total_weight

        def apply(left: Array, lift: Array) -> tuple[Array, Array]:
            solved = [scipy.linalg.cho_solve(f, row, check_finite=False) for f, row in zip(factors, left)]
            up = _solve_positive(corner, lift) if self.problem.fit_intercept else np.zeros_like(lift)
            return np.array(solved), up

        return apply


def _solve_positive(matrix: Array, right: Array) -> Array:
    """Solve a system that is positive definite up to rounding and scale."""
    size = np.sqrt(np.maximum(np.diag(matrix), 1e-300))
    scaled = matrix / np.outer(size, size)
    diagonal = np.diag_indices(len(right))
    ridge = 0.0
    while ridge < 1.0:
        scaled[diagonal] = 1.0 + ridge
        try:
            factor = scipy.linalg.cho_factor(scaled, check_finite=False)
        except scipy.linalg.LinAlgError:
            ridge = max(1e-14, 100.0 * ridge)
        else:
            return scipy.linalg.cho_solve(factor, right / size, check_finite=False) / size
    return right / np.diag(matrix)

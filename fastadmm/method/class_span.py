r"""Minimise the multinomial objective over the span of all messages, with coefficients of each class.

.. math:: \min_{A, b}\; \sum_i s_i\, \ell\bigl(o_i + b + A v_i\bigr) + \frac{\lambda W}{2} \|A\|^2

Every class may use every message: :math:`v_i` holds the K messages' numbers of sample i, A is C x K. A
quasi-Newton method (BFGS) that starts from one matrix of the messages for all classes: a step is one pass
over the messages, and no Hessian is formed at the points that it visits.

The Hessian, :math:`\sum_i (\mathrm{diag}(p_i) - p_i p_i^\top) \otimes v_i v_i^\top`, has C K rows. In its
place :math:`T \otimes \sum_i h_i v_i v_i^\top`, with the mean curvature h of the classes per sample and the
mean T of the other factor. In the eigenvectors of T the classes are apart: it is solved by C
factorisations of K rows, and a new message costs its products with the others once for all classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.method.certificate import MAX_STEPS
from fastadmm.method.class_certificate import multinomial_of
from fastadmm.method.span import Best, Here, Secant, Span, SpanPoint, is_lower, span_solver
from fastadmm.method.span_hessian import SpanHessian
from fastadmm.problem.problem import Problem

Array = np.ndarray

#: Classes so rare that the Hessian is a smaller share of the mean along them get this share: their
#: curvature grows as they are learned.
_LEAST_SHARE = 0.1


class ClassSpanHessian:
    """Kronecker product in place of the summed loss's Hessian. Shapes: classes (C, C)."""

    def __init__(self, intercept: bool) -> None:
        self.span = SpanHessian(intercept)
        self.reflect, self.drop = self.span.reflect, self.span.drop
        self.classes = np.empty((0, 0))

    def refresh(self, messages: Array, curvature: Array, sums: Array, engine: Engine) -> None:
        """Move to another point. Shapes: messages (K, N); curvature (N,); sums (C, C)."""
        n, trace = len(sums), float(np.trace(sums))
        scaled = sums * (n / trace) if trace > 0.0 else np.eye(n)
        self.classes = scaled + 1.0 / n
        self.span.refresh(messages, curvature, engine)

    def extend(self, messages: Array, engine: Engine) -> None:
        """Take in the messages, of shape (K, N), behind those that it knows."""
        reference = self.span.reference
        assert reference is not None
        if len(messages) > self.span.n_messages:
            self.span.extend(messages, reference, engine)

    def solver(self, ridge: float, total_weight: float) -> Callable[[Array], Array]:
        """Solver of the system with a regulariser."""
        shares, turn = np.linalg.eigh(self.classes)
        lead, rows = self.span.lead, len(self.span.matrix)
        diagonal = np.full(rows, ridge)
        diagonal[:lead] = 1e-14 * total_weight
        solvers = []
        for share in shares:
            system = max(float(share), _LEAST_SHARE) * self.span.matrix
            system[np.diag_indices(rows)] += diagonal
            solvers.append(span_solver(system))

        def solve(slope: Array) -> Array:
            turned = turn.T @ slope.reshape(len(shares), rows)
            solved = np.array([one(row) for one, row in zip(solvers, turned)])
            return (turn @ solved).ravel()

        return solve


#: Shortest step, as a share of the first.
_SHORTEST = 1e-8


def minimise_over_class_span(
    problem: Problem,
    messages: Array,
    point: SpanPoint,
    tolerance: float,
    engine: Engine,
    hessian: ClassSpanHessian,
) -> SpanPoint:
    """Descend from a point; never returns a worse one.

    Shapes: messages (K, N).
    Scaling: tolerance summed scaling.
    """
    if len(messages) == 0:
        return point
    span = ClassSpan(problem, messages, engine)
    here = span.begin(point)
    solve = Secant(hessian.solver(problem.regularization, problem.total_weight))
    best = Best(span, here, MAX_STEPS)
    for _ in range(MAX_STEPS):
        if span.gap_share(here) <= tolerance:
            break
        found = _step(span, here, -solve(here.slope.ravel()).reshape(here.slope.shape))
        if found is None:
            break
        trial, step = found
        solve.learn(step.ravel(), (trial.slope - here.slope).ravel())
        decrease, here = -float(np.sum(here.slope * step)), trial
        if best.take(here, decrease, tolerance):
            break
    end: SpanPoint = best.here.point
    return end


def _step(span: ClassSpan, here: Here, step: Array) -> tuple[Here, Array] | None:
    """A point that is lower along a step, and how it was reached; None if rounding hides all of them."""
    promised, length = -float(np.sum(here.slope * step)), 1.0
    if not (math.isfinite(promised) and promised > 0.0):
        return None
    while length > _SHORTEST:
        trial = span.moved(here.point, length * step)
        if is_lower(span, here, trial, length * step):
            return trial, length * step
        # To where the derivative along the step, as far as it is linear, is zero.
        rise = promised + float(np.sum(trial.slope * step))
        length *= min(max(promised / rise, 0.1), 0.5) if math.isfinite(rise) and rise > 0.0 else 0.1
    return None


class ClassSpan(Span):
    """Passes over the messages of one problem."""

    problem: Problem

    def begin(self, point: SpanPoint) -> Here:
        """A point whose loss and gradient are known."""
        assert point.gradient is not None
        rows = point.gradient.reshape(self.problem.n_outputs, -1)
        return self._here(point, self.products(rows).T, self.engine.total(rows))

    def products(self, rows: Array) -> Array:
        """V times a gradient by class. Shapes: rows (C, N); the result (K, C)."""
        from fastadmm.kernels.blas import routine
        from fastadmm.kernels.span_hessian import span_products

        leaves, shape = self.engine.leaves(rows.shape[1]), (len(self.messages), len(rows))
        given = self.messages, rows, routine("dgemm")
        found: Array = self.engine.sum_over_rows(span_products, leaves, shape, *given)
        return found

    def moved(self, old: SpanPoint, step: Array) -> Here:
        """The point a step further: messages are read once."""
        problem, lead = self.problem, self.lead
        c, b = old.coefficients + step[:, lead:], old.intercept
        if lead:
            b = b + (step[:, 0] - step[:, 0].mean())
        total, gradient = np.empty_like(old.total), np.empty_like(old.total)
        loss, slopes, sums = multinomial_of(problem).advance_classes(
            self.messages, step[:, lead:], old.total, problem, b, total, gradient, self.engine
        )
        return self._here(SpanPoint(c, b, total, loss, gradient), slopes, sums)

    def _here(self, point: SpanPoint, slopes: Array, sums: Array) -> Here:
        c, scale = point.coefficients, self.scale
        slope = slopes + scale * c
        if self.lead:
            slope = np.column_stack([sums, slope])
        return Here(point, slope, point.loss + 0.5 * scale * float(np.sum(c * c)))

    def gap_share(self, here: Here) -> float:
        """What the coefficients' slope adds to the duality gap."""
        slope = here.slope[:, self.lead :]
        return float(np.sum(slope * slope)) / (2.0 * self.scale)

r"""The best weights of few columns in several classes: proximal quasi-Newton steps on one matrix for all.

A step minimises a parabola and the penalty itself by coordinate descent, as in
:mod:`fastadmm.coordinator.proximal.narrow_newton`. Its matrix has C d rows; the Hessian would cost as many
passes over the columns. In its place stands the Kronecker product of
:mod:`fastadmm.coordinator.multinomial.span_hessian`, corrected by what the steps taken with it showed (BFGS).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fastadmm.coordinator.class_certificate import hessian_sums, multinomial_of, shifted
from fastadmm.coordinator.metric_limits import drift_share, raised
from fastadmm.coordinator.multinomial.span import ClassHere, ClassSpan, ClassSpanPoint
from fastadmm.coordinator.proximal.small_steps import NOTHING, change_along, change_to
from fastadmm.coordinator.subspace.span_hessian import SpanHessian
from fastadmm.engine.engine import Engine
from fastadmm.parties.common_shift import sparsest_shift
from fastadmm.parties.xupdate.gram_descent import minimise_on_gram
from fastadmm.problem.penalty import PartyPenalty
from fastadmm.problem.problem import Problem

__all__ = ["minimise_over_all_classes"]

Array = np.ndarray

_MAX_STEPS, _MAX_HALVINGS = 200, 40

#: As in :mod:`fastadmm.coordinator.proximal.narrow_newton`.
_ARMIJO = 1e-4

#: The loss does not bend where all classes' weights move alike, but its stand-in this much of the mean.
_COMMON = 0.01

#: Coordinate descent leaves of a step's decrease, weight by weight, the square of this share of the last's;
#: in its own unit at least and at most so much.
_LEFT, _FINEST, _COARSEST = 0.1, 1e-12, 1e-4

#: Changes of the slope that are less than this share of what they could be are rounding.
_BENT = 1e-10


def minimise_over_all_classes(
    problem: Problem,
    penalty: PartyPenalty,
    messages: Array,
    point: ClassSpanPoint,
    goal: float,
    engine: Engine,
) -> ClassSpanPoint:
    """Proximal quasi-Newton steps from a point; never returns a worse one.

    Shapes: messages (d, N).
    Scaling: goal summed scaling.
    """
    span = ClassSpan(problem, messages, engine, ridge=False)
    model = _Model(problem, penalty, span)
    here = span.start(point)
    fresh = model.move(here)
    x, step, promised = model.least(here)
    for _ in range(_MAX_STEPS):
        taken = None
        if promised > NOTHING * abs(here.value):
            taken = _taken(span, model, here, x, step, promised)
        if taken is None:
            if fresh:
                break
            fresh = model.move(here, always=True)
            x, step, promised = model.least(here)
            continue
        trial, length = taken
        model.learn(length * step, trial.slope - here.slope)
        here = trial
        if promised <= goal:
            break
        fresh = model.move(here)
        x, step, promised = model.least(here)
    return here.point


def _taken(
    span: ClassSpan, model: _Model, here: ClassHere, x: Array, step: Array, promised: float
) -> tuple[ClassHere, float] | None:
    """Where a step, perhaps shortened, leads, and the length; None if nowhere lower."""
    length, c, (l1, l2) = 1.0, here.point.coefficients, model.scale[:2]
    for _ in range(_MAX_HALVINGS):
        trial = span.advance(here.point, length * step)
        if length == 1.0:  # on kinks exactly
            trial = replace(trial, point=replace(trial.point, coefficients=x))
        given = length * step, c, trial.point.coefficients, l1, l2, promised
        if change_to(here, trial, *given) <= -_ARMIJO * length * promised:
            return trial, length
        length *= 0.5
    return None


class _Model:
    """The parabola, and the penalty."""

    def __init__(self, problem: Problem, penalty: PartyPenalty, span: ClassSpan) -> None:
        self.problem, self.span, self.loss = problem, span, multinomial_of(problem)
        self.classes, self.lead = problem.n_outputs, span.lead
        self.scale = *penalty.coefficients, *penalty.constraint.bounds
        self.shifts = not np.isfinite(self.scale[2:]).any() and max(self.scale[:2]) > 0.0
        self.gram = SpanHessian(problem.fit_intercept)
        self.metric: Array | None = None
        self.usual = float("nan")
        rows = span.lead + len(span.messages)
        #: Of a matrix anew, in passes.
        self.price = len(span.messages) / (8.0 * self.classes)
        self.steps = 0
        self.matrix: Array = np.empty((0, 0))
        self.promised = float("inf")
        self.free = np.tile(np.arange(rows) < span.lead, self.classes)  # intercepts

    def move(self, here: ClassHere, always: bool = False) -> bool:
        """Take the parabola's matrix to a point, if it has gone astray; whether it did."""
        problem, engine, point = self.problem, self.span.engine, here.point
        self.steps += 1
        if self.metric is not None and self.steps < self.price and not always:
            return False
        assert point.gradient is not None
        h = self.loss.mean_curvature(point.gradient, problem.weight, engine)
        share, mean = drift_share(h, self.metric, self.usual, engine)
        if share <= 1.0 and not always:
            return False
        if not mean > 0.0:
            mean = 0.5 * problem.total_weight / engine.all_rows(problem.n_samples)
        self.metric, self.usual, self.steps = raised(h, mean, engine), mean, 0
        z = shifted(problem.offset + point.total, point.intercept)
        likely = self.loss.probabilities(z, problem.y, problem.weight, engine)
        sums = hessian_sums(likely, problem.weight, engine)
        n, trace = self.classes, float(np.trace(sums))
        shares = (sums * (n / trace) if trace > 0.0 else np.eye(n)) + _COMMON / n
        self.gram.refresh(self.span.messages, h, engine)
        self.matrix = np.kron(shares, self.gram.matrix)
        return True

    def learn(self, step: Array, change: Array) -> None:
        """Let the matrix map a step to the change of the slope along it."""
        s, y = step.ravel(), change.ravel()
        image = self.matrix @ s
        bent, told = float(s @ y), float(s @ image)
        if bent > _BENT * told > 0.0:
            self.matrix += np.outer(y / bent, y) - np.outer(image / told, image)

    def least(self, here: ClassHere) -> tuple[Array, Array, float]:
        """Weights where parabola and penalty are least, the step there, and the decrease that it promises."""
        c, slope = here.point.coefficients, here.slope.ravel()
        free, matrix, start = self.free, self.matrix, c.ravel()
        step = np.zeros(len(slope))
        if not self.lead:
            x = self._descended(matrix, slope, start)
        else:
            rest, cross = ~free, matrix[np.ix_(free, ~free)]
            solved = np.linalg.solve(matrix[np.ix_(free, free)], np.column_stack([cross, slope[free]]))
            schur = matrix[np.ix_(rest, rest)] - cross.T @ solved[:, :-1]
            tilted = slope[rest] - cross.T @ solved[:, -1]
            x = self._descended(0.5 * (schur + schur.T), tilted, start)
            step[free] = -solved[:, -1] - solved[:, :-1] @ (x - start)
        x = x.reshape(c.shape)
        if self.shifts:
            x = x - sparsest_shift(x, *self.scale[:2])
        step[~free] = (x - c).ravel()
        by_class = step.reshape(self.classes, -1)
        self.promised = -change_along(here.slope, by_class, c, x, *self.scale[:2])
        return x, by_class, self.promised

    def _descended(self, matrix: Array, slope: Array, start: Array) -> Array:
        """Coordinate descent on the parabola and the penalty, as far as the last step says that it pays."""
        curvature = matrix.diagonal() + self.scale[1]
        sizes = np.abs(slope) + self.scale[0]
        bent = curvature > 0.0
        size = float((sizes[bent] / np.sqrt(curvature[bent])).max(initial=0.0))
        left = _LEFT * math.sqrt(max(self.promised, 0.0) / len(start))
        tolerance = min(max(left / size, _FINEST), _COARSEST) if size > 0.0 else _FINEST
        n = self.problem.n_samples
        return minimise_on_gram(matrix, slope, start, self.scale, start, n, tolerance)

r"""Subspace Newton sharing for losses with kinks: smoothed with moving centres, certified on the loss itself.

Rounds run on a smooth loss: see :mod:`fastadmm.coordinator.smoothing`. If smoothing caused too much of the
gap, the next round starts with a new centre and width, at the minimiser over the span for these, because the
old minimiser's gradient would bring no new information. The certificate is about the loss itself: the
objective is evaluated with it, and a gradient of the smoothed loss lies in the domain of its conjugate, so
that it is a dual point of both problems.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fastadmm.conversation.exchange import Talk
from fastadmm.coordinator.metric_limits import directions_for_kinks
from fastadmm.coordinator.smoothing import Smoothing
from fastadmm.coordinator.subspace.subspace import SubspaceMethod
from fastadmm.engine.engine import Engine
from fastadmm.method.certificate import PrimalValue, dual_bound, primal_value
from fastadmm.method.method import Measured
from fastadmm.method.span import SpanPoint
from fastadmm.problem.problem import Problem

#: Most centres in one round: each takes one minimisation over the span.
_MOST_CENTRES = 3

#: What a new centre multiplies the width by.
_NARROWER = 0.5

#: These are solved to so much of the gap: what is left over counts with the round's own directions.
_ACCURACY = 0.03

#: Less of the gap than this share of it is not asked of the span: smoothing causes more.
_IN_VAIN = 1e-3

#: What is saved beside what any run by directions saves.
SAVED = (*Smoothing.SAVED, "bound", "last_gap: gap", "exact_intercept: _intercept")


class SmoothedSubspaceMethod(SubspaceMethod):
    """Subspace Newton sharing on a smoothed copy of the problem."""

    row_keys = (*SubspaceMethod.row_keys, *Smoothing.row_keys)
    SAVED = (*SubspaceMethod.SAVED, *SAVED)

    def __init__(self, problem: Problem, engine: Engine, directions: int | None = None) -> None:
        super().__init__(problem, engine, directions)
        self.limit = directions_for_kinks(problem.n_parties, engine.all_rows(problem.n_samples))
        self.smoothing = Smoothing(problem, engine)
        self.gap = math.inf
        self._intercept = 0.0

    def reopen(self) -> float:
        start = primal_value(self.problem, np.zeros(self.problem.n_samples), 0.0, self.engine)
        self._intercept = start.intercept
        self.smoothing.begin(start.loss)
        self.set_problem(self.smoothing.smoothed())
        super().reopen()
        return start.loss

    def _at_start(self, point: SpanPoint) -> None:
        primal = primal_value(self.problem, point.total, point.intercept, self.engine)
        self._intercept = point.intercept = primal.intercept
        if self.smoothing.begin_near(primal.loss + self.regulariser()):
            self.set_problem(self.smoothing.smoothed())

    def round(self) -> Talk[Measured]:
        self._refine()
        # Of a span of all weights nothing but smoothing's share is left.
        useless = self.complete and math.isfinite(self.gap)
        self.in_vain = _IN_VAIN * self.gap if useless else 0.0
        measured = yield from super().round()
        primal = primal_value(self.problem, self.point.total, self._intercept, self.engine)
        self._intercept = primal.intercept
        objective = primal.loss + self.regulariser() + self._rounding()
        self.gap = max(objective - self.bound, 0.0)
        return replace(measured, objective=objective, lower_bound=self.bound, augmented_lagrangian=objective)

    def _refine(self) -> None:
        """Smooth about the last gradient while smoothing causes too much of the gap."""
        smoothing = self.smoothing
        for _ in range(_MOST_CENTRES):
            asked = self.dual_point()
            if asked is None:
                break
            total, intercept, gradient = asked
            z = self.engine.plus(self.problem.offset, total, intercept)
            if smoothing.excess(z, gradient, self.gap) <= 1.0:
                break
            smoothing.move(gradient, _NARROWER)
            self.set_problem(smoothing.smoothed())
            self.point = self.minimise(_ACCURACY * self.gap)
            self.start(self.point.intercept)

    def _bound_rounding(self) -> float:
        """By how much rounding of messages may have raised the bound that is computed; not positive."""
        return 0.0

    def _rounding(self) -> float:
        """By how much rounding can have lowered the objective that is computed."""
        return 0.0

    def _lower_bound(self, start: PrimalValue, total: np.ndarray, regulariser: float, gaps: float) -> float:
        # The gradient of the smoothed loss, as a dual point of the problem itself.
        found = dual_bound(self.problem, start.gradient, total, regulariser, gaps, self.engine)
        found += self._bound_rounding()
        self.raise_bound(found, start.gradient)
        return found

    @property
    def intercept(self) -> float:
        return self._intercept

    def _go_on(self) -> None:
        self.solved = self.smoothing.smoothed()

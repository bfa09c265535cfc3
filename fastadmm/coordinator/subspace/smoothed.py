r"""Subspace Newton sharing for losses with kinks: smoothed ever less, certified on the loss itself.

A loss with a kink is a maximum, :math:`\ell(z) = \max_{u \in [a, b]} u e(z)`;
subtracting :math:`\tfrac\gamma2 u^2` inside gives a smooth loss
:math:`\ell_\gamma \le \ell \le \ell_\gamma + \tfrac\gamma2 \max u^2` (Nesterov
2005). Rounds run on :math:`\ell_\gamma`, with a width that is as large as its
share of the gap allows: see :mod:`fastadmm.coordinator.smoothing_width`. The
certificate is about the loss itself: the objective is evaluated with it, and
since :math:`\ell_\gamma^* = \ell^* + \tfrac\gamma2 u^2` on the same domain, the
gradient of the smoothed loss is a dual point of both problems.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from fastadmm.conversation.exchange import Talk
from fastadmm.coordinator.certificate import PrimalValue, dual_bound, primal_value
from fastadmm.coordinator.method import Measured
from fastadmm.coordinator.smoothing_width import next_width
from fastadmm.coordinator.subspace.span import SpanPoint
from fastadmm.coordinator.subspace.subspace import SubspaceMethod
from fastadmm.engine.engine import Engine
from fastadmm.problem.problem import Problem

__all__ = ["SmoothedSubspaceMethod"]

#: Width of the smoothing at a warm start, as a share of the objective there.
_WIDTH_AT_START = 1e-3


class SmoothedSubspaceMethod(SubspaceMethod):
    """Subspace Newton sharing on a smoothed copy of the problem.

    Parameters
    ----------
    problem : Problem
        With a loss that has a smoothed form.
    engine : Engine
    directions : int, optional
        As in :class:`fastadmm.coordinator.subspace.subspace.SubspaceMethod`.
    """

    def __init__(self, problem: Problem, engine: Engine, directions: int | None = None) -> None:
        super().__init__(problem, engine, directions)
        self.coordinator.few_bend = True
        self.width = 0.0
        self.bound = -math.inf
        self._intercept = 0.0

    def reopen(self) -> float:
        zero = np.zeros(self.problem.n_samples)
        start = primal_value(self.problem, zero, 0.0, self.engine)
        self._intercept = start.intercept
        # At zero weights nothing is proved yet: the objective itself is the gap.
        # Constant targets may leave no loss at all; any width serves then.
        self._set_width(start.loss / self.problem.total_weight or 1.0)
        super().reopen()
        return start.loss

    def _at_start(self, point: SpanPoint) -> None:
        primal = primal_value(self.problem, point.total, point.intercept, self.engine)
        objective = primal.loss + self.coordinator.regulariser()
        self._intercept = point.intercept = primal.intercept
        width = _WIDTH_AT_START * objective / self.problem.total_weight
        if 0.0 < width < self.width:
            self._set_width(width)

    def _set_width(self, width: float) -> None:
        smoothed = self.problem.loss.smoothed(width)
        if smoothed is None:
            raise TypeError(f"loss {self.problem.loss.name!r} has no smoothed form")
        self.width = width
        self.coordinator.set_problem(replace(self.problem, loss=smoothed))

    def round(self) -> Talk[Measured]:
        coordinator, problem = self.coordinator, self.problem
        measured = yield from super().round()
        self.bound = max(self.bound, measured.lower_bound)
        primal = primal_value(problem, coordinator.point.total, self._intercept, self.engine)
        self._intercept = primal.intercept
        objective = primal.loss + coordinator.regulariser() + self._rounding()
        point = coordinator.point
        z = problem.offset + point.total + point.intercept
        width = next_width(problem, z, self.width, max(objective - self.bound, 0.0), self.engine)
        if width < self.width:
            self._set_width(width)
            coordinator.start(coordinator.point.intercept)
        return replace(measured, objective=objective, lower_bound=self.bound, augmented_lagrangian=objective)

    def _rounding(self) -> float:
        """By how much rounding can have lowered the objective that is computed."""
        return 0.0

    def _lower_bound(self, start: PrimalValue, total: np.ndarray, regulariser: float, gaps: float) -> float:
        # The gradient of the smoothed loss, as a dual point of the problem itself.
        return dual_bound(self.problem, start.gradient, total, regulariser, gaps, self.engine)

    @property
    def intercept(self) -> float:
        return self._intercept

    def export(self) -> dict[str, Any]:
        own = {"width": self.width, "bound": self.bound, "exact_intercept": self._intercept}
        return {**super().export(), **own}

    def restore(self, saved: dict[str, Any]) -> None:
        self._set_width(float(saved["width"]))
        self.bound, self._intercept = float(saved["bound"]), float(saved["exact_intercept"])
        super().restore(saved)

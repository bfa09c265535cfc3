"""Proximal Newton sharing of few columns of several classes in one process: all of them at once.

As :mod:`fastadmm.coordinator.proximal.narrow`; a party's classes have its columns in common.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fastadmm.coordinator.certificate import PrimalValue
from fastadmm.coordinator.multinomial.span import ClassSpanPoint
from fastadmm.coordinator.proximal.hull import HullPoint
from fastadmm.coordinator.proximal.multinomial import MultinomialProximalMethod
from fastadmm.coordinator.proximal.narrow import NarrowProximalMethod
from fastadmm.coordinator.proximal.narrow_class_newton import minimise_over_all_classes

__all__ = ["NarrowClassesMethod"]

Array = np.ndarray


class NarrowClassesMethod(NarrowProximalMethod, MultinomialProximalMethod):
    """Rounds with all columns for C classes; parameters as :class:`NarrowProximalMethod`."""

    def _proofs(self, gradient: Array) -> list[dict[str, Any]]:
        rows = gradient.reshape(self.problem.n_outputs, -1)
        return [
            answer for party, x in zip(self.parties, self.weights()) for answer in party.bound_at(rows, x.T)
        ]

    def _minimise_from(self, primal: PrimalValue, objective: float) -> float:
        coordinator, penalty = self.coordinator, self.parties[0].parts[0].penalty
        model, shared = coordinator.model, coordinator.shared
        table = shared.by_class(model.coefficients)
        point = ClassSpanPoint(table, np.array(primal.intercept), model.total, primal.loss, primal.gradient)
        goal = self.goal(objective)
        found = minimise_over_all_classes(self.problem, penalty, shared.messages, point, goal, self.engine)
        c = found.coefficients[shared.classes, shared.rows]
        coordinator.model = coordinator.proposal = HullPoint(c, found.intercept, found.total)
        primal = coordinator.evaluate()
        self._intercept = primal.intercept
        return self.objective(primal)

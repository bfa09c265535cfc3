"""ADMM sharing of a multinomial model: the scalar method with C numbers per sample."""

from __future__ import annotations

from typing import Any

import numpy as np

from fastadmm.coordinator.admm.admm import AdmmMethod
from fastadmm.coordinator.certificate import PrimalValue
from fastadmm.coordinator.class_certificate import class_primal_value, multinomial_of, shifted
from fastadmm.parties.classes import ClassParty
from fastadmm.parties.proximal import Party

__all__ = ["MultinomialAdmmMethod"]


class MultinomialAdmmMethod(AdmmMethod):
    """Sharing, Jacobi or Gauss-Seidel ADMM for C classes; parameters as :class:`AdmmMethod`."""

    family = ""  # the table's rows are N numbers, not C N

    def make_parties(self) -> list[Party]:
        problem = self.problem
        multinomial_of(problem)
        return [
            ClassParty(
                name,
                block,
                problem.regularization,
                self.engine,
                problem.n_outputs,
                self.x_update,
                regularizer,
                constraint,
            )
            for name, block, regularizer, constraint in zip(
                problem.names, problem.blocks, problem.party_regularizers, problem.party_constraints
            )
        ]

    def _primal(self, total: np.ndarray, intercept: Any) -> PrimalValue:
        start = np.broadcast_to(np.asarray(intercept, dtype=np.float64), (self.problem.n_outputs,))
        return class_primal_value(self.problem, total, start, self.engine)

    def _loss_at_z(self) -> float:
        problem, coordinator = self.problem, self.coordinator
        z = shifted(coordinator.last.z + problem.offset, np.asarray(coordinator.intercept))
        return problem.loss.evaluate(z, problem.y, problem.weight, np.empty_like(z), self.engine)

    def weights(self) -> list[np.ndarray]:
        return [party.weights.T for party in self.parties]

    def export(self) -> dict[str, Any]:
        return {**super().export(), "intercept": np.asarray(self.coordinator.intercept)}

    def restore(self, saved: dict[str, Any]) -> None:
        intercept = np.array(saved["intercept"], dtype=np.float64)
        exact = np.array(saved["exact_intercept"], dtype=np.float64)
        if intercept.shape != (self.problem.n_outputs,) or exact.shape != intercept.shape:
            raise ValueError("intercept")
        super().restore({**saved, "intercept": 0.0, "exact_intercept": 0.0})
        self.coordinator.intercept, self._intercept = intercept, exact

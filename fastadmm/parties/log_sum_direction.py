r"""A party in a subspace run with the regulariser ``log_sum``.

Its residual has the gradient of log_sum. Its Newton direction has, in place of the curvature of squared l2,
that of the parabolas above log_sum at the current weights: never negative, and small where weights are
large, as log_sum's own is. The party sends value, slope and curvature of log_sum along its directions.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.conversation.answering import Unanswerable
from fastadmm.engine.engine import Engine
from fastadmm.parties.direction import DirectionParty, cholesky
from fastadmm.problem.regularizers import LogSum, Regularizer


class LogSumDirectionParty(DirectionParty):
    """A party of directions with the log-sum regulariser."""

    family = "log_sum"
    takes = ("regularizer",)

    @staticmethod
    def shows_columns(regularizer: str, constraint: str) -> bool:
        return True  # a sum over weights: a rotation of all columns changes it

    def __init__(
        self, name: str, block: FeatureBlock, regularization: float, engine: Engine, regularizer: Regularizer
    ) -> None:
        super().__init__(name, block, regularization, engine)
        if not isinstance(regularizer, LogSum):
            raise Unanswerable(f"regularizer {regularizer.text!r} is not of the family {self.family!r}")
        self.regularizer = regularizer
        self._gram: np.ndarray | None = None
        self._above = np.ones(block.shape[1])

    def bend(self, coefficients: np.ndarray) -> dict[str, Any]:
        """Value, slope and curvature of the regulariser along the directions, times ``lambda W``.

        Shapes: coefficients (K,).
        """
        x, scale, known = self.weights(self._own(coefficients)), self.regularization, self.directions
        exact, above = self.regularizer.curvatures(x)
        return {
            "value": scale * self.regularizer.value(x),
            "slope": scale * (known @ self.regularizer.gradient(x)),
            "exact": scale * ((known * exact) @ known.T),
            "above": scale * ((known * above) @ known.T),
        }

    def _add_pull(self, coefficients: np.ndarray, residual: np.ndarray) -> float:
        x = self.weights(coefficients)
        _, self._above = self.regularizer.curvatures(x)
        residual += self.regularization * self.regularizer.gradient(x)
        return float(residual @ residual)

    def _factorise(self, curvature: np.ndarray) -> None:
        if self.kind == "gram":
            self._gram = self.block.upper_gram(self.engine, curvature, self._rough_is_enough(curvature))
        else:
            super()._factorise(curvature)  # the weights' curvatures would cost the kernel matrix anew

    def _can_newton(self) -> bool:
        known = super()._can_newton()
        if self._gram is None:
            return known
        # Of the gradient that is answered: curvatures move with the weights, whatever the metric does.
        matrix = self._gram.copy()
        matrix[np.diag_indices(len(matrix))] += self.regularization * self._above
        self._factor = cholesky(matrix)
        return self._factor is not None

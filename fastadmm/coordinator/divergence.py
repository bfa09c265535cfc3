"""Detect that a scheme without a guarantee is running away, and say what to do."""

from __future__ import annotations

import math

__all__ = ["DivergenceDetector"]

#: The objective may exceed its value at zero weights by this factor; growth beyond it is no transient.
_MAX_OBJECTIVE = 100.0

#: Growth of the residual over its smallest value that no converging run showed.
_MAX_RESIDUAL_GROWTH = 1e4


class DivergenceDetector:
    """Watches objective and residual over rounds.

    Parameters
    ----------
    start : float
        Objective at zero weights with the best intercept.
    smallest : float
        Smallest residual so far, carried over from a checkpoint.
    """

    def __init__(self, start: float, smallest: float = math.inf) -> None:
        self.start = start
        self.smallest = smallest

    def diverged(self, objective: float, primal_residual: float) -> bool:
        """Take in one round; True if the iterates grow without bound."""
        if not (math.isfinite(objective) and math.isfinite(primal_residual)):
            return True
        if primal_residual > 0.0:
            self.smallest = min(self.smallest, primal_residual)
        above = objective > self.start * (1.0 + 1e-9)
        return above and (
            objective > _MAX_OBJECTIVE * self.start or primal_residual > _MAX_RESIDUAL_GROWTH * self.smallest
        )

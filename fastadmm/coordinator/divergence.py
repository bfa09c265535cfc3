"""Detect that a scheme without a guarantee is running away, and say what to do."""

from __future__ import annotations

import math

__all__ = ["DivergenceDetector"]

#: The objective may exceed its value at zero weights by this factor; growth beyond it is no transient.
_MAX_OBJECTIVE = 100.0

#: A residual this many times its smallest value so far counts as grown ...
_GROWTH = 2.0

#: ... and a run whose residual stayed grown for this many rounds is not coming back.
#: With the logistic loss, whose gradient is bounded, divergence ends in a large
#: limit cycle instead of overflow, which is what this catches.
_PATIENCE = 40


class DivergenceDetector:
    """Watches objective and residual over rounds.

    Parameters
    ----------
    start : float
        Objective at zero weights with the best intercept.
    guaranteed : bool
        Whether the scheme converges by theorem; then only overflow counts.

    Attributes
    ----------
    smallest : float
        Smallest residual so far.
    grown_rounds : int
        For how many rounds in a row the residual has been grown.
    """

    def __init__(self, start: float, guaranteed: bool) -> None:
        self.start = start
        self.guaranteed = guaranteed
        self.smallest = math.inf
        self.grown_rounds = 0

    def diverged(self, objective: float, residual: float) -> bool:
        """Take in one round; True if the iterates do not come back.

        Parameters
        ----------
        objective : float
            F, per mean loss.
        residual : float
            Norm of primal and dual residual in one unit.
        """
        if not (math.isfinite(objective) and math.isfinite(residual)):
            return True
        self.smallest = min(self.smallest, residual)
        grown = residual > _GROWTH * self.smallest
        self.grown_rounds = self.grown_rounds + 1 if grown else 0
        if self.guaranteed:
            return False
        return self.grown_rounds >= _PATIENCE or (grown and objective > _MAX_OBJECTIVE * self.start)

"""Detect that a scheme without a guarantee is running away, and say what to do."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fastadmm.method.method import Saved

#: The objective may exceed its value at zero weights by this factor; growth beyond it is no transient.
_MAX_OBJECTIVE = 100.0

#: A residual this many times its smallest value so far counts as grown ...
_GROWTH = 2.0

#: ... and a run whose residual stayed grown for this many rounds is not coming back.
#: With the logistic loss, whose gradient is bounded, divergence ends in a large
#: limit cycle instead of overflow, which is what this catches.
_PATIENCE = 40

#: A run may also settle into a cycle at once, without ever having been near an answer: if from
#: one block of so many rounds to the next neither the smallest residual nor the smallest
#: objective falls by these shares, while the residual is still this large against the first one, it
#: is a cycle. Slow convergence, with a very large penalty for example, lowers the objective.
_BLOCK = 100
_NO_PROGRESS = 0.98
_NO_GAIN = 1.0 - 1e-4
_LARGE = 0.05


@dataclass
class DivergenceDetector(Saved):
    """Watches objective and residual over rounds."""

    SAVED = (
        *("smallest", "grown_rounds", "first", "block_smallest", "previous_smallest", "block_best"),
        *("previous_best", "block_rounds"),
    )

    start: float
    guaranteed: bool
    smallest: float = math.inf
    grown_rounds: int = 0
    first: float = math.nan
    block_smallest: float = math.inf
    previous_smallest: float = math.inf
    block_best: float = math.inf
    previous_best: float = math.inf
    block_rounds: int = 0

    def diverged(self, objective: float, residual: float) -> bool:
        """Take in one round; True if the iterates do not come back. Scaling: objective per mean loss."""
        if not (math.isfinite(objective) and math.isfinite(residual)):
            return True
        self.smallest = min(self.smallest, residual)
        grown = residual > _GROWTH * self.smallest
        self.grown_rounds = self.grown_rounds + 1 if grown else 0
        cycles = self._cycles(objective, residual)
        if self.guaranteed:
            return False
        return cycles or self.grown_rounds >= _PATIENCE or (grown and objective > _MAX_OBJECTIVE * self.start)

    def _cycles(self, objective: float, residual: float) -> bool:
        """Take in one round; True at the end of a block of rounds without progress far from an answer."""
        if math.isnan(self.first):
            self.first = residual
        self.block_smallest = min(self.block_smallest, residual)
        self.block_best = min(self.block_best, objective)
        self.block_rounds += 1
        if self.block_rounds < _BLOCK:
            return False
        no_progress = self.block_smallest >= _NO_PROGRESS * self.previous_smallest
        no_progress = no_progress and self.block_best >= _NO_GAIN * self.previous_best
        large = self.block_smallest >= _LARGE * self.first
        self.previous_smallest, self.previous_best = self.block_smallest, self.block_best
        self.block_smallest, self.block_best, self.block_rounds = math.inf, math.inf, 0
        return no_progress and large

r"""Penalty adaptation: r moves to where primal and dual residual shrink together.

The rule of SCS (O'Donoghue 2021), on what the coordinator has anyway: after
rounds 3, 6, 12 and so on, r is multiplied by the square root of the geometric
mean, since the last change, of the ratio of relative residuals. Changes are
finitely many, so the convergence of ADMM with a fixed penalty carries over. A run whose gap
stands still decides once more.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass

__all__ = ["CHANGE_ROUNDS", "MAX_DECISIONS", "PenaltyRule"]

#: The first decision, in rounds; each later one comes after twice as many.
_FIRST = 3

#: Decisions in a run by the number of rounds, the last after round 1536; and as many where it stalls.
MAX_DECISIONS = 10

#: Rounds after which it may decide, at the earliest.
CHANGE_ROUNDS = tuple(_FIRST * 2**k for k in range(MAX_DECISIONS))

#: Largest factor of one change.
_MAX_FACTOR = 30.0

#: Smaller changes are not worth losing the acceleration's memory.
_MIN_FACTOR = 1.5


@dataclass
class PenaltyRule:
    """State of the rule."""

    n_rounds: int = 0  # rounds and decisions so far
    n_decisions: int = 0  # rounds and decisions so far
    log_ratio: float = 0.0  # sum of the logarithms of the residuals' ratio since the last decision
    n_ratios: int = 0  # ... over so many rounds
    scheduled: bool = True  # whether there are decisions by the number of rounds, not only where a run stalls
    n_stalls: int = 0  # decisions because of that

    def factor(self, primal: float, dual: float) -> float:
        """Take in one round; return what to multiply the penalty by, mostly 1."""
        self.n_rounds += 1
        if 0.0 < primal < math.inf and 0.0 < dual < math.inf:
            self.log_ratio += math.log(primal / dual)
            self.n_ratios += 1
        if not self.scheduled or self.n_ratios == 0 or self.n_decisions >= MAX_DECISIONS:
            return 1.0
        if self.n_rounds < _FIRST * 2**self.n_decisions:
            return 1.0
        self.n_decisions += 1
        return self._balancing()

    def stalled(self) -> float:
        """Decide out of turn, where the gap stands still: what to multiply the penalty by."""
        if self.n_ratios == 0 or self.n_stalls >= MAX_DECISIONS:
            return 1.0
        self.n_stalls += 1
        return self._balancing()

    def _balancing(self) -> float:
        factor = math.exp(0.5 * self.log_ratio / self.n_ratios)
        self.log_ratio, self.n_ratios = 0.0, 0
        factor = min(max(factor, 1.0 / _MAX_FACTOR), _MAX_FACTOR)
        return 1.0 if 1.0 / _MIN_FACTOR < factor < _MIN_FACTOR else factor

    def export(self) -> dict[str, int | float]:
        """Everything a resumed run needs to go on bit for bit."""
        return asdict(self)

    def restore(self, saved: dict) -> None:
        """Inverse of :meth:`export`."""
        self.n_rounds, self.n_decisions = int(saved["n_rounds"]), int(saved["n_decisions"])
        self.log_ratio, self.n_ratios = float(saved["log_ratio"]), int(saved["n_ratios"])
        self.n_stalls = int(saved.get("n_stalls", 0))  # runs that began without it

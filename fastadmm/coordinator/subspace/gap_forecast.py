"""Whether the next answers will prove the gap that is wanted; then only the proof is asked for.

A round asks for directions and for the duality gap of the point where it starts. In the last round of a run
the directions are never used. Gaps fall by about the same factor from round to round, so the last round
can be predicted. A wrong forecast costs one exchange, which is cheap with parties in this process, and no
pass over their data.
"""

from __future__ import annotations

import math

import numpy as np

__all__ = ["GapForecast"]

#: The proof is asked for first if the gap is expected to be at most this many times the wanted one.
_NEAR = 3.0


class GapForecast:
    """The gaps of the last two rounds.

    Shapes: gaps (2,).
    """

    gaps: np.ndarray  # of shape (2,): older first, summed scaling; infinite before there are any

    def __init__(self) -> None:
        self.wanted = 0.0
        self.forget()

    def take(self, gap: float) -> None:
        """Take in the gap of the point where a round started, summed scaling."""
        self.gaps = np.array([self.gaps[1], gap])

    def forget(self) -> None:
        """Make no forecast before two more complete rounds."""
        self.gaps = np.array([math.inf, math.inf])

    def expects(self, objective: float) -> bool:
        """Whether the gap of the point with this objective is likely to be small enough.

        Scaling: objective summed scaling.
        """
        older, last = self.gaps.tolist()
        return last < older < math.inf and last * (last / older) <= _NEAR * self.wanted * abs(objective)

    def proves(self, gap: float, objective: float) -> bool:
        """Whether a gap is what was wanted, relative to the lower bound that it gives."""
        return 0.0 < gap <= self.wanted * (objective - gap)

"""When the drift of the curvature from the parties' metric has to be measured again.

Measuring it takes a logarithm per sample. Near a minimiser, drift and decrease
of the objective both grow with the square of the distance from the model whose
curvature the metric is, so after a measurement well below the limit the next
can wait until the decrease has doubled. A drift that is noticed late costs
rounds, never correctness: every metric is a valid one.
"""

from __future__ import annotations

import math

import numpy as np

__all__ = ["MetricWatch"]

#: A drift above this share of the limit is measured every round.
_CLOSE = 0.5


class MetricWatch:
    """What the last measurement found."""

    def __init__(self, usual: float = math.nan) -> None:
        self.start, self.progress, self.share, self.usual = math.nan, 0.0, math.inf, usual

    def moved(self, objective: float, usual: float) -> None:
        """The metric is that of the model with this objective, and has this mean."""
        self.start, self.progress, self.share, self.usual = objective, 0.0, math.inf, usual

    def measured(self, objective: float, share: float) -> None:
        """The drift was measured, as a share of the limit."""
        self.progress, self.share = self.start - objective, share

    def may_wait(self, objective: float) -> bool:
        """Whether the drift at a model with this objective need not be measured."""
        return self.share <= _CLOSE and 0.0 <= self.start - objective <= 2.0 * self.progress

    def export(self) -> np.ndarray:
        """State as numbers, of shape (4,)."""
        return np.array([self.start, self.progress, self.share, self.usual])

    def restore(self, saved: np.ndarray) -> None:
        """Inverse of :meth:`export`; those of version 0.2 have no mean."""
        self.start, self.progress, self.share, self.usual, *_ = (*map(float, saved), math.nan)

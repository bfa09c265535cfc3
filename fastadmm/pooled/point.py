"""A model of all columns, and what is known of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Point:
    """Weights of all columns with the best intercept, and the dual vector that proves most of them.

    Shapes: weights (d,) or (C, d); intercept () or (C,); total, gradient and dual (N,) or (C N,).
    Scaling: value, lower and within summed scaling.
    """

    weights: np.ndarray
    intercept: Any
    total: np.ndarray
    gradient: np.ndarray
    dual: np.ndarray
    value: float
    lower: float
    within: float = -math.inf  # what it proves among models of bounded size, where nothing bounds weights

    @property
    def gap(self) -> float:
        """The objective above what the dual vector proves, as a share of that."""
        proved = max(self.lower, self.within)
        return (self.value - proved) / proved if 0.0 < proved < math.inf else math.inf

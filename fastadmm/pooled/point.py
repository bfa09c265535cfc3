"""A model of all columns, and what is known of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Point"]


@dataclass(frozen=True)
class Point:
    """Weights of all columns with the best intercept, and the dual vector that proves most of them.

    Shapes: weights (d,) or (C, d); intercept () or (C,); total, gradient and dual (N,) or (C N,).
    Scaling: value and lower summed scaling.
    """

    weights: np.ndarray
    intercept: Any
    total: np.ndarray
    gradient: np.ndarray
    dual: np.ndarray
    value: float
    lower: float

    @property
    def gap(self) -> float:
        """The objective above what the dual vector proves, as a share of that."""
        return (self.value - self.lower) / self.lower if 0.0 < self.lower < math.inf else math.inf

"""Losses whose derivatives are clamped lines."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.problem.problem import Problem

Array = np.ndarray


class Lines(NamedTuple):
    """The slopes ``clamp(slope + rise (z - origin), least, most)`` of rows, each field of shape (n,)."""

    origin: Array
    slope: Array
    rise: Array
    least: Array
    most: Array

    @classmethod
    def of(cls, rows: Problem, engine: Engine) -> Lines:
        """The lines of a loss that is quadratic between two bends and linear beyond them."""
        loss, y, weight = rows.loss, rows.y, rows.weight
        ends = loss.bends(y)
        assert ends is not None
        low, high = ends

        def slope(z: Array) -> Array:
            out = np.empty(len(z))
            loss.value_parts(z, y, weight, out, engine)  # nobody asks for its sum
            return out

        below, above = np.isfinite(low), np.isfinite(high)
        origin = np.where(below, low, high)
        beyond = 1.0 + np.abs(origin)  # where the loss is straight, whatever rounding did to its ends
        inside = np.where(below & above, 0.5 * (low + high), np.where(below, low + 1.0, high - 1.0))
        rise = loss.curvature(inside, y, weight, np.empty(len(y)), engine)
        least = np.where(below, slope(np.where(below, low, 0.0) - beyond), -np.inf)
        most = np.where(above, slope(np.where(above, high, 0.0) + beyond), np.inf)
        return cls(origin, np.where(below, least, most), rise, least, most)

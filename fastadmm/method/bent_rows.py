"""Losses whose derivatives are clamped lines, and the exact line search along a sum of them."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.problem.problem import Problem

Array = np.ndarray

#: Most Newton steps of a line search, and the share of the derivative at 0 at which they end.
_MOST_LENGTHS, _ENOUGH = 60, 1e-10

#: Each of them goes at most so many times as far as the last one.
_GROWTH = 4.0


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

    def at(self, z: Array) -> Array:
        """Slopes at predictors of shape (n,)."""
        raw = self.slope + self.rise * (z - self.origin)
        return np.minimum(np.maximum(raw, self.least), self.most)


def best_length_of_lines(
    lines: Lines, z: Array, along: Array, linear: float, square: float, engine: Engine, most: float = math.inf
) -> float:
    r"""Step length that minimises along a descent direction; may exceed 1.

    The derivative is piecewise linear: Newton's method inside a bracket ends once it has reached the piece
    that crosses zero.

    Returns: 0 where the derivative at 0 is not negative.
    Shapes: z, along (n,).
    """
    from fastadmm.kernels.piecewise import clamped_slopes

    leaves = engine.leaves(len(z))

    def derivatives(*lengths: float) -> list[tuple[float, float]]:
        given = z, along, *lines
        sums = engine.together(
            *(engine.kernel_parts(clamped_slopes, leaves, (2,), *given, t) for t in lengths)
        )
        return [
            (float(first) + linear + square * t, float(second) + square)
            for (first, second), t in zip(sums, lengths)
        ]

    start, whole = derivatives(0.0, 1.0)
    enough = -_ENOUGH * start[0]
    if not enough > 0.0:
        return 0.0
    t, low, high = 1.0, 0.0, math.inf
    for _ in range(_MOST_LENGTHS):
        first, second = whole if t == 1.0 else derivatives(t)[0]
        if abs(first) <= enough or (first < 0.0 and t >= most):
            return t
        if first < 0.0:
            low = t
        else:
            high = t
        following = t - first / second if second > 0.0 else math.inf
        if not following < high:
            following = 0.5 * (low + high) if high < math.inf else _GROWTH * t
        elif following <= low:
            following = 0.5 * (low + high)
        following = min(following, _GROWTH * t, most)
        if following == t:  # what is left of the derivative is rounding
            return t
        t = following
    return low

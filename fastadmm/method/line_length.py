"""Length of least objective along a direction of descent: a secant inside a bracket, on the derivative."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.method.certificate import inner
from fastadmm.problem.problem import Problem

#: Lengths that differ by this share are one; shorter ones than the second are none.
_SAME, _SHORTEST = 1e-6, 1e-30

#: A bracket of so many such lengths is closed.
_CLOSE = 1.5

_MAX_STEPS = 80

#: Share of the slope at the start that a search among several classes may leave: all of them bend smoothly.
SHALLOW = 0.1


def best_length(
    problem: Problem,
    base: np.ndarray,
    along: np.ndarray,
    linear: float,
    square: float,
    engine: Engine,
    end: float | None = None,
    enough: float = 0.0,
) -> float:
    r"""Minimise :math:`\ell(z + t v) + p t + \tfrac q2 t^2` over t between 0 and 1.

    The second derivative is not asked: with several predictors per sample they bend together.

    Shapes: base, along (N,) or (C N,).
    """
    gradient = np.empty_like(base)

    def slope(length: float) -> float:
        problem.loss.value_parts(base + length * along, problem.y, problem.weight, gradient, engine)
        found = inner(gradient, along, engine, problem.n_outputs) + linear + length * square
        return found if math.isfinite(found) else math.inf  # overflow: too far

    high, above = 1.0, slope(1.0) if end is None else end
    if not above > enough:
        return high
    low, below = 0.1, slope(0.1)
    while below > 0.0 and low > _SHORTEST:
        high, above, low = low, below, 0.1 * low
        below = slope(low)
    return low if below >= -enough else _crossing(slope, (low, below), (high, above), enough)


def _crossing(
    function: Callable[[float], float], low: tuple[float, float], high: tuple[float, float], enough: float
) -> float:
    """Where an increasing function crosses zero, between two points whose values are known."""
    same, widths = _SAME * high[0], [math.inf, math.inf]
    last, here = high, low
    for _ in range(_MAX_STEPS):
        width = high[0] - low[0]
        rise = (here[1] - last[1]) / (here[0] - last[0])
        at = here[0] - here[1] / rise if 0.0 < rise < math.inf else math.nan
        if not low[0] < at < high[0] or width > 0.5 * widths[-2]:
            at = 0.5 * (low[0] + high[0])
        widths.append(width)
        # Where one side is far steeper a secant hardly moves: the bracket alone says what is known.
        at = min(at, here[0] - same) if here[1] > 0.0 else max(at, here[0] + same)
        last, here = here, (at, function(at))
        if abs(here[1]) <= enough:
            break
        low, high = (here, high) if here[1] < 0.0 else (low, here)
        if high[0] - low[0] <= _CLOSE * same:
            break
    return here[0]

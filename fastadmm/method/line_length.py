"""Length of least objective along a direction of descent: Brent's method on the derivative."""

from __future__ import annotations

import math

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.method.certificate import inner
from fastadmm.problem.problem import Problem

#: Lengths that differ by this share are one; shorter ones than the second are none.
_SAME, _SHORTEST = 1e-6, 1e-30

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
    if below >= -enough:
        return low
    from scipy.optimize import brentq

    known = {low: below, high: above}

    def left(length: float) -> float:
        value = known[length] if length in known else slope(length)
        return value if abs(value) > enough else 0.0

    found: float = brentq(left, low, high, xtol=_SAME * high, maxiter=_MAX_STEPS, disp=False)
    return found

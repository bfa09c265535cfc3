r"""The least of a sum of losses whose derivatives are clamped lines, along a line: kinks cost nothing.

With predictors :math:`z + t d`, row i has the slope

.. math:: g_i(t) = \mathrm{clamp}(a_i + h_i\,(z_i + t d_i - o_i),\; l_i,\; u_i),

so that the derivative :math:`\langle g(t), d\rangle + p + q t` rises with t and is straight between
its bends. Newton's method inside a bracket ends once it stands on the piece that crosses zero.
"""

from __future__ import annotations

import math

from fastadmm.kernels.policy import inline, kernel

__all__ = ["clamped_least"]

_BLOCK = 512

#: Steps of Newton's method, and what is left of the derivative that ends them, as a share of that at 0.
_MAX_STEPS, _ENOUGH = 60, 1e-4

#: A step goes at most so many times as far as the last one.
_GROWTH = 4.0


@inline
def _derivatives(z, along, lines, t, start, stop):
    """First derivative and second derivative of the losses at a length."""
    origin, slope, rise, least, most = lines
    first, second = 0.0, 0.0
    for begin in range(start, stop, _BLOCK):
        one, two = 0.0, 0.0
        for i in range(begin, min(begin + _BLOCK, stop)):
            d = along[i]
            raw = slope[i] + rise[i] * (z[i] + t * d - origin[i])
            one += d * min(max(raw, least[i]), most[i])
            two += d * d * (rise[i] if least[i] < raw < most[i] else 0.0)
        first += one
        second += two
    return first, second


@kernel
def clamped_least(z, along, origin, slope, rise, least, most, linear, square, start, stop):
    """Length of least value along a direction of descent; may be above 1.

    Parameters
    ----------
    z, along : ndarray of shape (n,)
        Predictors at length 0, and the direction d.
    origin, slope, rise, least, most : ndarray of shape (n,)
        o, a, h, l and u of every row; a line may have no end on one side.
    linear, square : float
        p and q, of the regulariser: q is positive.
    start, stop : int
        Row range.

    Returns
    -------
    float
        0 where the derivative at 0 is not negative.
    """
    lines = origin, slope, rise, least, most
    first, _ = _derivatives(z, along, lines, 0.0, start, stop)
    enough = -_ENOUGH * (first + linear)
    if not enough > 0.0:
        return 0.0
    t, low, high = 1.0, 0.0, math.inf
    for _ in range(_MAX_STEPS):
        first, second = _derivatives(z, along, lines, t, start, stop)
        first += linear + square * t
        second += square
        if abs(first) <= enough:
            return t
        if first < 0.0:
            low = t
        else:
            high = t
        following = t - first / second
        if not following < high:
            following = 0.5 * (low + high) if high < math.inf else _GROWTH * t
        elif following <= low:
            following = 0.5 * (low + high)
        t = min(following, _GROWTH * t)
    return low

r"""Losses whose derivative is a clamped line: Huber, quantile and the hinges.

With distance e from a knot, softness c and an interval [low, high],

.. math:: \ell(e) = \max_{low \le a \le high}\; a e - \tfrac c2 a^2,
          \qquad \ell'(e) = \mathrm{clamp}(e / c,\; low,\; high).

The conjugate is :math:`\tfrac c2 a^2` on the interval, and the proximal
operator is a clamp too. Softness 0 gives a kink, where the derivative jumps
from low to high.

Along a line kinks cost nothing. With predictors :math:`z + t d`, row i has the slope

.. math:: g_i(t) = \mathrm{clamp}(a_i + h_i\,(z_i + t d_i - o_i),\; l_i,\; u_i),

so that the derivative :math:`\langle g(t), d\rangle` rises with t and is straight between its bends.
"""

from __future__ import annotations

import math

from fastadmm.kernels.policy import inline, kernel

__all__ = ["clamped_conjugate", "clamped_curvature", "clamped_prox", "clamped_slopes", "clamped_value"]


@inline
def clamped_value(distance, softness, low, high):
    """Loss and derivative at a distance from the knot; at a kink the subgradient nearest to zero."""
    if softness > 0.0:
        slope = min(max(distance / softness, low), high)
    elif distance == 0.0:
        slope = min(max(0.0, low), high)
    else:
        slope = high if distance > 0.0 else low
    # An infinite distance times a zero slope is no loss.
    return (slope * (distance - 0.5 * softness * slope) if slope != 0.0 else 0.0), slope


@inline
def clamped_curvature(distance, softness, low, high):
    """Second derivative: ``1 / softness`` inside the interval, else 0."""
    if softness > 0.0 and low < distance / softness < high:
        return 1.0 / softness
    return 0.0


@inline
def clamped_prox(distance, weight, penalty, softness, low, high):
    r"""Proximal operator of ``weight * loss`` at a distance from the knot.

    Minimises :math:`s\,\ell(e) + \tfrac r2 (e - d)^2`; the minimiser is
    ``d - g / r``.

    Parameters
    ----------
    distance : float
        d, of the proximal centre from the knot.
    weight, penalty : float
        s and r.
    softness, low, high : float
        The loss.

    Returns
    -------
    gradient : float
        g, the element of the subdifferential at the minimiser, within
        ``[s * low, s * high]`` to the bit.
    slope : float
        Derivative of g in the distance.
    """
    if weight == 0.0:
        return 0.0, 0.0
    slope = penalty * weight / (softness * penalty + weight)
    gradient = slope * distance
    if gradient <= weight * low:
        return weight * low, 0.0
    if gradient >= weight * high:
        return weight * high, 0.0
    return gradient, slope


@inline
def clamped_conjugate(u, weight, softness, low, high):
    """Conjugate of ``weight * loss`` in the distance, at u; infinite outside the interval."""
    if weight == 0.0:
        return 0.0 if u == 0.0 else math.inf
    if weight * low <= u <= weight * high:
        return 0.5 * softness * u * (u / weight)
    return math.inf


_BLOCK = 512


@kernel
def clamped_slopes(z, along, origin, slope, rise, least, most, t, out, start, stop):
    """Add first and second derivative at a length to two sums.

    Parameters
    ----------
    z, along : ndarray of shape (n,)
        Predictors at length 0, and the direction d.
    origin, slope, rise, least, most : ndarray of shape (n,)
        o, a, h, l and u of every row; a line may have no end on one side.
    t : float
        The length.
    out : ndarray of shape (2,)
    start, stop : int
        Row range.
    """
    for begin in range(start, stop, _BLOCK):
        one, two = 0.0, 0.0
        for i in range(begin, min(begin + _BLOCK, stop)):
            d = along[i]
            raw = slope[i] + rise[i] * (z[i] + t * d - origin[i])
            one += d * min(max(raw, least[i]), most[i])
            two += d * d * (rise[i] if least[i] < raw < most[i] else 0.0)
        out[0] += one
        out[1] += two

r"""Slopes of a sum of losses whose derivatives are clamped lines, along a line: kinks cost nothing.

With predictors :math:`z + t d`, row i has the slope

.. math:: g_i(t) = \mathrm{clamp}(a_i + h_i\,(z_i + t d_i - o_i),\; l_i,\; u_i),

so that the derivative :math:`\langle g(t), d\rangle` rises with t and is straight between its bends.
"""

from __future__ import annotations

from fastadmm.kernels.policy import kernel

__all__ = ["clamped_slopes"]

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

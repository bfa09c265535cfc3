"""A vectorisable exponential: libm's is a call per element, which LLVM cannot vectorise."""

from __future__ import annotations

import numpy as np
from fastadmm.kernels.policy import inline

__all__ = ["exp_nonpositive", "log1p_unit"]


@inline
def exp_nonpositive(x):
    """Exponential of a number that is not positive, to within 1 ulp or so.

    Cody-Waite reduction ``x = n ln 2 + r`` with ``|r| <= ln(2)/2``, a Taylor
    polynomial of degree 13 in ``r`` (remainder below 4e-18), and ``2**n``
    written straight into the exponent bits. Arguments below -708 are treated
    as -708, so that the result stays a normal number.

    Parameters
    ----------
    x : float
        Argument, ``x <= 0``.

    Returns
    -------
    float
        ``exp(max(x, -708))``.
    """
    x = max(x, -708.0)
    n = np.floor(x * 1.4426950408889634 + 0.5)
    r = x - n * 6.93145751953125e-1 - n * 1.42860682030941723212e-6
    p = 1.6059043836821613e-10
    p = p * r + 2.08767569878681e-9
    p = p * r + 2.505210838544172e-8
    p = p * r + 2.755731922398589e-7
    p = p * r + 2.7557319223985893e-6
    p = p * r + 2.48015873015873e-5
    p = p * r + 1.984126984126984e-4
    p = p * r + 1.388888888888889e-3
    p = p * r + 8.333333333333333e-3
    p = p * r + 4.1666666666666664e-2
    p = p * r + 1.6666666666666666e-1
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    bits = (np.int64(n) + np.int64(1023)) << np.int64(52)
    return p * np.int64(bits).view(np.float64)


@inline
def log1p_unit(e):
    r"""Logarithm ``log(1 + e)`` for ``0 <= e <= 1``, to within a few ulp.

    :math:`\log(1 + e) = 2\,\mathrm{artanh}\,s` with :math:`s = e / (2 + e) \le 1/3`;
    the series in :math:`s^2 \le 1/9` is cut where its terms fall below 2e-17
    relative to the first.

    Parameters
    ----------
    e : float
        Argument in [0, 1].

    Returns
    -------
    float
        ``log(1 + e)``.
    """
    s = e / (2.0 + e)
    t = s * s
    p = 1.0 / 35.0
    p = p * t + 1.0 / 33.0
    p = p * t + 1.0 / 31.0
    p = p * t + 1.0 / 29.0
    p = p * t + 1.0 / 27.0
    p = p * t + 1.0 / 25.0
    p = p * t + 1.0 / 23.0
    p = p * t + 1.0 / 21.0
    p = p * t + 1.0 / 19.0
    p = p * t + 1.0 / 17.0
    p = p * t + 1.0 / 15.0
    p = p * t + 1.0 / 13.0
    p = p * t + 1.0 / 11.0
    p = p * t + 1.0 / 9.0
    p = p * t + 1.0 / 7.0
    p = p * t + 1.0 / 5.0
    p = p * t + 1.0 / 3.0
    return 2.0 * s + 2.0 * s * (t * p)

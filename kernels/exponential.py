"""A vectorisable exponential: libm's is a call per element, which LLVM cannot vectorise."""

from __future__ import annotations

import numpy as np
from fastadmm.kernels.policy import inline

__all__ = ["exp_nonpositive"]


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

"""Vectorisable exponential and logarithms: libm's are a call per element, which LLVM cannot vectorise.

No step is reassociated, and contracted is only what says so, so results are the same on every machine.
"""

import numpy as np
from fastadmm.kernels.fused_multiply_add import fma
from fastadmm.kernels.policy import inline

SMALLEST_NORMAL = 2.2250738585072014e-308

#: Adding 1.5 * 2**52 leaves a number rounded to the nearest integer, ties to even, in the low bits.
ROUNDER = 6755399441055744.0
ROUNDER_BITS = np.int64(0x4338000000000000)

#: Bits of sqrt(1/2): subtracting them makes a number's exponent that of its nearest power of two.
_SQRT_HALF = np.int64(0x3FE6A09E667F3BCD)
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10

#: Bits of 1.0.
_ONE = np.int64(0x3FF0000000000000)


@inline
def _reduce(x):
    """Cody-Waite reduction ``x = n ln 2 + r`` with ``|r| <= ln(2)/2``; r, and n in the exponent bits."""
    shifted = fma(x, 1.4426950408889634, ROUNDER)
    n = shifted - ROUNDER
    r = fma(n, -1.42860682030941723212e-6, fma(n, -6.93145751953125e-1, x))
    # The shift leaves of the bits of `shifted` only those of n.
    return r, np.float64(shifted).view(np.int64) << np.int64(52)


@inline
def _second_order(r):
    """``(exp(r) - 1 - r) / r**2`` for ``|r| <= ln(2)/2``; the error in exp is below 2e-17."""
    p = 2.510038549551032e-08
    p = fma(p, r, 2.7620088445409746e-07)
    p = fma(p, r, 2.7557268459997064e-06)
    p = fma(p, r, 2.4801521295954376e-05)
    p = fma(p, r, 1.9841269863053618e-04)
    p = fma(p, r, 1.3888888917213717e-03)
    p = fma(p, r, 8.333333333330062e-03)
    p = fma(p, r, 4.166666666662413e-02)
    p = fma(p, r, 1.6666666666666669e-01)
    return fma(p, r, 0.5)


@inline
def exp_bounded(x):
    """Exponential of x in [-708, 709], to within 1 ulp or so; other arguments are not checked."""
    r, exponent = _reduce(x)
    p = fma(fma(_second_order(r), r, 1.0), r, 1.0)
    return np.int64(np.float64(p).view(np.int64) + exponent).view(np.float64)


@inline
def exp_nonpositive(x):
    """``exp(max(x, -708))``, a normal number, for x that is not positive, to within 1 ulp or so."""
    return exp_bounded(max(x, -708.0))


@inline
def expm1_and_exp(x):
    """``exp(x) - 1``, to within a few ulp also near zero, and ``exp(x)``: infinite above 709, NaN for NaN.

    Below -708 x is treated as -708.
    """
    large = x > 709.0
    r, exponent = _reduce(-708.0 if x < -708.0 else (709.0 if large else x))
    p = fma(_second_order(r) * r, r, r)
    scale = np.int64(exponent + _ONE).view(np.float64)
    # scale - 1 is exact, and cancels with scale * p nowhere: without a shift it is zero.
    less, whole = fma(scale, p, scale - 1.0), fma(scale, p, scale)
    return (np.inf if large else less), (np.inf if large else whole)


@inline
def exp_rough(x):
    """As :func:`exp_nonpositive` with relative error 4e-7, at two thirds of the cost."""
    r, exponent = _reduce(max(x, -708.0))
    p = 0.008357204929019698
    p = fma(p, r, 0.04183383757033735)
    p = fma(p, r, 0.16666630810836075)
    p = fma(p, r, 0.49999748889500667)
    p = fma(fma(p, r, 1.0), r, 1.0)
    return np.int64(np.float64(p).view(np.int64) + exponent).view(np.float64)


@inline
def log_positive(x):
    r"""Logarithm of a positive normal number, to within 1 ulp or so.

    With :math:`x = 2^n (1 + f)` and 1 + f within [sqrt(1/2), sqrt(2)],
    :math:`\log(1 + f) = 2\,\mathrm{artanh}\,s`, s = f / (2 + f); polynomial
    and order of summation are fdlibm's.
    """
    bits = np.float64(x).view(np.int64)
    n = (bits - _SQRT_HALF) >> np.int64(52)
    f = np.int64(bits - (n << np.int64(52))).view(np.float64) - 1.0
    s = f / (2.0 + f)
    t = s * s
    p = 1.479819860510658591e-01
    p = p * t + 1.531383769920937332e-01
    p = p * t + 1.818357216161805012e-01
    p = p * t + 2.222219843214978396e-01
    p = p * t + 2.857142874366239149e-01
    p = p * t + 3.999999999940941908e-01
    p = p * t + 6.666666666666735130e-01
    half = 0.5 * f * f
    exponent = np.float64(n)
    return exponent * _LN2_HIGH - ((half - (s * (half + t * p) + exponent * _LN2_LOW)) - f)


@inline
def log1p_unit(e):
    r"""Logarithm ``log(1 + e)`` for ``0 <= e <= 1``, to within a few ulp, relative.

    :math:`\log(1 + e) = 2\,\mathrm{artanh}\,s` with :math:`s = e / (2 + e) \le 1/3`;
    polynomial in :math:`s^2 \le 1/9` through Chebyshev nodes (error 7e-18).
    """
    s = e / (2.0 + e)
    t = s * s
    p = 0.08082022805971766
    p = fma(p, t, 0.04400369243072337)
    p = fma(p, t, 0.06000536404795356)
    p = fma(p, t, 0.06657072104827468)
    p = fma(p, t, 0.07692785032479312)
    p = fma(p, t, 0.09090894718066429)
    p = fma(p, t, 0.11111111358713932)
    p = fma(p, t, 0.1428571428355438)
    p = fma(p, t, 0.20000000000007292)
    p = fma(p, t, 0.3333333333333333)
    return fma(s + s, t * p, s + s)

r"""Negative binomial loss with log link and a given dispersion, half the deviance.

.. math:: \ell(z) = (y + \tfrac1\alpha) \log\frac{1 + \alpha e^z}{1 + \alpha y} - y (z - \log y)

With :math:`\pi = \alpha y / (1 + \alpha y)` it is, up to a constant, the logistic loss of the
soft target :math:`\pi` with weight :math:`y + 1/\alpha` at :math:`z + \log\alpha`.
"""

from __future__ import annotations

import math

import numpy as np
from fastadmm.kernels.block_sum import BLOCK
from fastadmm.kernels.logistic import logistic_prox
from fastadmm.kernels.policy import inline, kernel
from fastadmm.kernels.span import span_advance

__all__ = [
    "negative_binomial_advance",
    "negative_binomial_conjugate",
    "negative_binomial_curvature",
    "negative_binomial_evaluate",
    "negative_binomial_prox",
]


@inline
def _at_zero(z, alpha):
    """Loss of a count of 0 and its derivative, for unit weight."""
    x = z + np.log(alpha)
    e = np.exp(-abs(x))
    share = 1.0 / (1.0 + e) if x >= 0.0 else e / (1.0 + e)
    return (max(x, 0.0) + np.log1p(e)) / alpha, share / alpha


@inline
def _growth(share, t):
    """``log(1 + share (exp(t) - 1))`` for a share up to 1/2."""
    if t < 600.0:
        return np.log1p(share * np.expm1(t))
    x = t + np.log(share)
    return max(x, 0.0) + np.log1p(np.exp(-abs(x)))


@inline
def _at_count(z, y, alpha):
    """Loss of a positive count and its derivative, for unit weight; around z = log y nothing cancels."""
    t = z - np.log(y)
    low = 1.0 / (1.0 + alpha * y)
    high = alpha * y * low
    whole = y + 1.0 / alpha
    # The same twice; the other one would cancel.
    value = whole * _growth(high, t) - y * t if high < low else whole * _growth(low, -t) + t / alpha
    e = np.exp(-abs(t))
    slope = -np.expm1(-t) / (low * e + high) if t > 0.0 else np.expm1(t) / (low + high * e)
    return value, y * low * slope


@kernel
def negative_binomial_evaluate(z, target, weight, alpha, gradient, start, stop):
    """Summed weighted loss over a row range; writes ``weight * (exp(z) - y) / (1 + alpha exp(z))``.

    Parameters
    ----------
    z, target, weight : ndarray of shape (N,)
        Logarithm of the mean, counts (not negative), sample weights.
    alpha : float
        Dispersion: a mean m has the variance m + alpha m^2.
    gradient : ndarray of shape (N,)
        Output, in the domain of the conjugate.
    start, stop : int
        Row range.

    Returns
    -------
    float
    """
    total = 0.0
    for begin in range(start, stop, BLOCK):
        part = 0.0
        for i in range(begin, min(begin + BLOCK, stop)):
            s, y = weight[i], target[i]
            if s == 0.0:
                gradient[i] = 0.0
                continue
            value, slope = _at_count(z[i], y, alpha) if y > 0.0 else _at_zero(z[i], alpha)
            gradient[i] = min(max(s * slope, -s * y), s / alpha)
            part += s * value
        total += part
    return total


@kernel
def negative_binomial_advance(
    messages, step, origin, base, intercept, target, weight, alpha, total, z, gradient, slopes, start, stop
):
    """A step in the span of the messages and the loss there; see :mod:`fastadmm.kernels.span`."""
    move = messages, step, origin, base, intercept, total, z
    span_advance(negative_binomial_evaluate, move, (target, weight, alpha, gradient), slopes, start, stop)


@kernel
def negative_binomial_curvature(z, target, weight, alpha, curvature, start, stop):
    """Write the weighted second derivative over a row range; it is at most ``weight (y + 1/alpha) / 4``."""
    for i in range(start, stop):
        e = np.exp(-abs(z[i] + np.log(alpha)))
        d = 1.0 / (1.0 + e)
        curvature[i] = weight[i] * (target[i] + 1.0 / alpha) * (e * d * d)


@kernel
def negative_binomial_prox(v, shift, target, weight, alpha, penalty, z, gradient, start, stop):
    r"""Proximal operator: that of the logistic loss with the soft target and its weight.

    A soft target above 1/2 is mirrored, :math:`\pi \to 1 - \pi` and :math:`z \to -z`: one close to 1 would
    not have the digits of :math:`1 - \pi`.

    Arguments and results as :func:`fastadmm.kernels.logistic.logistic_prox`, and ``alpha``.
    """
    centre, move, start_at = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    share, own, sign = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    sum_gradient = 0.0
    sum_slope = 0.0
    for begin in range(start, stop, BLOCK):
        end = min(begin + BLOCK, stop)
        size = end - begin
        own_gradient = gradient[begin:end]
        for k in range(size):
            y = target[begin + k]
            low = 1.0 / (1.0 + alpha * y)
            high = alpha * y * low
            sign[k] = 1.0 if high < low else -1.0
            centre[k] = sign[k] * v[begin + k]
            move[k] = sign[k] * (shift[begin + k] + np.log(alpha))
            start_at[k] = sign[k] * z[begin + k]
            share[k] = min(high, low)
            own[k] = weight[begin + k] * (y + 1.0 / alpha)
        sums = logistic_prox(centre, move, share, own, penalty, start_at, own_gradient, 0, size)
        for k in range(size):
            s = weight[begin + k]
            z[begin + k] = sign[k] * start_at[k]
            own_gradient[k] = min(max(sign[k] * own_gradient[k], -s * target[begin + k]), s / alpha)
            sum_gradient += own_gradient[k]
        sum_slope += sums[1]
    return sum_gradient, sum_slope


@inline
def _entropy(whole, part):
    """``(whole + part) log((whole + part) / whole)``, with the digits of a small part."""
    total = whole + part
    if total <= 0.0:
        return 0.0
    return total * (np.log1p(part / whole) if part > -0.5 * whole else np.log(total / whole))


@kernel
def negative_binomial_conjugate(u, target, weight, alpha, start, stop):
    """Summed conjugate of the weighted losses at u; infinite outside ``-s y <= u <= s / alpha``.

    Parameters
    ----------
    u, target, weight : ndarray of shape (N,)
        Dual vector, counts, sample weights s.
    alpha : float
        Dispersion.
    start, stop : int
        Row range.

    Returns
    -------
    float
    """
    total = 0.0
    for begin in range(start, stop, BLOCK):
        part = 0.0
        for i in range(begin, min(begin + BLOCK, stop)):
            s, y = weight[i], target[i]
            if not -s * y <= u[i] <= s / alpha:
                part += math.inf
            elif s > 0.0:
                part += _entropy(s / alpha, -u[i])
                if y > 0.0:
                    part += u[i] * np.log(y) + _entropy(s * y, u[i])
                elif u[i] > 0.0:
                    part += u[i] * np.log(u[i] / s)
        total += part
    return total

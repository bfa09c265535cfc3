r"""Negative binomial loss with log link and a given dispersion, half the deviance.

.. math:: \ell(z) = (y + \tfrac1\alpha) \log\frac{1 + \alpha e^z}{1 + \alpha y} - y (z - \log y)

With :math:`\pi = \alpha y / (1 + \alpha y)` it is, up to a constant, the logistic loss of the
soft target :math:`\pi` with weight :math:`y + 1/\alpha` at :math:`z + \log\alpha`.
"""

import math

import numpy as np
from fastadmm.kernels.block_sum import BLOCK
from fastadmm.kernels.logistic import logistic_prox
from fastadmm.kernels.loss_loops import loss_kernels
from fastadmm.kernels.policy import inline, kernel


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


def _value(z, y, s, extra):
    alpha = extra[0]
    if s == 0.0:
        return 0.0, 0.0
    value, slope = _at_count(z, y, alpha) if y > 0.0 else _at_zero(z, alpha)
    return s * value, min(max(s * slope, -s * y), s / alpha)


def _bend(z, y, s, extra):
    """At most ``s (y + 1/alpha) / 4``."""
    alpha = extra[0]
    e = np.exp(-abs(z + np.log(alpha)))
    d = 1.0 / (1.0 + e)
    return s * (y + 1.0 / alpha) * (e * d * d)


@kernel
def negative_binomial_prox(v, shift, target, weight, extra, penalty, z, gradient, start, stop):
    r"""Proximal operator: that of the logistic loss with the soft target and its weight.

    A soft target above 1/2 is mirrored, :math:`\pi \to 1 - \pi` and :math:`z \to -z`: one close to 1 would
    not have the digits of :math:`1 - \pi`.

    Arguments and results as of the other losses' ``prox``; ``extra`` is the dispersion alpha.
    """
    alpha = extra[0]
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
        sums = logistic_prox(centre, move, share, own, (), penalty, start_at, own_gradient, 0, size)
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


def _conjugate(part, u, y, s, extra):
    """Infinite outside ``-s y <= u <= s / alpha``."""
    alpha = extra[0]
    if not -s * y <= u <= s / alpha:
        return part + math.inf
    if s > 0.0:
        part += _entropy(s / alpha, -u)
        if y > 0.0:
            part += u * np.log(y) + _entropy(s * y, u)
        elif u > 0.0:
            part += u * np.log(u / s)
    return part


negative_binomial = loss_kernels("negative_binomial", _value, _bend, _conjugate, prox=negative_binomial_prox)

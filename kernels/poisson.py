r"""Poisson loss with log link, half the deviance: :math:`\ell(z) = e^z - y z - y + y \log y`.

The terms without z make it non-negative, with minimum 0 at :math:`z = \log y`,
so that a relative duality gap means something.
"""

from __future__ import annotations

import math

import numpy as np
from fastadmm.kernels.policy import inline, kernel

__all__ = ["poisson_conjugate", "poisson_curvature", "poisson_evaluate", "poisson_prox"]

_BLOCK = 512

#: Newton steps for omega; both starts are within a factor e of the root, four steps reach rounding.
_STEPS = 6


@inline
def _log_omega(b):
    r"""Logarithm x of the root w > 0 of :math:`w + \log w = b` (Wright's omega function), and w.

    Left of b = 1 Newton runs on :math:`e^x + x - b`, convex, from b >= x; right of
    it on :math:`w + \log w - b`, concave, from :math:`b - \log b \le w`. Both
    starts lie on the side from which Newton's iterates approach the root
    monotonically, so nothing can overflow or overshoot.
    """
    if b <= 1.0:
        x = b
        for _ in range(_STEPS):
            e = np.exp(x)
            x -= (e + x - b) / (e + 1.0)
        return x, np.exp(x)
    w = b - np.log(b)
    for _ in range(_STEPS):
        w *= (1.0 + b - np.log(w)) / (1.0 + w)
    return np.log(w), w


@kernel
def poisson_evaluate(z, target, weight, gradient, start, stop):
    """Summed weighted loss over a row range; writes ``weight * (exp(z) - target)``.

    Parameters
    ----------
    z, target, weight : ndarray of shape (N,)
        Logarithm of the mean, counts (not negative), sample weights.
    gradient : ndarray of shape (N,)
        Output.
    start, stop : int
        Row range.

    Returns
    -------
    float
        Infinite where the exponential overflows.
    """
    total = 0.0
    for begin in range(start, stop, _BLOCK):
        part = 0.0
        for i in range(begin, min(begin + _BLOCK, stop)):
            y = target[i]
            if weight[i] == 0.0:
                gradient[i] = 0.0
                continue
            t = z[i] - np.log(y) if y > 0.0 else math.inf
            if t < 1.0:
                # around z = log y, so that nothing cancels near the minimum
                e = np.expm1(t)
                gradient[i] = weight[i] * (y * e)
                part += weight[i] * (y * (e - t))
            else:
                mean = np.exp(z[i])
                gradient[i] = weight[i] * (mean - y)
                part += weight[i] * (mean - y * (1.0 + t) if y > 0.0 else mean)
        total += part
    return total


@kernel
def poisson_curvature(z, target, weight, curvature, start, stop):
    """Write the weighted second derivative ``weight * exp(z)`` over a row range."""
    for i in range(start, stop):
        curvature[i] = weight[i] * np.exp(z[i]) if weight[i] > 0.0 else 0.0


@kernel
def poisson_prox(v, shift, target, weight, penalty, z, gradient, start, stop):
    r"""Proximal operator through Wright's omega function.

    With :math:`\kappa = s / r` and p = z + o the stationarity condition
    :math:`p - c + \kappa (e^p - y) = 0` becomes :math:`w + \log w = b` for
    :math:`w = \kappa e^p` and :math:`b = c + \kappa y + \log\kappa`.
    Arguments and results as :func:`fastadmm.kernels.logistic.logistic_prox`;
    no warm start is needed.
    """
    sum_gradient = 0.0
    sum_slope = 0.0
    for begin in range(start, stop, _BLOCK):
        part_gradient = 0.0
        part_slope = 0.0
        for i in range(begin, min(begin + _BLOCK, stop)):
            s = weight[i]
            if s == 0.0:
                z[i] = v[i]
                gradient[i] = 0.0
            else:
                ratio = s / penalty
                centre = v[i] + shift[i] + ratio * target[i]
                scale = np.log(ratio)
                x, w = _log_omega(centre + scale)
                # Two formulas for one root; each is exact where the other cancels.
                point = x - scale if w > 1.0 else centre - w
                g = penalty * w - s * target[i]
                z[i] = point - shift[i]
                gradient[i] = g
                part_gradient += g
                part_slope += penalty * (w / (1.0 + w))
        sum_gradient += part_gradient
        sum_slope += part_slope
    return sum_gradient, sum_slope


@kernel
def poisson_conjugate(u, target, weight, start, stop):
    """Summed conjugate of the weighted losses at u; infinite where ``u < -weight * target``.

    Parameters
    ----------
    u, target, weight : ndarray of shape (N,)
        Dual vector, counts, sample weights.
    start, stop : int
        Row range.

    Returns
    -------
    float
    """
    total = 0.0
    for begin in range(start, stop, _BLOCK):
        part = 0.0
        for i in range(begin, min(begin + _BLOCK, stop)):
            s = weight[i]
            y = target[i]
            mean = u[i] + s * y  # s times the mean that has this gradient
            if mean < 0.0 or (s == 0.0 and u[i] != 0.0):
                part += math.inf
            elif s > 0.0:
                if mean > 0.0:
                    part += mean * np.log(mean / (s * y)) if y > 0.0 else mean * np.log(mean / s)
                if y > 0.0:
                    part += u[i] * np.log(y)
                part -= u[i]
        total += part
    return total

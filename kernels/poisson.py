r"""Poisson loss with log link, half the deviance: :math:`\ell(z) = e^z - y z - y + y \log y`.

The terms without z make it non-negative, with minimum 0 at :math:`z = \log y`,
so that a relative duality gap means something.
"""

from __future__ import annotations

import math

import numpy as np
from fastadmm.kernels.block_sum import BLOCK, block_sum
from fastadmm.kernels.exponential import SMALLEST_NORMAL, exp_bounded, expm1_and_exp, log_positive
from fastadmm.kernels.policy import inline, kernel
from fastadmm.kernels.span import span_advance

__all__ = [
    "log_omega",
    "poisson_advance",
    "poisson_conjugate",
    "poisson_curvature",
    "poisson_evaluate",
    "poisson_prox",
]


@inline
def log_omega(b):
    r"""Logarithm x of the root w > 0 of :math:`w + \log w = b` (Wright's omega function), and w.

    Halley's iteration on :math:`e^x + x - b`. Its error is at most 0.42 times
    the cube of the last one, for any b, and the start is within 0.02 of the
    root: b itself on the left, a polynomial fit, the asymptotic series on the
    right. So two steps reach rounding.
    """
    b = max(b, -700.0)  # w then stays a normal number
    p = -5.223488341005172e-05
    p = p * b + 7.336158027962269e-04
    p = p * b + 6.356165340699498e-04
    p = p * b - 6.786071880743665e-02
    p = p * b + 6.392717124109532e-01
    p = p * b - 5.736812165144038e-01
    large = max(b, 8.0)
    log = log_positive(large)
    x = b if b < -4.0 else (p if b < 8.0 else log - log / large)
    for _ in range(2):
        e = exp_bounded(x)
        inverse = 1.0 / (1.0 + e)
        newton = (e + (x - b)) * inverse
        moved = newton / (1.0 - 0.5 * newton * (e * inverse))
        x -= moved
    # The last step is below 1e-5: two terms carry the exponential along. Right of 1, b - x is exact.
    e -= e * moved * (1.0 - 0.5 * moved)
    return x, b - x if b > 1.0 else e


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
    # Slices of one length each: LLVM checks once a block that they do not overlap, and vectorises.
    work = np.empty((1, BLOCK))
    total = 0.0
    for begin in range(start, stop, BLOCK):
        end = min(begin + BLOCK, stop)
        own_z, own_target, own_weight = z[begin:end], target[begin:end], weight[begin:end]
        own_gradient = gradient[begin:end]
        for k in range(end - begin):
            y, s = own_target[k], own_weight[k]
            counted = y > 0.0
            # Around z = log y, so that nothing cancels near the minimum.
            t = own_z[k] - log_positive(max(y, SMALLEST_NORMAL) if counted else 1.0)
            less, mean = expm1_and_exp(t)
            slope = y * less if counted else mean
            value = y * (less - t) if counted else mean
            own_gradient[k] = s * slope if s > 0.0 else 0.0
            work[0, k] = s * value if s > 0.0 else 0.0
        total += block_sum(work, 0, end - begin)
    return total


@kernel
def poisson_advance(
    messages, step, origin, base, intercept, target, weight, total, z, gradient, slopes, start, stop
):
    """A step in the span of the messages and the loss there; see :mod:`fastadmm.kernels.span`."""
    move = messages, step, origin, base, intercept, total, z
    span_advance(poisson_evaluate, move, (target, weight, gradient), slopes, start, stop)


@kernel
def poisson_curvature(z, target, weight, curvature, start, stop):
    """Write the weighted second derivative ``weight * exp(z)`` over a row range."""
    for begin in range(start, stop, BLOCK):
        end = min(begin + BLOCK, stop)
        own_z, own_weight, own_curvature = z[begin:end], weight[begin:end], curvature[begin:end]
        for k in range(end - begin):
            _, mean = expm1_and_exp(own_z[k])
            own_curvature[k] = own_weight[k] * mean if own_weight[k] > 0.0 else 0.0


@kernel
def poisson_prox(v, shift, target, weight, penalty, z, gradient, start, stop):
    r"""Proximal operator through Wright's omega function.

    With :math:`\kappa = s / r` and p = z + o the stationarity condition
    :math:`p - c + \kappa (e^p - y) = 0` becomes :math:`w + \log w = b` for
    :math:`w = \kappa e^p` and :math:`b = c + \kappa y + \log\kappa`.
    Arguments and results as :func:`fastadmm.kernels.logistic.logistic_prox`;
    no warm start is needed.
    """
    # One local array in the hot loops: LLVM then sees that nothing overlaps, and vectorises them.
    work = np.empty((5, BLOCK))
    sum_gradient = 0.0
    sum_slope = 0.0
    for begin in range(start, stop, BLOCK):
        size = min(begin + BLOCK, stop) - begin
        for k in range(size):
            work[0, k] = v[begin + k] + shift[begin + k]
        for k in range(size):
            work[1, k] = target[begin + k]
        for k in range(size):
            work[2, k] = weight[begin + k]
        for k in range(size):
            y = work[1, k]
            s = work[2, k]
            ratio = s / penalty
            # A weight of zero is treated as the smallest normal number, and corrected at the end.
            scale = log_positive(max(ratio, SMALLEST_NORMAL))
            centre = work[0, k] + ratio * y
            x, w = log_omega(centre + scale)
            # Two formulas for one root; each is exact where the other cancels.
            point = x - scale if w > 1.0 else centre - w
            used = s > 0.0
            work[0, k] = point if used else work[0, k]
            work[3, k] = penalty * w - s * y if used else 0.0
            work[4, k] = penalty * (w / (1.0 + w)) if used else 0.0
        for k in range(size):
            z[begin + k] = work[0, k] - shift[begin + k]
        for k in range(size):
            gradient[begin + k] = work[3, k]
        sum_gradient += block_sum(work, 3, size)
        sum_slope += block_sum(work, 4, size)
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
    for begin in range(start, stop, BLOCK):
        part = 0.0
        for i in range(begin, min(begin + BLOCK, stop)):
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

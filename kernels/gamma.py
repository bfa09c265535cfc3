r"""Gamma loss with log link, half the deviance: :math:`\ell(z) = y e^{-z} + z - \log y - 1`.

With :math:`t = z - \log y` it is :math:`e^{-t} - 1 + t`: the Poisson loss of a count of 1 at -t.
"""

from __future__ import annotations

import math

import numpy as np
from fastadmm.kernels.block_sum import BLOCK, block_sum
from fastadmm.kernels.exponential import SMALLEST_NORMAL, expm1_and_exp, log_positive
from fastadmm.kernels.poisson import poisson_prox
from fastadmm.kernels.policy import kernel
from fastadmm.kernels.span import span_advance

__all__ = ["gamma_advance", "gamma_conjugate", "gamma_curvature", "gamma_evaluate", "gamma_prox"]


@kernel
def gamma_evaluate(z, target, weight, gradient, start, stop):
    """Summed weighted loss over a row range; writes ``weight * (1 - target * exp(-z))``.

    Parameters
    ----------
    z, target, weight : ndarray of shape (N,)
        Logarithm of the mean, positive targets, sample weights.
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
            s = own_weight[k]
            t = own_z[k] - log_positive(max(own_target[k], SMALLEST_NORMAL))
            less, _ = expm1_and_exp(-t)
            own_gradient[k] = -s * less if s > 0.0 else 0.0
            work[0, k] = s * (less + t) if s > 0.0 else 0.0
        total += block_sum(work, 0, end - begin)
    return total


@kernel
def gamma_advance(
    messages, step, origin, base, intercept, target, weight, total, z, gradient, slopes, start, stop
):
    """A step in the span of the messages and the loss there; see :mod:`fastadmm.kernels.span`."""
    move = messages, step, origin, base, intercept, total, z
    span_advance(gamma_evaluate, move, (target, weight, gradient), slopes, start, stop)


@kernel
def gamma_curvature(z, target, weight, curvature, start, stop):
    """Write the weighted second derivative ``weight * target * exp(-z)`` over a row range."""
    for begin in range(start, stop, BLOCK):
        end = min(begin + BLOCK, stop)
        own_z, own_target, own_weight = z[begin:end], target[begin:end], weight[begin:end]
        own_curvature = curvature[begin:end]
        for k in range(end - begin):
            _, ratio = expm1_and_exp(log_positive(max(own_target[k], SMALLEST_NORMAL)) - own_z[k])
            own_curvature[k] = own_weight[k] * ratio if own_weight[k] > 0.0 else 0.0


@kernel
def gamma_prox(v, shift, target, weight, penalty, z, gradient, start, stop):
    """Proximal operator: that of the Poisson loss of a count of 1, mirrored.

    Arguments and results as :func:`fastadmm.kernels.logistic.logistic_prox`; no warm start is needed.
    """
    nothing, one = np.zeros(BLOCK), np.ones(BLOCK)
    centre = np.empty(BLOCK)
    sum_gradient = 0.0
    sum_slope = 0.0
    for begin in range(start, stop, BLOCK):
        end = min(begin + BLOCK, stop)
        own_z, own_gradient = z[begin:end], gradient[begin:end]
        for k in range(end - begin):
            i = begin + k
            centre[k] = np.log(target[i]) - (v[i] + shift[i])
        sums = poisson_prox(
            centre, nothing, one, weight[begin:end], penalty, own_z, own_gradient, 0, end - begin
        )
        for k in range(end - begin):
            i = begin + k
            used = weight[i] > 0.0
            own_z[k] = np.log(target[i]) - own_z[k] - shift[i] if used else v[i]
            own_gradient[k] = -own_gradient[k] if used else 0.0
        sum_gradient -= sums[0]
        sum_slope += sums[1]
    return sum_gradient, sum_slope


@kernel
def gamma_conjugate(u, target, weight, start, stop):
    """Summed conjugate of the weighted losses at u; infinite where ``u > weight``.

    Parameters
    ----------
    u, target, weight : ndarray of shape (N,)
        Dual vector, positive targets, sample weights.
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
            rest = s - u[i]  # s times the ratio of target to mean that has this gradient
            if rest < 0.0 or (s == 0.0 and u[i] != 0.0):
                part += math.inf
            elif s > 0.0:
                part += u[i] * np.log(target[i]) + u[i]
                if rest > 0.0:
                    part += rest * np.log(rest / s)
        total += part
    return total

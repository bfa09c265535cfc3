r"""Logistic loss :math:`\ell(z) = \log(1 + e^z) - q z` with target q (1 or 0, or soft).

For labels y in {-1, 1} and ``q = (1 + y) / 2`` this is ``log(1 + exp(-y z))``.
All differences ``sigmoid(z) - q`` are formed on the side of zero where nothing
cancels, so that tiny gradients of well classified samples keep full relative
precision.
"""

from __future__ import annotations

import math

import numpy as np
from fastadmm.kernels.exponential import exp_nonpositive, log1p_unit
from fastadmm.kernels.policy import inline, kernel

__all__ = ["logistic_conjugate", "logistic_curvature", "logistic_evaluate", "logistic_prox"]

#: Samples per block of the Newton iteration: all its arrays stay in the first-level cache.
_BLOCK = 512

#: A Newton step below this (relative) is the last: convergence is quadratic.
_LAST_STEP = 1e-8

#: Safety net; a ratio s / r of 1e12 takes about 30 steps.
_MAX_STEPS = 200


@inline
def _residual(z, target):
    """``sigmoid(z) - target`` and the curvature ``sigmoid'(z)``."""
    e = exp_nonpositive(-abs(z))
    d = 1.0 / (1.0 + e)
    tail = e * d
    residual = (1.0 - target) - tail if z >= 0.0 else tail - target
    return residual, tail * d


@kernel
def logistic_evaluate(z, target, weight, gradient, start, stop):
    """Summed weighted loss over a row range; writes the gradient.

    Parameters
    ----------
    z, target, weight : ndarray of shape (N,)
        Linear predictor, targets in [0, 1], sample weights.
    gradient : ndarray of shape (N,)
        Output: ``weight * (sigmoid(z) - target)``.
    start, stop : int
        Row range.

    Returns
    -------
    float
        ``sum(weight * (log(1 + exp(z)) - target * z))`` over the range.
    """
    # Local arrays only in the hot loop: LLVM then knows that none overlap, and vectorises it.
    point = np.empty(_BLOCK)
    label = np.empty(_BLOCK)
    residuals = np.empty(_BLOCK)
    values = np.empty(_BLOCK)
    total = 0.0
    for begin in range(start, stop, _BLOCK):
        size = min(begin + _BLOCK, stop) - begin
        for k in range(size):
            point[k] = z[begin + k]
            label[k] = target[begin + k]
        for k in range(size):
            p = point[k]
            q = label[k]
            e = exp_nonpositive(-abs(p))
            d = 1.0 / (1.0 + e)
            residuals[k] = (1.0 - q) - e * d if p >= 0.0 else e * d - q
            # log(1 + e^z) - q z, with max(z, 0) - q z merged so that nothing cancels
            linear = (1.0 - q) * p if p >= 0.0 else -q * p
            values[k] = linear + log1p_unit(e)
        part = 0.0
        for k in range(size):
            i = begin + k
            gradient[i] = weight[i] * residuals[k]
            part += weight[i] * values[k]
        total += part
    return total


@kernel
def logistic_curvature(z, target, weight, curvature, start, stop):
    """Write the weighted second derivative ``weight * sigmoid'(z)`` over a row range."""
    for i in range(start, stop):
        _, h = _residual(z[i], target[i])
        curvature[i] = weight[i] * h


@kernel
def logistic_prox(v, shift, target, weight, penalty, z, gradient, start, stop):
    r"""Proximal operator of the logistic loss, by clamped Newton over blocks.

    Solves for each sample
    :math:`\min_z\; s\,\ell(z + o) + \tfrac{r}{2} (z - v)^2`
    (the z-update of ADMM sharing; Hu et al., equation 7). The stationarity
    condition :math:`\phi(p) = p - c + \tfrac{s}{r}(\sigma(p) - q) = 0` has its root
    in a known interval and on a known side of zero. Left of zero phi is convex,
    right of it concave, and increasing everywhere, so its tangents lie on one
    side of it: after one step clamped to the root's side, Newton's iterates
    approach the root monotonically, for any ratio s / r and any start.

    Parameters
    ----------
    v : ndarray of shape (N,)
        Proximal centre ``sum_m D_m x_m + u / r``.
    shift : ndarray of shape (N,)
        Offset plus intercept ``o``.
    target, weight : ndarray of shape (N,)
        Targets and sample weights s.
    penalty : float
        r, in the summed scaling.
    z : ndarray of shape (N,)
        In: warm start. Out: the minimiser.
    gradient : ndarray of shape (N,)
        Out: ``s * loss'(z + o)``, equal to ``r (v - z)`` up to rounding, and
        always in the domain of the conjugate loss.
    start, stop : int
        Row range.

    Returns
    -------
    tuple of float
        Sum of the gradients, and of their derivatives ``r h / (r + h)`` in
        the shift: what a Newton step on the intercept needs.
    """
    lower = np.empty(_BLOCK)
    upper = np.empty(_BLOCK)
    point = np.empty(_BLOCK)
    # Local copies: with few distinct arrays in the loop LLVM can prove that none overlap.
    centre = np.empty(_BLOCK)
    ratio = np.empty(_BLOCK)
    label = np.empty(_BLOCK)
    sum_gradient = 0.0
    sum_slope = 0.0
    for begin in range(start, stop, _BLOCK):
        size = min(begin + _BLOCK, stop) - begin
        for k in range(size):
            i = begin + k
            ratio[k] = weight[i] / penalty
            centre[k] = v[i] + shift[i]
            label[k] = target[i]
            low = centre[k] - ratio[k] * (1.0 - label[k])
            high = centre[k] + ratio[k] * label[k]
            # phi(0) < 0 puts the root right of zero, else it is left of zero or at it.
            right = centre[k] + ratio[k] * (label[k] - 0.5) > 0.0
            lower[k] = max(low, 0.0) if right else low
            upper[k] = high if right else min(high, 0.0)
            point[k] = min(max(z[i] + shift[i], lower[k]), upper[k])
        for _ in range(_MAX_STEPS):
            # An integer count, not a maximum: float reductions are not vectorised without fastmath.
            unsettled = np.int64(0)
            for k in range(size):
                p = point[k]
                residual, h = _residual(p, label[k])
                phi = p - centre[k] + ratio[k] * residual
                following = min(max(p - phi / (1.0 + ratio[k] * h), lower[k]), upper[k])
                point[k] = following
                unsettled += np.int64(abs(following - p) > _LAST_STEP * (1.0 + abs(p)))
            if unsettled == 0:
                break
        part_gradient = 0.0
        part_slope = 0.0
        for k in range(size):
            i = begin + k
            residual, h = _residual(point[k], target[i])
            g = weight[i] * residual
            h = weight[i] * h
            z[i] = point[k] - shift[i]
            gradient[i] = g
            part_gradient += g
            part_slope += penalty * h / (penalty + h)
        sum_gradient += part_gradient
        sum_slope += part_slope
    return sum_gradient, sum_slope


@kernel
def logistic_conjugate(u, target, weight, start, stop):
    r"""Summed conjugate of the weighted losses at u; infinite outside its domain.

    With :math:`p = q + u / s` it is :math:`s (p \log p + (1 - p) \log(1 - p))`
    for p in [0, 1].

    Parameters
    ----------
    u, target, weight : ndarray of shape (N,)
        Dual vector, targets in [0, 1], sample weights.
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
            if not -s * target[i] <= u[i] <= s * (1.0 - target[i]):
                part += math.inf
            elif s > 0.0:
                # Each probability from its own side, so that small ones keep their digits.
                one = target[i] + u[i] / s
                zero = (1.0 - target[i]) - u[i] / s
                if one > 0.0 and zero > 0.0:
                    part += s * (one * np.log(one) + zero * np.log(zero))
        total += part
    return total

r"""Logistic loss :math:`\ell(z) = \log(1 + e^z) - q z` with target q (1 or 0, or soft: any real number).

For labels y in {-1, 1} and ``q = (1 + y) / 2`` this is ``log(1 + exp(-y z))``.
All differences ``sigmoid(z) - q`` are formed on the side of zero where nothing
cancels, so that tiny gradients of well classified samples keep full relative
precision.
"""

from __future__ import annotations

import math

import numpy as np
from fastadmm.kernels.block_sum import BLOCK, block_sum
from fastadmm.kernels.exponential import SMALLEST_NORMAL, exp_nonpositive, exp_rough, log1p_unit, log_positive
from fastadmm.kernels.policy import inline, kernel
from fastadmm.kernels.span import span_advance

__all__ = [
    "logistic_advance",
    "logistic_conjugate",
    "logistic_curvature",
    "logistic_evaluate",
    "logistic_prox",
    "logistic_prox_of_row",
    "soft_labels",
]

#: When no sample moved further than this, one more step reaches rounding: convergence is cubic.
_ROUGH_STEP = 0.015

#: Steps after which Halley's, never seen to need more, give way to Newton's, proved to converge.
_HALLEY_STEPS = 16

#: Safety net; a ratio s / r of 1e12 takes 15 steps.
_MAX_STEPS = 200


@kernel
def logistic_evaluate(z, target, weight, gradient, start, stop):
    """Summed weighted loss over a row range; writes the gradient.

    Parameters
    ----------
    z, target, weight : ndarray of shape (N,)
        Linear predictor, targets (1, 0 or any real number), sample weights.
    gradient : ndarray of shape (N,)
        Output: ``weight * (sigmoid(z) - target)``.
    start, stop : int
        Row range.

    Returns
    -------
    float
        ``sum(weight * (log(1 + exp(z)) - target * z))`` over the range.
    """
    # Slices of one length each: LLVM checks once a block that they do not overlap, and vectorises.
    work = np.empty((1, BLOCK))
    total = 0.0
    for begin in range(start, stop, BLOCK):
        end = min(begin + BLOCK, stop)
        own_z, own_target, own_weight = z[begin:end], target[begin:end], weight[begin:end]
        own_gradient = gradient[begin:end]
        for k in range(end - begin):
            p = own_z[k]
            q = own_target[k]
            e = exp_nonpositive(-abs(p))
            tail = e / (1.0 + e)
            residual = (1.0 - q) - tail if p >= 0.0 else tail - q
            # log(1 + e^z) - q z, with max(z, 0) - q z merged so that nothing cancels
            linear = (1.0 - q) * p if p >= 0.0 else -q * p
            own_gradient[k] = own_weight[k] * residual
            work[0, k] = own_weight[k] * (linear + log1p_unit(e))
        total += block_sum(work, 0, end - begin)
    return total


@kernel
def logistic_advance(
    messages, step, origin, base, intercept, target, weight, total, z, gradient, slopes, start, stop
):
    """A step in the span of the messages and the loss there; see :mod:`fastadmm.kernels.span`."""
    move = messages, step, origin, base, intercept, total, z
    span_advance(logistic_evaluate, move, (target, weight, gradient), slopes, start, stop)


@kernel
def logistic_curvature(z, target, weight, curvature, start, stop):
    """Write the weighted second derivative ``weight * sigmoid'(z)`` over a row range."""
    for begin in range(start, stop, BLOCK):
        end = min(begin + BLOCK, stop)
        own_z, own_weight, own_curvature = z[begin:end], weight[begin:end], curvature[begin:end]
        for k in range(end - begin):
            e = exp_nonpositive(-abs(own_z[k]))
            d = 1.0 / (1.0 + e)
            own_curvature[k] = own_weight[k] * (e * d * d)


@kernel
def soft_labels(target, weight, start, stop):
    """How many targets with a positive weight are neither 0 nor 1, as a float."""
    soft = 0
    for k in range(start, stop):
        soft += (target[k] != 0.0) & (target[k] != 1.0) & (weight[k] > 0.0)
    return float(soft)


@inline
def _step(m, base, ratio, e, order):
    """Halley's (order 1/2) or Newton's (order 0) step from m for :func:`logistic_prox`, with e = exp(-m).

    Multiplied out by powers of 1 + e, so that one division remains.
    """
    d = 1.0 + e
    f = (m - base) * d - ratio * e
    slope = d * d + ratio * e
    return m - f * d * slope / (slope * slope + order * f * (ratio * e) * (1.0 - e))


@kernel
def logistic_prox(v, shift, target, weight, penalty, z, gradient, start, stop):
    r"""Proximal operator of the logistic loss, by Halley's iteration over blocks.

    Solves for each sample
    :math:`\min_z\; s\,\ell(z + o) + \tfrac{r}{2} (z - v)^2`
    (the z-update of ADMM sharing; Hu et al., equation 7). The stationarity
    condition :math:`p - c + \tfrac{s}{r}(\sigma(p) - q) = 0` tells the sign of
    its root p, so that with ``m = |p|`` all samples solve one equation,

    .. math:: f(m) = m - b - \tfrac{s}{r} \sigma(-m) = 0, \qquad m \ge 0,

    where f is increasing and concave: every tangent's root lies left of the
    root. The one at 0 bounds the iteration from below, and from any start
    Newton's steps would approach monotonically. Halley's are cubic, with error
    at most 0.42 times the cube of the last one, for any b and s / r. All
    but the last step need an exponential to a few digits only.

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
    # One local array in the hot loops: LLVM then sees that nothing overlaps, and vectorises them.
    work = np.empty((8, BLOCK))
    sum_gradient = 0.0
    sum_slope = 0.0
    for begin in range(start, stop, BLOCK):
        size = min(begin + BLOCK, stop) - begin
        for k in range(size):
            work[0, k] = v[begin + k] + shift[begin + k]
        for k in range(size):
            work[1, k] = z[begin + k] + shift[begin + k]
        for k in range(size):
            work[2, k] = weight[begin + k]
        for k in range(size):
            work[3, k] = target[begin + k]
        for k in range(size):
            centre = work[0, k]
            q = work[3, k]
            ratio = work[2, k] / penalty
            sign = 1.0 if centre + ratio * (q - 0.5) > 0.0 else -1.0
            away = 1.0 - q if sign > 0.0 else q
            base = sign * centre - ratio * away
            lower = max(base, (4.0 * base + 2.0 * ratio) / (4.0 + ratio), 0.0)
            work[0, k] = base
            work[1, k] = max(sign * work[1, k], lower)
            work[3, k] = away
            work[4, k] = ratio
            work[5, k] = sign
            work[6, k] = lower
        for step in range(_MAX_STEPS):
            order = 0.5 if step < _HALLEY_STEPS else 0.0
            # An integer count, not a maximum: float reductions are not vectorised without fastmath.
            unsettled = np.int64(0)
            for k in range(size):
                m = work[1, k]
                following = max(_step(m, work[0, k], work[4, k], exp_rough(-m), order), work[6, k])
                work[1, k] = following
                unsettled += np.int64(abs(following - m) > _ROUGH_STEP)
            if unsettled == 0:
                break
        for k in range(size):
            m = work[1, k]
            e = exp_nonpositive(-m)
            following = max(_step(m, work[0, k], work[4, k], e, 0.5), work[6, k])
            moved = m - following
            # The last step is below 1e-5: two terms carry the exponential along.
            e += e * moved * (1.0 + 0.5 * moved)
            d = 1.0 + e
            h = work[2, k] * e
            work[0, k] = work[5, k] * following
            work[1, k] = work[5, k] * work[2, k] * (work[3, k] - e / d)
            work[7, k] = penalty * h / (penalty * (d * d) + h)
        for k in range(size):
            z[begin + k] = work[0, k] - shift[begin + k]
        for k in range(size):
            gradient[begin + k] = work[1, k]
        sum_gradient += block_sum(work, 1, size)
        sum_slope += block_sum(work, 7, size)
    return sum_gradient, sum_slope


@kernel
def logistic_prox_of_row(centre, start, target, weight, penalty, found):
    """The gradient of :func:`logistic_prox` for one sample, written to ``found[0]``.

    Parameters
    ----------
    centre, start : float
        Of the linear predictor: proximal centre, and where to begin.
    target, weight, penalty : float
    found : ndarray of shape (1,)
    """
    ratio = weight / penalty
    sign = 1.0 if centre + ratio * (target - 0.5) > 0.0 else -1.0
    away = 1.0 - target if sign > 0.0 else target
    base = sign * centre - ratio * away
    lower = max(base, (4.0 * base + 2.0 * ratio) / (4.0 + ratio), 0.0)
    m = max(sign * start, lower)
    for step in range(_MAX_STEPS):
        e = exp_nonpositive(-m)
        moved = m - max(_step(m, base, ratio, e, 0.5 if step < _HALLEY_STEPS else 0.0), lower)
        if abs(moved) <= _ROUGH_STEP:
            break
        m -= moved
    e += e * moved * (1.0 + 0.5 * moved)
    found[0] = sign * weight * (away - e / (1.0 + e))


@kernel
def logistic_conjugate(u, target, weight, start, stop):
    r"""Summed conjugate of the weighted losses at u; infinite outside its domain.

    With :math:`p = q + u / s` it is :math:`s (p \log p + (1 - p) \log(1 - p))`
    for p in [0, 1].

    Parameters
    ----------
    u, target, weight : ndarray of shape (N,)
        Dual vector, targets (1, 0 or any real number), sample weights.
    start, stop : int
        Row range.

    Returns
    -------
    float
    """
    work = np.empty((1, BLOCK))
    total = 0.0
    for begin in range(start, stop, BLOCK):
        end = min(begin + BLOCK, stop)
        own_u, own_target, own_weight = u[begin:end], target[begin:end], weight[begin:end]
        for k in range(end - begin):
            dual, q, s = own_u[k], own_target[k], own_weight[k]
            inside = (dual >= -s * q) & (dual <= s * (1.0 - q))
            share = dual / (s if s > 0.0 else 1.0)
            # Each probability from its own side, so that small ones keep their digits.
            one, zero = q + share, (1.0 - q) - share
            first = one * log_positive(max(one, SMALLEST_NORMAL))
            value = s * (first + zero * log_positive(max(zero, SMALLEST_NORMAL)))
            certain = (one <= 0.0) | (zero <= 0.0)
            work[0, k] = (0.0 if certain else value) if inside else math.inf
        total += block_sum(work, 0, end - begin)
    return total

r"""Logistic loss :math:`\ell(z) = \log(1 + e^z) - q z` with target q (1 or 0, or soft: any real number).

For labels y in {-1, 1} and ``q = (1 + y) / 2`` this is ``log(1 + exp(-y z))``.
All differences ``sigmoid(z) - q`` are formed on the side of zero where nothing
cancels, so that tiny gradients of well classified samples keep full relative
precision.
"""

import math

import numpy as np
from fastadmm.kernels.block_sum import BLOCK, block_sum
from fastadmm.kernels.exponential import SMALLEST_NORMAL, exp_nonpositive, exp_rough, log1p_unit, log_positive
from fastadmm.kernels.loss_loops import loss_kernels
from fastadmm.kernels.policy import inline, kernel

#: When no sample moved further than this, one more step reaches rounding: convergence is cubic.
_ROUGH_STEP = 0.015

#: Steps after which Halley's, never seen to need more, give way to Newton's, proved to converge.
_HALLEY_STEPS = 16

#: Safety net; a ratio s / r of 1e12 takes 15 steps.
_MAX_STEPS = 200


def _value(z, q, s, extra):
    e = exp_nonpositive(-abs(z))
    tail = e / (1.0 + e)
    residual = (1.0 - q) - tail if z >= 0.0 else tail - q
    # log(1 + e^z) - q z, with max(z, 0) - q z merged so that nothing cancels
    linear = (1.0 - q) * z if z >= 0.0 else -q * z
    return s * (linear + log1p_unit(e)), s * residual


def _bend(z, q, s, extra):
    e = exp_nonpositive(-abs(z))
    d = 1.0 / (1.0 + e)
    return s * (e * d * d)


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
def logistic_prox(v, shift, target, weight, extra, penalty, z, gradient, start, stop):
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

    Arguments and results as of the other losses' ``prox``, in :mod:`fastadmm.kernels.loss_loops`.
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
def logistic_prox_of_row(centre, start, target, weight, extra, penalty, found):
    """The gradient of `logistic_prox` for one row; arguments as of the other losses' ``prox_of_row``."""
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


def _conjugate(part, u, q, s, extra):
    r"""Of :math:`p = q + u / s` it is :math:`s (p \log p + (1 - p) \log(1 - p))`, for p in [0, 1]."""
    inside = (u >= -s * q) & (u <= s * (1.0 - q))
    share = u / (s if s > 0.0 else 1.0)
    # Each probability from its own side, so that small ones keep their digits.
    one, zero = q + share, (1.0 - q) - share
    first = one * log_positive(max(one, SMALLEST_NORMAL))
    value = s * (first + zero * log_positive(max(zero, SMALLEST_NORMAL)))
    certain = (one <= 0.0) | (zero <= 0.0)
    return part + ((0.0 if certain else value) if inside else math.inf)


logistic = loss_kernels(
    "logistic",
    _value,
    _bend,
    _conjugate,
    by_halves=("evaluate", "conjugate"),
    prox=logistic_prox,
    prox_of_row=logistic_prox_of_row,
)

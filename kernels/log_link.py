r"""Poisson and gamma losses with log link: half the deviance.

.. math:: \ell(z) = e^z - y z - y + y \log y, \qquad \ell(z) = y e^{-z} + z - \log y - 1

The terms without z make them non-negative, with minimum 0 at :math:`z = \log y`, so that a relative duality
gap means something. With :math:`t = z - \log y` the gamma loss is :math:`e^{-t} - 1 + t`: the Poisson loss of
a count of 1 at -t.
"""

import math

import numpy as np
from fastadmm.kernels.exponential import SMALLEST_NORMAL, exp_bounded, expm1_and_exp, log_positive
from fastadmm.kernels.loss_loops import loss_kernels
from fastadmm.kernels.policy import inline


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


def _poisson_value(z, y, s, extra):
    """Infinite where the exponential overflows."""
    counted = y > 0.0
    # Around z = log y, so that nothing cancels near the minimum.
    t = z - log_positive(max(y, SMALLEST_NORMAL) if counted else 1.0)
    less, mean = expm1_and_exp(t)
    slope = y * less if counted else mean
    value = y * (less - t) if counted else mean
    return (s * value if s > 0.0 else 0.0), (s * slope if s > 0.0 else 0.0)


def _poisson_bend(z, y, s, extra):
    _, mean = expm1_and_exp(z)
    return s * mean if s > 0.0 else 0.0


def _poisson_proximal(v, shift, near, y, s, penalty, extra):
    r"""Through Wright's omega function; no warm start is needed.

    With :math:`\kappa = s / r` and p = z + o the stationarity condition
    :math:`p - c + \kappa (e^p - y) = 0` becomes :math:`w + \log w = b` for
    :math:`w = \kappa e^p` and :math:`b = c + \kappa y + \log\kappa`.
    """
    used, ratio = s > 0.0, s / penalty
    # A weight of zero is treated as the smallest normal number, and corrected at the end.
    scale = log_positive(max(ratio, SMALLEST_NORMAL))
    centre = (v + shift) + ratio * y
    x, w = log_omega(centre + scale)
    # Two formulas for one root; each is exact where the other cancels.
    point = x - scale if w > 1.0 else centre - w
    gradient = penalty * w - s * y if used else 0.0
    slope = penalty * (w / (1.0 + w)) if used else 0.0
    return (point if used else v + shift) - shift, gradient, slope


def _poisson_conjugate(part, u, y, s, extra):
    """Infinite where ``u < -s y``."""
    mean = u + s * y  # s times the mean that has this gradient
    if mean < 0.0 or (s == 0.0 and u != 0.0):
        part += math.inf
    elif s > 0.0:
        if mean > 0.0:
            part += mean * np.log(mean / (s * y)) if y > 0.0 else mean * np.log(mean / s)
        if y > 0.0:
            part += u * np.log(y)
        part -= u
    return part


poisson = loss_kernels(
    "poisson",
    _poisson_value,
    _poisson_bend,
    _poisson_conjugate,
    _poisson_proximal,
    by_halves=("evaluate", "prox"),
)


def _gamma_value(z, y, s, extra):
    """Infinite where the exponential overflows."""
    t = z - log_positive(max(y, SMALLEST_NORMAL))
    less, _ = expm1_and_exp(-t)
    return (s * (less + t) if s > 0.0 else 0.0), (-s * less if s > 0.0 else 0.0)


def _gamma_bend(z, y, s, extra):
    _, ratio = expm1_and_exp(log_positive(max(y, SMALLEST_NORMAL)) - z)
    return s * ratio if s > 0.0 else 0.0


_poisson_point = inline(_poisson_proximal)


def _gamma_proximal(v, shift, near, y, s, penalty, extra):
    """That of the Poisson loss of a count of 1, mirrored."""
    if s == 0.0:
        return v, 0.0, 0.0
    log = np.log(y)
    point, gradient, slope = _poisson_point(log - (v + shift), 0.0, near, 1.0, s, penalty, extra)
    return log - point - shift, -gradient, slope


def _gamma_conjugate(part, u, y, s, extra):
    """Infinite where ``u > s``."""
    rest = s - u  # s times the ratio of target to mean that has this gradient
    if rest < 0.0 or (s == 0.0 and u != 0.0):
        part += math.inf
    elif s > 0.0:
        part += u * np.log(y) + u
        if rest > 0.0:
            part += rest * np.log(rest / s)
    return part


gamma = loss_kernels(
    "gamma", _gamma_value, _gamma_bend, _gamma_conjugate, _gamma_proximal, by_halves=("evaluate", "prox")
)

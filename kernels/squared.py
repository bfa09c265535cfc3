r"""Squared loss :math:`\ell(z) = \tfrac12 (z - y)^2`."""

from __future__ import annotations

import math

from fastadmm.kernels.policy import kernel
from fastadmm.kernels.span import span_advance

__all__ = [
    "squared_advance",
    "squared_conjugate",
    "squared_curvature",
    "squared_evaluate",
    "squared_prox",
    "squared_prox_of_row",
]

_BLOCK = 512


@kernel
def squared_evaluate(z, target, weight, gradient, start, stop):
    """Summed ``weight * (z - target)**2 / 2`` over a row range; writes ``weight * (z - target)``."""
    total = 0.0
    for begin in range(start, stop, _BLOCK):
        part = 0.0
        for i in range(begin, min(begin + _BLOCK, stop)):
            residual = z[i] - target[i]
            gradient[i] = weight[i] * residual
            part += 0.5 * weight[i] * residual * residual
        total += part
    return total


@kernel
def squared_advance(
    messages, step, origin, base, intercept, target, weight, total, z, gradient, slopes, start, stop
):
    """A step in the span of the messages and the loss there; see :mod:`fastadmm.kernels.span`."""
    move = messages, step, origin, base, intercept, total, z
    span_advance(squared_evaluate, move, (target, weight, gradient), slopes, start, stop)


@kernel
def squared_curvature(z, target, weight, curvature, start, stop):
    """Write the weighted second derivative, the weight itself, over a row range."""
    for i in range(start, stop):
        curvature[i] = weight[i]


@kernel
def squared_prox(v, shift, target, weight, penalty, z, gradient, start, stop):
    r"""Proximal operator in closed form: ``z = (r v + s (y - o)) / (r + s)``.

    Arguments and results as :func:`fastadmm.kernels.logistic.logistic_prox`.
    """
    sum_gradient = 0.0
    sum_slope = 0.0
    for begin in range(start, stop, _BLOCK):
        part_gradient = 0.0
        part_slope = 0.0
        for i in range(begin, min(begin + _BLOCK, stop)):
            slope = penalty * weight[i] / (penalty + weight[i])
            g = slope * (v[i] + shift[i] - target[i])
            z[i] = v[i] - g / penalty
            gradient[i] = g
            part_gradient += g
            part_slope += slope
        sum_gradient += part_gradient
        sum_slope += part_slope
    return sum_gradient, sum_slope


@kernel
def squared_prox_of_row(centre, start, target, weight, penalty, found):
    """In closed form.

    ``centre``, ``start``, ``target``, ``weight``, ``penalty`` and ``found`` as of
    :func:`fastadmm.kernels.logistic.logistic_prox_of_row`.
    """
    found[0] = penalty * weight / (penalty + weight) * (centre - target)


@kernel
def squared_conjugate(u, target, weight, start, stop):
    """Summed conjugate ``u * target + u**2 / (2 * weight)`` of the weighted losses.

    Parameters
    ----------
    u, target, weight : ndarray of shape (N,)
        Dual vector, targets, sample weights; with weight 0 only u = 0 is in the domain.
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
            if weight[i] > 0.0:
                part += u[i] * target[i] + 0.5 * u[i] * (u[i] / weight[i])
            elif u[i] != 0.0:
                part += math.inf
        total += part
    return total

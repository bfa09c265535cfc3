r"""Clamped losses of the residual z - y: Huber and quantile.

Huber has softness 1 and the interval [-delta, delta]; the quantile (pinball)
loss has softness 0 and [-tau, 1 - tau]. See :mod:`fastadmm.kernels.clamped`.
"""

from __future__ import annotations

from fastadmm.kernels.clamped import clamped_conjugate, clamped_curvature, clamped_prox, clamped_value
from fastadmm.kernels.policy import kernel
from fastadmm.kernels.span import span_advance

__all__ = [
    "residual_advance",
    "residual_conjugate",
    "residual_curvature",
    "residual_evaluate",
    "residual_prox",
    "residual_prox_of_row",
]

_BLOCK = 512


@kernel
def residual_evaluate(z, target, weight, softness, low, high, gradient, start, stop):
    """Summed weighted loss over a row range; writes a subgradient.

    Parameters
    ----------
    z, target, weight : ndarray of shape (N,)
    softness, low, high : float
        The loss.
    gradient : ndarray of shape (N,)
        Output.
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
            value, slope = clamped_value(z[i] - target[i], softness, low, high)
            gradient[i] = weight[i] * slope
            part += weight[i] * value
        total += part
    return total


@kernel
def residual_advance(
    messages,
    step,
    origin,
    base,
    intercept,
    target,
    weight,
    softness,
    low,
    high,
    total,
    z,
    gradient,
    slopes,
    start,
    stop,
):
    """A step in the span of the messages and the loss there; see :mod:`fastadmm.kernels.span`."""
    move = messages, step, origin, base, intercept, total, z
    span_advance(
        residual_evaluate, move, (target, weight, softness, low, high, gradient), slopes, start, stop
    )


@kernel
def residual_curvature(z, target, weight, softness, low, high, curvature, start, stop):
    """Write the weighted second derivative; arguments as in :func:`residual_evaluate`."""
    for i in range(start, stop):
        curvature[i] = weight[i] * clamped_curvature(z[i] - target[i], softness, low, high)


@kernel
def residual_prox(v, shift, target, weight, softness, low, high, penalty, z, gradient, start, stop):
    """Proximal operator in closed form.

    Arguments and results as :func:`fastadmm.kernels.logistic.logistic_prox`,
    with the loss's softness, low and high.
    """
    sum_gradient = 0.0
    sum_slope = 0.0
    for begin in range(start, stop, _BLOCK):
        part_gradient = 0.0
        part_slope = 0.0
        for i in range(begin, min(begin + _BLOCK, stop)):
            distance = v[i] + shift[i] - target[i]
            g, slope = clamped_prox(distance, weight[i], penalty, softness, low, high)
            z[i] = v[i] - g / penalty
            gradient[i] = g
            part_gradient += g
            part_slope += slope
        sum_gradient += part_gradient
        sum_slope += part_slope
    return sum_gradient, sum_slope


@kernel
def residual_prox_of_row(centre, start, target, weight, softness, low, high, penalty, found):
    """As :func:`fastadmm.kernels.logistic.logistic_prox_of_row`, with the loss's softness, low and high."""
    found[0], _ = clamped_prox(centre - target, weight, penalty, softness, low, high)


@kernel
def residual_conjugate(u, target, weight, softness, low, high, start, stop):
    """Summed conjugate of the weighted losses at u; infinite outside its domain.

    Arguments as in :func:`residual_evaluate`, with the dual vector u of shape (N,).
    """
    total = 0.0
    for begin in range(start, stop, _BLOCK):
        part = 0.0
        for i in range(begin, min(begin + _BLOCK, stop)):
            part += u[i] * target[i] + clamped_conjugate(u[i], weight[i], softness, low, high)
        total += part
    return total

r"""Clamped losses of the margin t z, with t = 2 y - 1 for labels y in {0, 1}: the hinges.

In z the knot is t itself, and the interval is [-bound, 0] for label 1 and
[0, bound] for label 0 (see :mod:`fastadmm.kernels.clamped`):

- hinge ``max(0, 1 - t z)``: softness 0, bound 1;
- smoothed hinge: softness gamma, bound 1;
- squared hinge ``max(0, 1 - t z)**2``: softness 1/2, no bound.
"""

from __future__ import annotations

from fastadmm.kernels.clamped import clamped_conjugate, clamped_curvature, clamped_prox, clamped_value
from fastadmm.kernels.policy import inline, kernel
from fastadmm.kernels.span import span_advance

__all__ = [
    "margin_advance",
    "margin_conjugate",
    "margin_curvature",
    "margin_evaluate",
    "margin_prox",
    "margin_prox_of_row",
]

_BLOCK = 512


@inline
def _interval(label, bound):
    """Knot and interval of the slope for a label."""
    return (1.0, -bound, 0.0) if label > 0.5 else (-1.0, 0.0, bound)


@kernel
def margin_evaluate(z, target, weight, softness, bound, gradient, start, stop):
    """Summed weighted loss over a row range; writes a subgradient.

    Parameters
    ----------
    z, target, weight : ndarray of shape (N,)
        Targets are 0 or 1.
    softness, bound : float
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
            knot, low, high = _interval(target[i], bound)
            value, slope = clamped_value(z[i] - knot, softness, low, high)
            gradient[i] = weight[i] * slope
            part += weight[i] * value
        total += part
    return total


@kernel
def margin_advance(
    messages,
    step,
    origin,
    base,
    intercept,
    target,
    weight,
    softness,
    bound,
    total,
    z,
    gradient,
    slopes,
    start,
    stop,
):
    """A step in the span of the messages and the loss there; see :mod:`fastadmm.kernels.span`."""
    move = messages, step, origin, base, intercept, total, z
    span_advance(margin_evaluate, move, (target, weight, softness, bound, gradient), slopes, start, stop)


@kernel
def margin_curvature(z, target, weight, softness, bound, curvature, start, stop):
    """Write the weighted second derivative; arguments as in :func:`margin_evaluate`."""
    for i in range(start, stop):
        knot, low, high = _interval(target[i], bound)
        curvature[i] = weight[i] * clamped_curvature(z[i] - knot, softness, low, high)


@kernel
def margin_prox(v, shift, target, weight, softness, bound, penalty, z, gradient, start, stop):
    """Proximal operator in closed form.

    Arguments and results as :func:`fastadmm.kernels.logistic.logistic_prox`,
    with the loss's softness and bound.
    """
    sum_gradient = 0.0
    sum_slope = 0.0
    for begin in range(start, stop, _BLOCK):
        part_gradient = 0.0
        part_slope = 0.0
        for i in range(begin, min(begin + _BLOCK, stop)):
            knot, low, high = _interval(target[i], bound)
            distance = v[i] + shift[i] - knot
            g, slope = clamped_prox(distance, weight[i], penalty, softness, low, high)
            z[i] = v[i] - g / penalty
            gradient[i] = g
            part_gradient += g
            part_slope += slope
        sum_gradient += part_gradient
        sum_slope += part_slope
    return sum_gradient, sum_slope


@kernel
def margin_prox_of_row(centre, start, target, weight, softness, bound, penalty, found):
    """As :func:`fastadmm.kernels.logistic.logistic_prox_of_row`, with the loss's softness and bound."""
    knot, low, high = _interval(target, bound)
    found[0], _ = clamped_prox(centre - knot, weight, penalty, softness, low, high)


@kernel
def margin_conjugate(u, target, weight, softness, bound, start, stop):
    """Summed conjugate of the weighted losses at u; infinite outside its domain.

    Arguments as in :func:`margin_evaluate`, with the dual vector u of shape (N,).
    """
    total = 0.0
    for begin in range(start, stop, _BLOCK):
        part = 0.0
        for i in range(begin, min(begin + _BLOCK, stop)):
            knot, low, high = _interval(target[i], bound)
            part += u[i] * knot + clamped_conjugate(u[i], weight[i], softness, low, high)
        total += part
    return total

r"""Losses that are squares and lines, piece by piece: squared, Huber, quantile and the hinges.

But for the squared loss their derivative is a clamped line. With distance e from a knot, softness c and an
interval [low, high],

.. math:: \ell(e) = \max_{low \le a \le high}\; a e - \tfrac c2 a^2,
          \qquad \ell'(e) = \mathrm{clamp}(e / c,\; low,\; high).

The conjugate is :math:`\tfrac c2 a^2` on the interval, and the proximal operator is a clamp too. Softness 0
gives a kink, where the derivative jumps from low to high.

Of the residual z - y, Huber has softness 1 and the interval [-delta, delta]; the quantile (pinball) loss has
softness 0 and [-tau, 1 - tau]. Of the margin t z, with t = 2 y - 1 for labels y in {0, 1}, the knot in z is t
itself, and the interval is [-bound, 0] for label 1 and [0, bound] for label 0:

- hinge ``max(0, 1 - t z)``: softness 0, bound 1;
- smoothed hinge: softness gamma, bound 1;
- squared hinge ``max(0, 1 - t z)**2``: softness 1/2, no bound.

Along a line kinks cost nothing. With predictors :math:`z + t d`, row i has the slope

.. math:: g_i(t) = \mathrm{clamp}(a_i + h_i\,(z_i + t d_i - o_i),\; l_i,\; u_i),

so that the derivative :math:`\langle g(t), d\rangle` rises with t and is straight between its bends.
"""

import math

from fastadmm.kernels.loss_loops import loss_kernels
from fastadmm.kernels.policy import inline


def _squared_value(z, y, s, extra):
    residual = z - y
    return 0.5 * s * residual * residual, s * residual


def _squared_bend(z, y, s, extra):
    return s


def _squared_prox(centre, y, s, penalty, extra):
    slope = penalty * s / (penalty + s)
    return slope * (centre - y), slope


def _squared_conjugate(part, u, y, s, extra):
    if s > 0.0:
        part += u * y + 0.5 * u * (u / s)
    elif u != 0.0:
        part += math.inf
    return part


squared = loss_kernels(
    "squared", _squared_value, _squared_bend, _squared_conjugate, closed_prox=_squared_prox
)


def _clamped(name, interval):
    """The kernels of a clamped loss, whose interval of a target is: knot, softness, low and high."""
    interval = inline(interval)

    def value(z, y, s, extra):
        knot, softness, low, high = interval(y, extra)
        distance = z - knot
        if softness > 0.0:
            slope = min(max(distance / softness, low), high)
        elif distance == 0.0:  # at a kink the subgradient nearest to zero
            slope = min(max(0.0, low), high)
        else:
            slope = high if distance > 0.0 else low
        # An infinite distance times a zero slope is no loss.
        loss = slope * (distance - 0.5 * softness * slope) if slope != 0.0 else 0.0
        return s * loss, s * slope

    def bend(z, y, s, extra):
        knot, softness, low, high = interval(y, extra)
        return s * (1.0 / softness if softness > 0.0 and low < (z - knot) / softness < high else 0.0)

    def closed_prox(centre, y, s, penalty, extra):
        knot, softness, low, high = interval(y, extra)
        if s == 0.0:
            return 0.0, 0.0
        slope = penalty * s / (softness * penalty + s)
        gradient = slope * (centre - knot)
        if gradient <= s * low:
            return s * low, 0.0
        if gradient >= s * high:
            return s * high, 0.0
        return gradient, slope

    def conjugate(part, u, y, s, extra):
        knot, softness, low, high = interval(y, extra)
        own = math.inf
        if s == 0.0:
            own = 0.0 if u == 0.0 else math.inf
        elif s * low <= u <= s * high:
            own = 0.5 * softness * u * (u / s)
        return part + (u * knot + own)

    return loss_kernels(name, value, bend, conjugate, closed_prox=closed_prox)


def _of_residual(y, extra):
    return y, extra[0], extra[1], extra[2]


def _of_margin(label, extra):
    softness, bound = extra
    return (1.0, softness, -bound, 0.0) if label > 0.5 else (-1.0, softness, 0.0, bound)


residual = _clamped("residual", _of_residual)
margin = _clamped("margin", _of_margin)

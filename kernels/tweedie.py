r"""Tweedie loss with log link for a power p between 1 and 2, half the deviance.

With a = p - 1, b = 2 - p (so a + b = 1) and, for y > 0, :math:`t = z - \log y`,

.. math:: \ell(z) = \frac{y e^{-a z}}{a} + \frac{e^{b z}}{b} - \frac{y^b}{a b}
          = y^b \Bigl[\frac{e^{-a t} - 1}{a} + \frac{e^{b t} - 1}{b}\Bigr].

The bracket :math:`\varphi(t)` has the derivative :math:`e^{bt} - e^{-at}` and is strongly convex:
:math:`\varphi'' \ge (a/b)^{b - a}`. Mirroring t exchanges a and b.
"""

import math

import numpy as np
from fastadmm.kernels.exponential import SMALLEST_NORMAL, exp_bounded, expm1_and_exp, log_positive
from fastadmm.kernels.loss_loops import loss_kernels
from fastadmm.kernels.policy import inline

#: Safety net of the root finders; a step is Newton's, or halves a bracket.
_MAX_STEPS = 200

#: A step of this size, relative to the root, is rounding.
_SMALL_STEP = 2.0**-50

#: Units of rounding, of each term, that are added to the conjugate.
_ROUNDING = 8.0 * 2.0**-52


@inline
def _slope(t, a, b):
    """Derivative of the bracket."""
    return np.exp(-a * t) * np.expm1(t) if t < 1.0 else np.exp(b * t) - np.exp(-a * t)


def _value(z, y, s, extra):
    """Infinite where an exponential overflows."""
    a, b = extra[0] - 1.0, 2.0 - extra[0]
    positive = y > 0.0
    log = log_positive(max(y, SMALLEST_NORMAL) if positive else 1.0)
    t, size = z - log, s * exp_bounded(b * log)
    up, mean = expm1_and_exp(b * t)
    down, _ = expm1_and_exp(-a * t)
    # Of opposite signs: their difference loses nothing.
    slope = up - down if positive else mean
    value = up / b + down / a if positive else mean / b
    return (size * value if s > 0.0 else 0.0), (size * slope if s > 0.0 else 0.0)


def _bend(z, y, s, extra):
    a, b = extra[0] - 1.0, 2.0 - extra[0]
    positive = y > 0.0
    log = log_positive(max(y, SMALLEST_NORMAL) if positive else 1.0)
    t = z - log
    _, up = expm1_and_exp(b * t)
    _, down = expm1_and_exp(-a * t)
    bent = s * exp_bounded(b * log) * (b * up + (a * down if positive else 0.0))
    return bent if s > 0.0 else 0.0


_row, _curvature = inline(_value), inline(_bend)


def _proximal(v, shift, near, y, s, penalty, extra):
    """Newton's steps while each is at most half of the last one.

    Other steps halve the bracket, or look for its other end twice as far away.
    """
    centre, p, low, high, last, reach = v + shift, near + shift, -np.inf, np.inf, 2.0, 1.0
    if s == 0.0:
        return v, 0.0, 0.0
    for _ in range(_MAX_STEPS):
        slope, bent = _row(p, y, s, extra)[1], _curvature(p, y, s, extra)
        rest = slope + penalty * (p - centre)
        low, high = (low, p) if rest > 0.0 else (p, high)
        move = rest / (penalty + bent)
        if not (low <= p - move <= high and abs(move) <= 0.5 * last):
            if high - low < np.inf:
                move = p - 0.5 * (low + high)
            else:
                move, reach = (reach if rest > 0.0 else -reach), 2.0 * reach
        if abs(move) <= 0.5 * _SMALL_STEP * (abs(p) + abs(centre)):
            break
        last = abs(move)
        p -= move
    # Two formulas for one gradient; each is exact where the other magnifies the rounding of p.
    gradient = penalty * (centre - p) if bent > penalty else slope
    return p - shift, gradient, penalty / (1.0 + penalty / bent)


@inline
def _supremum(c, a, b):
    r"""Never less than the largest :math:`c t - \varphi(t)`, and more by rounding only, for c >= 0.

    The maximiser t solves :math:`\log(c + e^{-at}) = b t`, whose left side minus the right is convex
    and decreasing: Newton's method approaches it from the left. A point with the residual
    :math:`r = c - \varphi'(t)` falls short of the supremum by at most :math:`r^2 / 2m` where
    :math:`\varphi'' \ge m`; right of :math:`(\log c) / b` that holds also for m = b c.
    """
    t = max(np.log(c) / b, 0.0) if c > 0.0 else 0.0
    for _ in range(_MAX_STEPS):
        e = np.exp(-a * t)
        value = (np.log1p(c + np.expm1(-a * t)) if c < 1.0 else np.log(c + e)) - b * t
        step = value / (b + a * e / (c + e))
        if not step > _SMALL_STEP * t:
            break
        t += step
    rest = c - _slope(t, a, b)
    least = max((a / b) ** (b - a), b * c)
    up, down = np.expm1(b * t) / b, np.expm1(-a * t) / a
    return c * t - up - down + 0.5 * rest * rest / least + _ROUNDING * (c * t + up - down)


def _conjugate(part, u, y, s, extra):
    """Not below the conjugate, however far the root finder came."""
    a, b = extra[0] - 1.0, 2.0 - extra[0]
    if s == 0.0:
        part += 0.0 if u == 0.0 else math.inf
    elif y > 0.0:
        size = s * y**b
        c = u / size
        own_a, own_b = (a, b) if c >= 0.0 else (b, a)
        part += u * np.log(y) + size * _supremum(abs(c), own_a, own_b)
    elif u < 0.0:
        part += math.inf
    elif u > 0.0:
        part += u / b * (np.log(u / s) - 1.0)
    return part


tweedie = loss_kernels("tweedie", _value, _bend, _conjugate, _proximal, by_halves=("evaluate",))

r"""Bounded, non-convex losses :math:`c^2 \psi(t)`: Tukey's biweight, Welsch and the sigmoid loss.

For a residual :math:`t = (z - y) / c`; for labels :math:`t = -(2 y - 1) z`, minus the margin, and c = 1:

- Tukey (family 0): :math:`\psi = (1 - (1 - t^2)^3) / 6` for :math:`|t| \le 1`, 1/6 beyond;
- Welsch (family 1): :math:`\psi = 1 - e^{-t^2/2}`;
- sigmoid (family 2): :math:`\psi = 1 / (1 + e^{-t})`.

Their proximal operator is the **global** minimiser of a scalar problem that may
have two local minima. All three share a shape: the derivative of the scalar
problem is concave left of one inflection point (Tukey, Welsch: from 0 on) and
convex right of it. So there is at most one local minimum on either side, and
Newton's method reaches each monotonically or proves that it is not there.
"""

import math

from fastadmm.kernels.exponential import exp_nonpositive
from fastadmm.kernels.loss_loops import loss_kernels
from fastadmm.kernels.policy import inline

#: A Newton step below this (relative to t and delta) is the last: what is left of the derivative is of
#: the order of its square, also near a double root, where convergence is linear.
_LAST_STEP = 3e-9

#: Safety net: at a double root the error halves in each step, at the triple root it loses a third.
_MAX_STEPS = 120

#: Where the third derivative of psi changes its sign: sqrt(3/5), sqrt(3), log(2 + sqrt(3)).
_INFLECTION = (0.7745966692414834, 1.7320508075688772, 1.3169578969248166)


@inline
def _value(t, family):
    """Loss psi."""
    if family == 0.0:
        a = min(t * t, 1.0)
        return a * (3.0 + a * (a - 3.0)) / 6.0
    if family == 1.0:
        a = 0.5 * t * t
        if a < 0.25:  # the series of 1 - exp(-a), where the difference would cancel
            p = 1.0 - a / 12.0
            for k in range(11, 1, -1):
                p = 1.0 - a * p / k
            return a * p
        return 1.0 - exp_nonpositive(-a)
    e = exp_nonpositive(-abs(t))
    return 1.0 / (1.0 + e) if t >= 0.0 else e / (1.0 + e)


@inline
def _derivatives(t, family):
    """First and second derivative of psi."""
    if family == 0.0:
        a = min(t * t, 1.0)
        rest = 1.0 - a
        return (t * rest * rest if rest > 0.0 else 0.0), rest * (1.0 - 5.0 * a)
    if family == 1.0:
        a = t * t
        e = exp_nonpositive(-0.5 * a) if a < 1400.0 else 0.0
        return (t * e if e > 0.0 else 0.0), (e * (1.0 - a) if e > 0.0 else 0.0)
    e = exp_nonpositive(-abs(t))
    d = 1.0 / (1.0 + e)
    slope = e * d * d
    # tanh(t / 2) = (1 - e) / (1 + e) on the right of zero
    bend = slope * (1.0 - e) * d
    return slope, (-bend if t >= 0.0 else bend)


@inline
def _place(z, target, family, width):
    """Argument t of psi and the sign with which it grows in z."""
    if family == 2.0:
        sign = 1.0 - 2.0 * target
        return sign * z, sign
    return (z - target) / width, 1.0


def _weighted(z, y, s, extra):
    family, width = extra
    t, sign = _place(z, y, family, width)
    slope, _ = _derivatives(t, family)
    return s * (width * width * _value(t, family)), s * (sign * width * slope)


def _bend(z, y, s, extra):
    family, width = extra
    t, _ = _place(z, y, family, width)
    _, bend = _derivatives(t, family)
    return s * bend


def _conjugate(part, u, y, s, extra):
    """0 at zero, else infinite, since a bounded loss has no other tangent below it: no u proves anything."""
    return part if u == 0.0 else math.inf


@inline
def _search(side, t, centre, ratio, family, inflection):
    """Newton's method from the outer end t of the left piece (side 1) or the right one (-1): where it ends.

    Returns: also whether the piece holds a minimum.
    """
    for _ in range(_MAX_STEPS):
        slope, bend = _derivatives(t, family)
        g = t - centre + ratio * slope
        rise = 1.0 + ratio * bend
        following = t - g / rise if rise > 0.0 else (t if g == 0.0 else side * math.inf)
        # Far left the iterates are monotone too; nothing has to hold them there.
        if not side * following <= side * inflection:
            return t, False
        last = abs(following - t) <= _LAST_STEP * (1.0 + abs(t) + abs(centre))
        t = following
        if last:
            break
    return t, True


def _proximal(v, shift, near, y, s, penalty, extra):
    r"""Global minimiser of :math:`s\,c^2 \psi(t(z + o)) + \tfrac r2 (z - v)^2` for every r > 0.

    In t it is :math:`\kappa \psi(t) + \tfrac12 (t - \delta)^2` with
    :math:`\kappa = s / r`, for residuals reflected so that :math:`\delta \ge 0`.
    The derivative :math:`g(t) = t - \delta + \kappa \psi'(t)` is concave between
    zero and the inflection point a (sigmoid: between -a and a, and convex left of
    -a) and convex beyond. From the left end of the first piece, and from
    :math:`\delta`, where g is not negative, Newton's iterates are monotone. An
    iterate that leaves its piece, or meets a derivative that is not positive,
    proves that its piece holds no minimum. Of two minima the lower one counts;
    of equal ones that with the smaller loss.

    The derivative in the shift may be negative. ``extra`` is the family and c: 1 for the sigmoid loss.
    """
    family, width = extra
    inflection, ratio = _INFLECTION[int(family)], s / penalty
    centre, sign = _place(v + shift, y, family, width)
    if family != 2.0 and centre < 0.0:
        centre, sign = -centre, -1.0
    left, has_left = _search(1.0, -inflection if family == 2.0 else 0.0, centre, ratio, family, inflection)
    right, has_right = centre, False
    if centre > inflection:
        right, has_right = _search(-1.0, centre, centre, ratio, family, inflection)
    low, high = left - centre, right - centre
    below = ratio * _value(left, family) + 0.5 * low * low
    above = ratio * _value(right, family) + 0.5 * high * high
    # Rounding at a root on the border may deny both: the border is it then.
    first = has_left and (not has_right or below <= above)
    t = left if first else (right if has_right else inflection)
    slope, bend = _derivatives(t, family)
    g, h = s * (sign * width * slope), s * bend
    z = sign * width * t - shift
    if family != 2.0:
        # Outside every loss nothing moves, to the bit.
        z = v if g == 0.0 and t == centre else z + y
    return z, g, penalty * h / (penalty + h)


bounded = loss_kernels("bounded", _weighted, _bend, _conjugate, _proximal)

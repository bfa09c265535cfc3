"""Losses in many digits, from their formulas in ``docs/losses.md`` and from nothing of the product.

Each formula gives value, slope and curvature for one sample, written so that nothing cancels.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mpmath import exp, log, log1p, mpf

#: Losses without a gradient somewhere.
KINKED = ("hinge", "quantile")

#: Parameters by default.
_DEFAULTS = {"delta": 1.0, "tau": 0.5, "gamma": 1.0, "power": 1.5, "alpha": 1.0}

ZERO, ONE = mpf(0), mpf(1)


@dataclass(frozen=True)
class Formula:
    """Value, first and second derivative in the predictor z, each a function of z and the target y."""

    value: Callable[[Any, Any], Any]
    slope: Callable[[Any, Any], Any]
    bend: Callable[[Any, Any], Any]


def formula(loss, parameters):
    p = {name: mpf(value) for name, value in {**_DEFAULTS, **parameters}.items()}
    if loss in ("logistic", "binomial"):
        return Formula(_logistic, lambda z, y: _expit(z) - y, lambda z, y: _expit(z) * _expit(-z))
    if loss == "squared":
        return Formula(lambda z, y: (z - y) ** 2 / 2, lambda z, y: z - y, lambda z, y: ONE)
    if loss == "huber":
        return _clamped(ONE, -p["delta"], p["delta"])
    if loss == "quantile":
        return _clamped(ZERO, -p["tau"], 1 - p["tau"])
    if loss in ("hinge", "smoothed_hinge"):
        return _of_margin(_clamped(ZERO if loss == "hinge" else p["gamma"], -ONE, ZERO))
    if loss == "squared_hinge":
        return _of_margin(_clamped(mpf(0.5), None, ZERO))
    return _log_link(loss, p)


def _expit(z):
    return 1 / (1 + exp(-z)) if z > 0 else exp(z) / (1 + exp(z))


def _logistic(z, y):
    return log1p(exp(-z)) + (1 - y) * z if z > 0 else log1p(exp(z)) - y * z


def _clamped(width, low, high):
    """The loss of the residual e = z - y whose slope is e / width between low and high."""

    def part(e):
        if low is not None and e < width * low:
            return low * e - width * low * low / 2, low, ZERO
        if e > width * high:
            return high * e - width * high * high / 2, high, ZERO
        return (e * e / (2 * width), e / width, 1 / width) if width else (ZERO, ZERO, ZERO)

    return Formula(lambda z, y: part(z - y)[0], lambda z, y: part(z - y)[1], lambda z, y: part(z - y)[2])


def _of_margin(inner):
    """The same of the margin: e = t z - 1 with t = 2 y - 1."""

    return Formula(
        lambda z, y: inner.value((2 * y - 1) * z, ONE),
        lambda z, y: (2 * y - 1) * inner.slope((2 * y - 1) * z, ONE),
        lambda z, y: inner.bend((2 * y - 1) * z, ONE),
    )


def _y_log_y(y):
    return y * log(y) if y > 0 else ZERO


def _log_link(loss, p):
    """Half a deviance with the mean exp(z)."""
    if loss == "poisson":
        return Formula(
            lambda z, y: exp(z) - y * z - y + _y_log_y(y), lambda z, y: exp(z) - y, lambda z, y: exp(z)
        )
    if loss == "gamma":
        return Formula(
            lambda z, y: y * exp(-z) + z - log(y) - 1, lambda z, y: 1 - y * exp(-z), lambda z, y: y * exp(-z)
        )
    if loss == "tweedie":
        a, c = p["power"] - 1, 2 - p["power"]  # both positive
        return Formula(
            lambda z, y: y * exp(-a * z) / a + exp(c * z) / c - (y**c / (a * c) if y > 0 else ZERO),
            lambda z, y: exp(c * z) - y * exp(-a * z),
            lambda z, y: c * exp(c * z) + a * y * exp(-a * z),
        )
    if loss == "negative_binomial":
        a = p["alpha"]
        return Formula(
            lambda z, y: (y + 1 / a) * (log1p(a * exp(z)) - log1p(a * y)) - y * z + _y_log_y(y),
            lambda z, y: (exp(z) - y) / (1 + a * exp(z)),
            lambda z, y: exp(z) * (1 + a * y) / (1 + a * exp(z)) ** 2,
        )
    raise ValueError(loss)


def softmax_value(z, y):
    """Multinomial loss of predictors z, one per class: the terms of the other classes beside the target's."""
    return _log_of_one_and([own - z[y] for c, own in enumerate(z) if c != y])


def _log_of_one_and(terms):
    top = max(terms, default=ZERO)
    if top <= 0:
        return log1p(sum((exp(t) for t in terms), ZERO))
    return top + log1p(exp(-top) + sum((exp(t - top) for t in terms), ZERO) - 1)


def _shares(z):
    top = max(z)
    each = [exp(own - top) for own in z]
    total = sum(each, ZERO)
    return [own / total for own in each]


def softmax_slope(z, y):
    return [own - (c == y) for c, own in enumerate(_shares(z))]


def softmax_bend(z):
    p = _shares(z)
    return [[a * ((c == k) - b) for k, b in enumerate(p)] for c, a in enumerate(p)]

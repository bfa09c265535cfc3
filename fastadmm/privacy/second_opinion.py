r"""What releases cost, by formulas of the audit's own: it must not believe the accountant that it examines.

:math:`\delta(\varepsilon) = \sum_s P(s)\,\bigl[\Phi(-e/\mu + \mu/2) - \exp(e)\,\Phi(-e/\mu - \mu/2)\bigr]`
with :math:`e = \varepsilon - \sum_k s_k \varepsilon_k`, over all patterns of signs s, in as many words as the
theorem has (``docs/privacy.md#t5-composition``). :mod:`fastadmm.privacy.accounting` computes the same with
more care about rounding, and finds roots.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import numpy as np

__all__ = ["delta_spent", "discrete_delta_spent", "epsilon_spent", "share_cost"]

#: A claim counts as kept where delta is more by no more than this share: rounding of either computation.
_ROUNDING = 1e-6

#: Pure mechanisms of one record whose signs are enumerated; more are added to epsilon plainly.
_MOST_SIGNS = 10


def delta_spent(mu: float, epsilon: float, pure: Sequence[float] = ()) -> float:
    """Delta at epsilon of Gaussian releases with mu in all, and of pure mechanisms."""
    from scipy.special import log_ndtr, ndtr

    signed = sorted((p for p in pure if p > 0.0), reverse=True)
    epsilon -= math.fsum(signed[_MOST_SIGNS:])
    total = 0.0
    for signs in itertools.product((1.0, -1.0), repeat=min(len(signed), _MOST_SIGNS)):
        probability, e = 1.0, epsilon
        for sign, p in zip(signs, signed):
            probability *= 1.0 / (1.0 + math.exp(-sign * p))
            e -= sign * p
        if mu > 0.0:
            excess = float(ndtr(-e / mu + 0.5 * mu)) - math.exp(
                min(e + float(log_ndtr(-e / mu - 0.5 * mu)), 0.0)
            )
        else:
            excess = -math.expm1(e) if e < -1e-11 else 0.0
        total += probability * max(excess, 0.0)
    return min(total, 1.0)


def discrete_delta_spent(mu: float, epsilon: float) -> float:
    r"""The same of discrete Gaussian noise, by zCDP with :math:`\rho = \mu^2/2`."""
    more = np.exp(np.linspace(-12.0, 12.0, 240_001))
    alpha = 1.0 + more
    logs = more * (alpha * 0.5 * mu * mu - epsilon) - np.log(more) + alpha * (np.log(more) - np.log(alpha))
    return float(min(1.0, math.exp(min(float(logs.min()), 0.0))))


def share_cost(gdp: float, share: float) -> float:
    """mu of releases with so small a share of their noise; infinite without any."""
    return gdp / share if share > 0.0 else math.inf


def epsilon_spent(mu: float, delta: float, pure: Sequence[float] = (), discrete: bool = False) -> float:
    """Epsilon that all of it costs at delta, by bisection."""
    if not math.isfinite(mu):
        return math.inf
    allowed = delta * (1.0 + _ROUNDING)
    rest = math.fsum(pure) if discrete else 0.0

    def spent(epsilon: float) -> float:
        return discrete_delta_spent(mu, epsilon) if discrete else delta_spent(mu, epsilon, pure)

    if (mu == 0.0 and not pure) or spent(0.0) <= allowed:
        return rest
    low, high = 0.0, 1.0
    while spent(high) > allowed and high < 1e6:
        low, high = high, 2.0 * high
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if spent(middle) > allowed else (low, middle)
    return high + rest

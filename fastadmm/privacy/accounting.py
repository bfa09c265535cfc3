"""The total cost of releases: the exact law of Gaussian noise, alone and composed with pure mechanisms.

A Gaussian release with sensitivity D and standard deviation s is mu-GDP with mu = D/s, and T adaptive ones
are exactly sqrt(T) mu-GDP (Dong, Roth, Su 2022; Balle, Wang 2018). Every function whose result is a claim
rounds towards safety: the claim is checked against the law before it is returned.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

import numpy as np

from fastadmm.errors import ConfigError

#: Below this mu the two terms of the law cancel, and their difference is integrated instead.
_SMALL = 0.5

#: Nodes of the integral: exact to rounding for an interval of length up to 0.5.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)

#: Relative step by which a root is moved to the safe side.
_NUDGE = 2e-15

#: Patterns of pure losses that are enumerated; more distinct values than fit are added up plainly.
_MAX_PATTERNS = 4096


def log_delta_of(mu: float, epsilon: float) -> float:
    """Logarithm of delta(epsilon) of a mu-GDP release, exact in tails: ``docs/privacy.md#t5-composition``."""
    from scipy.special import log_ndtr, ndtr

    if mu == 0.0:
        return math.log(-math.expm1(epsilon)) if epsilon < 0.0 else -math.inf
    if math.isinf(mu) or epsilon == -math.inf:
        return 0.0
    if epsilon == math.inf:
        return -math.inf
    a, b = -epsilon / mu + 0.5 * mu, -epsilon / mu - 0.5 * mu
    if epsilon < 0.0:
        # 1 - delta(eps) = e^eps (1 - delta(-eps)): the law reflected, without cancellation near one.
        other = math.exp(log_delta_of(mu, -epsilon))
        return math.log1p(-math.exp(epsilon) * (1.0 - other)) if other < 1.0 else 0.0
    if mu <= _SMALL:
        x = 0.5 * (a + b) + 0.5 * mu * _NODES
        integral = 0.5 * mu * float(_WEIGHTS @ _mills_slope(x))
        return _log_density(a) + math.log(integral) if integral > 0.0 else -math.inf
    if a <= 0.0:
        difference = float(_mills(np.array(a)) - _mills(np.array(b)))
        return _log_density(a) + math.log(difference) if difference > 0.0 else -math.inf
    return math.log(float(ndtr(a)) - math.exp(min(epsilon + float(log_ndtr(b)), 0.0)))


def _log_density(x: float) -> float:
    return -0.5 * x * x - 0.5 * math.log(2.0 * math.pi)


def _mills(x: np.ndarray) -> np.ndarray:
    from scipy.special import erfcx

    return math.sqrt(math.pi / 2.0) * erfcx(-x / math.sqrt(2.0))


def _mills_slope(x: np.ndarray) -> np.ndarray:
    """R'(x) = 1 + x R(x) = sum over k of its asymptotic series where that sum would cancel."""
    far = x < -50.0
    near = 1.0 + x * _mills(np.where(far, -1.0, x))
    with np.errstate(over="ignore"):  # 1 / infinity is 0, as it should be
        square = 1.0 / np.where(far, x, 1.0) ** 2
    series = square * (1.0 - 3.0 * square * (1.0 - 5.0 * square * (1.0 - 7.0 * square)))
    return np.where(far, series, near)


def compose_gdp(mus: Iterable[float]) -> float:
    """mu of adaptive Gaussian releases together: theorem ``docs/privacy.md#t5-composition``."""
    return math.hypot(*mus)


@lru_cache(maxsize=8)
def _pure_losses(pure: tuple[float, ...]) -> tuple[dict[float, float], float]:
    """Distribution of the summed loss of dominating randomised responses; what did not fit is a plain sum."""
    losses, left = {0.0: 1.0}, 0.0
    for epsilon in sorted(pure, reverse=True):
        if epsilon == 0.0:
            continue
        if len(losses) * 2 > _MAX_PATTERNS:
            left += epsilon
            continue
        up = 1.0 / (1.0 + math.exp(-epsilon))
        following: dict[float, float] = {}
        for loss, probability in losses.items():
            for value, share in ((loss + epsilon, up), (loss - epsilon, 1.0 - up)):
                key = round(value, 12)  # equal patterns meet although their sums differ in the last digit
                following[key] = following.get(key, 0.0) + probability * share
        losses = following
    return losses, left


def delta_of(mu: float, epsilon: float, pure: Sequence[float] = ()) -> float:
    """Exact delta at epsilon of a mu-GDP release with pure mechanisms: ``docs/privacy.md#t5-composition``."""
    if not pure:
        return math.exp(log_delta_of(mu, epsilon))
    losses, left = _pure_losses(tuple(pure))
    epsilon -= left
    # A loss at epsilon itself is no excess: without this, rounding of a sum would show as delta.
    beyond = ((probability, epsilon - loss) for loss, probability in losses.items())
    terms = (p * math.exp(log_delta_of(mu, e)) for p, e in beyond if not (mu == 0.0 and e > -1e-11))
    return min(sum(terms, 0.0), 1.0)


def epsilon_of(mu: float, delta: float, pure: Sequence[float] = ()) -> float:
    """Smallest epsilon at delta of the same; infinite for none: ``docs/privacy.md#t5-composition``."""
    _check_delta(delta)
    if not mu >= 0.0:
        raise ConfigError(f"mu: {mu!r} must not be negative")
    total = math.fsum(pure)
    if math.isinf(mu) or math.isinf(total) or (delta == 0.0 and mu > 0.0):
        return math.inf
    if delta == 0.0:
        return total

    if delta_of(mu, 0.0, pure) <= delta:
        return 0.0
    high = total + mu * mu / 2.0 + mu * (math.sqrt(-2.0 * math.log(delta)) + 1.0)  # sub-Gaussian tail
    if math.isinf(high):
        return math.inf
    root = _least(lambda e: delta_of(mu, e, pure), delta, high, xtol=1e-13, rtol=1e-14)
    return min(root, total) if mu == 0.0 else root


def gdp_of(epsilon: float, delta: float, pure: Sequence[float] = ()) -> float:
    """Largest mu for (epsilon, delta) beside pure mechanisms: ``docs/privacy.md#t5-composition``."""
    _check_delta(delta)
    if not epsilon >= 0.0:
        raise ConfigError(f"epsilon: {epsilon!r} must not be negative")
    if math.isinf(epsilon):
        return math.inf
    if epsilon > 1e12:
        raise ConfigError(f"epsilon: {epsilon:g} protects nothing, and cannot be accounted; at most 1e12")
    if delta == 0.0:
        return 0.0
    if delta_of(0.0, epsilon, pure) > delta:
        raise ConfigError(
            f"epsilon: {math.fsum(pure):.6g} is already spent by pure mechanisms, "
            f"which leaves nothing of {epsilon:.6g}"
        )

    # delta(eps) <= delta(0) < mu / 2: the lower end is safe, unless pure mechanisms use up delta.
    return _most(lambda mu: delta_of(mu, epsilon, pure), delta, math.log(delta) - 1.0, 1.0, xtol=1e-15)


def noise_multiplier(epsilon: float, delta: float, rounds: int = 1, pure: Sequence[float] = ()) -> float:
    r"""Smallest :math:`\sigma/\Delta` of each of T rounds in a budget: ``docs/privacy.md#t5-composition``."""
    if rounds < 1:
        raise ConfigError(f"rounds: {rounds!r} must be at least 1")
    mu = gdp_of(epsilon, delta, pure)
    return math.sqrt(rounds) / mu if mu > 0.0 else math.inf


def rounds_within(epsilon: float, delta: float, multiplier: float) -> int:
    """Largest number of rounds at this noise multiplier in the budget: ``docs/privacy.md#t5-composition``."""
    # Rounding may have taken the last round: it is tried, too.
    most = math.floor((gdp_of(epsilon, delta) * multiplier) ** 2 * (1.0 + 1e-9))
    while most > 0 and delta_of(math.sqrt(most) / multiplier, epsilon) > delta * (1.0 + 1e-12):
        most -= 1
    return most


def zcdp_of(mus: Iterable[float]) -> float:
    r"""rho of discrete Gaussians: :math:`\sum_k \mu_k^2/2`, with :math:`\mu_k = \Delta_k/\sigma_k`."""
    return 0.5 * math.fsum(mu * mu for mu in mus)


def zcdp_delta(rho: float, epsilon: float) -> float:
    """An upper bound on delta of a rho-zCDP release (Canonne, Kamath, Steinke 2020, corollary 13)."""
    if rho == 0.0:
        return 0.0
    if math.isinf(rho):
        return 1.0

    def slope(log_excess: float) -> float:
        # derivative in alpha of the logarithm; an increasing function
        alpha = 1.0 + math.exp(log_excess)
        return (2.0 * alpha - 1.0) * rho - epsilon + log_excess - math.log(alpha)

    low, high = -30.0, 1.0
    while slope(high) < 0.0:
        high += 2.0
    if slope(low) > 0.0:
        return 1.0
    log_excess = _root(slope, low, high, xtol=1e-13)
    excess = math.exp(log_excess)
    alpha = 1.0 + excess
    exponent = excess * (alpha * rho - epsilon) - log_excess + alpha * (log_excess - math.log(alpha))
    return min(1.0, math.exp(min(exponent, 0.0)))  # every alpha gives a valid bound


def zcdp_epsilon(rho: float, delta: float) -> float:
    """An epsilon that a rho-zCDP release satisfies at delta: inverse of :func:`zcdp_delta`."""
    _check_delta(delta)
    if math.isinf(rho) or (delta == 0.0 and rho > 0.0):
        return math.inf
    if rho == 0.0 or zcdp_delta(rho, 0.0) <= delta:
        return 0.0
    high = rho + 2.0 * math.sqrt(-rho * math.log(delta))  # Bun, Steinke 2016: always enough
    if zcdp_delta(rho, high) > delta:
        high *= 1.0 + 1e-9
    return _least(lambda e: zcdp_delta(rho, e), delta, high, xtol=1e-12, rtol=1e-13)


def zcdp_budget(epsilon: float, delta: float) -> float:
    """Largest rho that :func:`zcdp_delta` proves to be (epsilon, delta)-private."""
    _check_delta(delta)
    if delta == 0.0:
        return 0.0
    most = math.log(epsilon + 1.0)  # rho <= epsilon always
    return _most(lambda rho: zcdp_delta(rho, epsilon), delta, -60.0, most, xtol=1e-14)


def _least(law: Callable[[float], float], delta: float, high: float, **tolerances: float) -> float:
    """Least epsilon up to `high` whose delta by a law is small enough, moved towards safety until it is."""
    epsilon, step = _root(lambda e: _log(law(e)) - math.log(delta), 0.0, high, **tolerances), _NUDGE
    while not law(epsilon) <= delta:
        epsilon += step * max(epsilon, 1.0)
        step *= 2.0
    return epsilon


def _most(law: Callable[[float], float], delta: float, low: float, high: float, xtol: float) -> float:
    """The same of the largest cost, between exponentials; 0 where the lower end is too much."""

    def excess(log_cost: float) -> float:
        return _log(law(math.exp(log_cost))) - math.log(delta)

    if excess(low) > 0.0:
        return 0.0
    while excess(high) < 0.0:
        high += 2.0
    cost, step = math.exp(_root(excess, low, high, xtol=xtol, rtol=1e-14)), _NUDGE
    while not law(cost) <= delta:
        cost *= 1.0 - step
        step *= 2.0
    return cost


def _root(function: Callable[[float], float], low: float, high: float, **tolerances: float) -> float:
    """Root of a function within a bracket (Brent)."""
    # Imported here: it takes as long as the rest of a run's start, and only private runs need it.
    from scipy.optimize import brentq

    return float(brentq(function, low, high, **tolerances))


def _log(value: float) -> float:
    return math.log(value) if value > 0.0 else -1e308


def _check_delta(delta: float) -> None:
    if not 0.0 <= delta < 1.0:
        raise ConfigError(f"delta: {delta!r} must be from 0 to below 1")

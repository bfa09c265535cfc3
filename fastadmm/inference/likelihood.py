"""The distribution that a loss is the negative log-likelihood of, and what is measured by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, xlogy

__all__ = ["FAMILIES", "Family"]

Array = np.ndarray


def _bernoulli(z: Array, y: Array, weight: Array) -> float:
    return float(weight @ (y * z - np.logaddexp(0.0, z)))


def _bernoulli_saturated(y: Array, weight: Array) -> float:
    return float(weight @ (xlogy(y, y) + xlogy(1.0 - y, 1.0 - y)))


def _poisson(z: Array, y: Array, weight: Array) -> float:
    return float(weight @ (y * z - np.exp(z) - gammaln(y + 1.0)))


def _poisson_saturated(y: Array, weight: Array) -> float:
    return float(weight @ (xlogy(y, y) - y - gammaln(y + 1.0)))


def _normal(z: Array, y: Array, weight: Array) -> float:
    """At the variance that makes it largest."""
    squares, n = float(weight @ (y - z) ** 2), float(weight.sum())
    with np.errstate(divide="ignore"):
        return float(-0.5 * n * (np.log(2.0 * np.pi * squares / n) + 1.0))


@dataclass(frozen=True)
class Family:
    """A distribution with the canonical link.

    Attributes
    ----------
    name : str
    log_likelihood : callable
        Of linear predictor, targets and sample weights, each of shape (N,): the weighted sum.
    saturated : callable or None
        The same at the best predictor of each sample, of targets and weights; None where the deviance is the
        sum of squares.
    ratio : str
        What exp(weight) is called; empty where it is nothing of interest.
    """

    name: str
    log_likelihood: Callable[[Array, Array, Array], float]
    saturated: Callable[[Array, Array], float] | None
    ratio: str

    @property
    def has_dispersion(self) -> bool:
        """Whether a variance is estimated: then tests use t and F instead of normal and chi-square."""
        return self.saturated is None

    def deviance(self, z: Array, y: Array, weight: Array) -> float:
        """Deviance; of the normal distribution the residual sum of squares.

        Parameters
        ----------
        z, y, weight : ndarray of shape (N,)
            Linear predictor, targets, sample weights.
        """
        if self.saturated is None:
            return float(weight @ (y - z) ** 2)
        return 2.0 * (self.saturated(y, weight) - self.log_likelihood(z, y, weight))


#: By the name of the loss.
FAMILIES = {
    "logistic": Family("Bernoulli", _bernoulli, _bernoulli_saturated, "odds ratio"),
    "poisson": Family("Poisson", _poisson, _poisson_saturated, "rate ratio"),
    "squared": Family("normal", _normal, None, ""),
}

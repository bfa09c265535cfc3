r"""Losses that are half a deviance, for targets with the mean :math:`e^z`."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.problem.loss import Loss, Rows
from fastadmm.problem.targets import check_rates, refuse

Array = np.ndarray


class _LogLink(Loss):
    """Half a deviance of targets with the mean :math:`e^z`: zero where the mean is the target."""

    task: ClassVar[str] = "regression"
    self_concordant: ClassVar[bool] = True
    log_link: ClassVar[bool] = True
    needs: ClassVar[str] = "counts"  # what its targets are, where they may be zero

    def check_targets(self, y: Array, weight: Array, fit_intercept: bool) -> None:
        check_rates(y, weight, fit_intercept, self.name, self.needs)

    def least(self, y: Array, weight: Array) -> float:
        return 0.0

    def rounding_norm(self, u: Array, rows: Rows, norms: tuple[float, float], engine: Engine) -> float:
        logarithm = np.abs(np.log(np.where(rows.y > 0.0, rows.y, 1.0))) + 1.0
        return float(engine.norm(np.abs(u) * logarithm + rows.weight * self.size_of_row(rows.y)))

    def size_of_row(self, y: Array) -> Array:
        """What the terms of a row's loss are relative to, for unit weight; y and result of shape (N,)."""
        return y

    def penalty_unit(self, y: Array, weight: Array, offset: Array, lam: float) -> float:
        mean = float(weight @ y) / float(weight.sum())
        return self.curvature_at(mean) if mean > 0.0 else 1.0

    def curvature_at(self, mean: float) -> float:
        """Curvature of a row whose mean is its target."""
        return mean

    def link(self, mean: float) -> float:
        return math.log(mean) if mean > 0.0 else -math.inf

    def predict_mean(self, z: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.exp(z)

    def intercept_of_mean(self, mean: float) -> float:
        return math.log(mean) if mean > 0.0 else 0.0


class Poisson(_LogLink):
    r"""Half the Poisson deviance with log link: :math:`e^z - y z - y + y \log y`."""

    compiled: ClassVar[str] = "log_link.poisson"
    name: ClassVar[str] = "poisson"
    needs: ClassVar[str] = "counts or rates"

    def best_intercept(self, base: Array, y: Array, weight: Array) -> float:
        used = weight > 0.0
        top = float(base[used].max())
        return float(np.log(weight @ y) - np.log(weight[used] @ np.exp(base[used] - top))) - top


class Gamma(_LogLink):
    r"""Half the gamma deviance with log link: :math:`y e^{-z} + z - \log y - 1`."""

    compiled: ClassVar[str] = "log_link.gamma"
    name: ClassVar[str] = "gamma"

    def check_targets(self, y: Array, weight: Array, fit_intercept: bool) -> None:
        needs = f"the {self.name} loss needs targets above 0 (tweedie takes zeros)"
        refuse(y, ~(y > 0), f"is not positive; {needs}")

    def curvature_at(self, mean: float) -> float:
        return 1.0

    def size_of_row(self, y: Array) -> Array:
        return np.ones_like(y)

    def best_intercept(self, base: Array, y: Array, weight: Array) -> float:
        return _log_sum(weight, np.log(y) - base) - math.log(float(weight.sum()))


@dataclass(frozen=True)
class Tweedie(_LogLink):
    r"""Half the Tweedie deviance with log link, between Poisson (p = 1) and gamma (p = 2).

    .. math:: \frac{y e^{(1 - p) z}}{p - 1} + \frac{e^{(2 - p) z}}{2 - p} - \frac{y^{2 - p}}{(p - 1)(2 - p)}
    """

    compiled: ClassVar[str] = "tweedie.tweedie"
    name: ClassVar[str] = "tweedie"
    needs: ClassVar[str] = "targets of 0 and above"
    limits: ClassVar[dict[str, tuple[float, float]]] = {"power": (1.0, 2.0)}
    in_model: ClassVar[bool] = True
    power: float = 1.5

    def curvature_at(self, mean: float) -> float:
        return mean ** (2.0 - self.power)

    def size_of_row(self, y: Array) -> Array:
        return y ** (2.0 - self.power)

    def best_intercept(self, base: Array, y: Array, weight: Array) -> float:
        some = y > 0.0
        above = _log_sum((weight * y)[some], (1.0 - self.power) * base[some])
        return above - _log_sum(weight, (2.0 - self.power) * base)


@dataclass(frozen=True)
class NegativeBinomial(_LogLink):
    r"""Half the negative binomial deviance with log link and a given dispersion.

    .. math:: (y + \tfrac1\alpha) \log\frac{1 + \alpha e^z}{1 + \alpha y} - y (z - \log y)
    """

    compiled: ClassVar[str] = "negative_binomial.negative_binomial"
    name: ClassVar[str] = "negative_binomial"
    limits: ClassVar[dict[str, tuple[float, float]]] = {"alpha": (0.0, np.inf)}
    in_model: ClassVar[bool] = True
    alpha: float = 1.0

    def check_targets(self, y: Array, weight: Array, fit_intercept: bool) -> None:
        super().check_targets(y, weight, fit_intercept)
        needs = f"the {self.name} loss needs counts: pass the logarithm of an exposure as the offset"
        refuse(y, y != np.floor(y), f"is not a whole number; {needs}")

    def curvature_at(self, mean: float) -> float:
        return mean / (1.0 + self.alpha * mean)

    def size_of_row(self, y: Array) -> Array:
        return y + 1.0 / self.alpha


def _log_sum(weight: Array, exponent: Array) -> float:
    """Logarithm of ``sum(weight * exp(exponent))`` without overflow."""
    used = weight > 0.0
    top = float(exponent[used].max())
    return top + float(np.log(weight[used] @ np.exp(exponent[used] - top)))

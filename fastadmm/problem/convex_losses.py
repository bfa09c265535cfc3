r"""The convex losses of one predictor: formulas, domains and units. Their table is in ``docs/losses.md``.

Those with a logarithmic link are in :mod:`fastadmm.problem.log_link_losses`.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.errors import InputError
from fastadmm.problem.loss import Loss, Rows
from fastadmm.problem.targets import check_labels, check_soft_labels, refuse, weighted_quantile

Array = np.ndarray


class Logistic(Loss):
    r""":math:`\log(1 + e^z) - y z`, targets in [0, 1], or any for ``make_problem(soft_targets=True)``."""

    compiled: ClassVar[str] = "logistic.logistic"
    name: ClassVar[str] = "logistic"
    task: ClassVar[str] = "classification"
    probabilistic: ClassVar[bool] = True
    gradient_lipschitz: ClassVar[float] = 0.25
    unit: ClassVar[float] = 0.25

    def check_targets(self, y: Array, weight: Array, fit_intercept: bool) -> None:
        check_soft_labels(y, weight)

    def least(self, y: Array, weight: Array) -> float:
        used = y[weight > 0.0]
        if ((used == 0.0) | (used == 1.0)).all():
            return 0.0
        from scipy.special import entr  # minus infinity below zero: so is a loss with targets outside [0, 1]

        return float(weight[weight > 0.0] @ (entr(used) + entr(1.0 - used)))

    def intercept_of_mean(self, mean: float) -> float:
        return math.log(mean) - math.log1p(-mean) if 0.0 < mean < 1.0 else 0.0

    def predict_mean(self, z: Array) -> Array:
        from scipy.special import expit

        return expit(z)


class Binomial(Logistic):
    r"""The logistic loss of a share of successes; the sample weight is the number of trials."""

    name: ClassVar[str] = "binomial"
    task: ClassVar[str] = "regression"
    probabilistic: ClassVar[bool] = False

    def check_targets(self, y: Array, weight: Array, fit_intercept: bool) -> None:
        needs = "the binomial loss needs successes / trials, and the trials as sample weights"
        refuse(y, ~((y >= 0) & (y <= 1)), f"is outside [0, 1]; {needs}")
        seen = y[weight > 0]
        if fit_intercept and seen.min() == seen.max() and seen[0] in (0.0, 1.0):
            what = "successes" if seen[0] == 0.0 else "failures"
            raise InputError(f"y: no {what} at all; the binomial loss needs some to fit an intercept")

    def link(self, mean: float) -> float:
        return self.intercept_of_mean(mean) if 0.0 < mean < 1.0 else math.inf


class _OfResidual(Loss):
    """A loss of the residual, of any target."""

    task: ClassVar[str] = "regression"
    of_residual: ClassVar[bool] = True

    def check_targets(self, y: Array, weight: Array, fit_intercept: bool) -> None:
        pass

    def rounding_norm(self, u: Array, rows: Rows, norms: tuple[float, float], engine: Engine) -> float:
        return 0.0  # a difference of two numbers is exact to its own size


class Squared(_OfResidual):
    r""":math:`\tfrac12 (z - y)^2`."""

    compiled: ClassVar[str] = "piecewise.squared"
    name: ClassVar[str] = "squared"
    gradient_lipschitz: ClassVar[float] = 1.0

    def least(self, y: Array, weight: Array) -> float:
        return 0.0

    def intercept_of_mean(self, mean: float) -> float:
        return mean


class _Clamped(Loss):
    """A loss whose derivative is a clamped line; see :mod:`fastadmm.kernels.piecewise`."""

    def least(self, y: Array, weight: Array) -> float:
        return 0.0

    @property
    def gradient_lipschitz(self) -> float | None:
        softness = self.kernel_arguments()[0]
        return 1.0 / softness if softness > 0.0 else None


class _Residual(_OfResidual, _Clamped):
    """Of the residual."""

    compiled: ClassVar[str] = "piecewise.residual"

    def bends(self, y: Array) -> tuple[Array, Array] | None:
        softness, low, high = self.kernel_arguments()
        return y + softness * low, y + softness * high


class _Margin(_Clamped):
    """Of the margin."""

    compiled: ClassVar[str] = "piecewise.margin"
    task: ClassVar[str] = "classification"

    def rounding_norm(self, u: Array, rows: Rows, norms: tuple[float, float], engine: Engine) -> float:
        return norms[0]

    def check_targets(self, y: Array, weight: Array, fit_intercept: bool) -> None:
        check_labels(y, weight)

    def bends(self, y: Array) -> tuple[Array, Array] | None:
        softness, bound = self.kernel_arguments()
        margin = 1.0 - softness * bound  # where the line of least slope begins
        return np.where(y > 0.5, margin, -1.0), np.where(y > 0.5, 1.0, -margin)


@dataclass(frozen=True)
class Huber(_Residual):
    r""":math:`\tfrac12 e^2` for residuals e up to delta, :math:`\delta |e| - \tfrac12 \delta^2` beyond."""

    name: ClassVar[str] = "huber"
    limits: ClassVar[dict[str, tuple[float, float]]] = {"delta": (0.0, np.inf)}
    delta: float = 1.0

    def kernel_arguments(self) -> tuple[float, ...]:
        return 1.0, -self.delta, self.delta

    def penalty_unit(self, y: Array, weight: Array, offset: Array, lam: float) -> float:
        # The curvature is 1, but only for residuals below delta.
        spread = _spread(y - offset, weight, 0.5)
        return 1.0 if spread <= self.delta else self.delta / spread


@dataclass(frozen=True)
class Quantile(_Residual):
    r"""Pinball loss: :math:`\tau (y - z)` where z < y, :math:`(1 - \tau) (z - y)` beyond."""

    name: ClassVar[str] = "quantile"
    smooth: ClassVar[bool] = False
    limits: ClassVar[dict[str, tuple[float, float]]] = {"tau": (0.0, 1.0)}
    tau: float = 0.5

    def kernel_arguments(self) -> tuple[float, ...]:
        return 0.0, -self.tau, 1.0 - self.tau

    def smoothed(self, width: float) -> Loss:
        return SmoothedQuantile(self.tau, width)

    def penalty_unit(self, y: Array, weight: Array, offset: Array, lam: float) -> float:
        # No curvature: the slope changes by 1 over the spread of the targets. The factor is measured.
        spread = _spread(y - offset, weight, self.tau)
        return 10.0 / spread if spread > 0.0 else 10.0

    def best_intercept(self, base: Array, y: Array, weight: Array) -> float:
        return weighted_quantile(y - base, weight, self.tau * float(weight.sum()))


@dataclass(frozen=True)
class SmoothedQuantile(_Residual):
    r"""Pinball loss with a parabola :math:`e^2 / (2 \gamma)` at the kink; what ``subspace`` works with."""

    name: ClassVar[str] = "smoothed_quantile"
    limits: ClassVar[dict[str, tuple[float, float]]] = {"tau": (0.0, 1.0), "gamma": (0.0, np.inf)}
    tau: float = 0.5
    gamma: float = 1.0

    def kernel_arguments(self) -> tuple[float, ...]:
        return self.gamma, -self.tau, 1.0 - self.tau

    def penalty_unit(self, y: Array, weight: Array, offset: Array, lam: float) -> float:
        spread = _spread(y - offset, weight, self.tau)
        return 1.0 / max(self.gamma, spread)


class Hinge(_Margin):
    r""":math:`\max(0, 1 - t z)`, :math:`t = 2 y - 1`."""

    name: ClassVar[str] = "hinge"
    smooth: ClassVar[bool] = False

    def kernel_arguments(self) -> tuple[float, ...]:
        return 0.0, 1.0

    def smoothed(self, width: float) -> Loss:
        return SmoothedHinge(width)

    def penalty_unit(self, y: Array, weight: Array, offset: Array, lam: float) -> float:
        # No curvature, and margins of size 1 for every lambda: the root and the factor are measured.
        return 30.0 * lam**0.5

    def best_intercept(self, base: Array, y: Array, weight: Array) -> float:
        # The slope in b is minus the weight of class 1 at -inf and rises by s_i at t_i - base_i.
        return weighted_quantile((2.0 * y - 1.0) - base, weight, float(weight[y > 0.5].sum()))


@dataclass(frozen=True)
class SmoothedHinge(_Margin):
    r"""Hinge with a parabola of width gamma at the kink.

    With the margin m: 0 for :math:`m \ge 1`, :math:`(1 - m)^2 / (2 \gamma)`
    for :math:`1 - \gamma \le m \le 1`, and :math:`1 - m - \gamma / 2` below.
    """

    name: ClassVar[str] = "smoothed_hinge"
    limits: ClassVar[dict[str, tuple[float, float]]] = {"gamma": (0.0, np.inf)}
    gamma: float = 1.0

    def kernel_arguments(self) -> tuple[float, ...]:
        return self.gamma, 1.0

    def penalty_unit(self, y: Array, weight: Array, offset: Array, lam: float) -> float:
        return 1.0 / max(1.0, self.gamma)


class SquaredHinge(_Margin):
    r""":math:`\max(0, 1 - t z)^2`, :math:`t = 2 y - 1` (without a factor 1/2, as in LIBLINEAR)."""

    name: ClassVar[str] = "squared_hinge"
    unit: ClassVar[float] = 2.0

    def kernel_arguments(self) -> tuple[float, ...]:
        return 0.5, np.inf


def _spread(values: Array, weight: Array, tau: float) -> float:
    """Weighted mean distance from the tau-quantile."""
    centre = weighted_quantile(values, weight, tau * float(weight.sum()))
    return float(weight @ np.abs(values - centre)) / float(weight.sum())

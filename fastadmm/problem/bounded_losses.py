r"""Bounded, non-convex losses: the cost of an outlier is limited, however far out it is.

Without convexity there is no duality gap and no certificate: training ends at
a stationary point. See ``docs/losses.md``.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fastadmm.problem.convex_losses import Huber, Logistic
from fastadmm.problem.loss import Loss
from fastadmm.problem.targets import check_labels, weighted_quantile

Array = np.ndarray


class _Bounded(Loss):
    """A loss of :mod:`fastadmm.kernels.bounded`."""

    compiled: ClassVar[str] = "bounded.bounded"
    convex: ClassVar[bool] = False
    family: ClassVar[float]
    gradient_lipschitz: ClassVar[float] = 1.0  # largest second derivative in absolute value

    def kernel_arguments(self) -> tuple[float, ...]:
        return self.family, self.parameters.get("c", 1.0)

    def penalty_unit(self, y: Array, weight: Array, offset: Array, lam: float) -> float:
        return self.gradient_lipschitz

    def check_targets(self, y: Array, weight: Array, fit_intercept: bool) -> None:
        if self.task == "classification":
            check_labels(y, weight)


class _BoundedResidual(_Bounded):
    """A bounded loss of the residual; a default c is as efficient as that of the Huber loss it begins at."""

    task: ClassVar[str] = "regression"
    limits: ClassVar[dict[str, tuple[float, float]]] = {"c": (0.0, np.inf)}
    c: float

    def convex_start(self) -> Loss:
        return Huber(1.345 / type(self).c * self.c)

    def start_intercept(self, y: Array, weight: Array, offset: Array) -> float:
        return weighted_quantile(y - offset, weight, 0.5 * float(weight.sum()))


@dataclass(frozen=True)
class Tukey(_BoundedResidual):
    r"""Tukey's biweight :math:`\tfrac{c^2}{6} (1 - (1 - (e/c)^2)^3)` for residuals e up to c, c²/6 beyond."""

    name: ClassVar[str] = "tukey"
    family: ClassVar[float] = 0.0
    weak_convexity: ClassVar[float] = 0.8
    c: float = 4.685


@dataclass(frozen=True)
class Welsch(_BoundedResidual):
    r"""Welsch's (Leclerc's) loss :math:`c^2 (1 - e^{-(e/c)^2/2})` of the residual e."""

    name: ClassVar[str] = "welsch"
    family: ClassVar[float] = 1.0
    weak_convexity: ClassVar[float] = 2.0 * math.exp(-1.5)
    c: float = 2.11


class Sigmoid(_Bounded):
    r""":math:`1 / (1 + e^{t z})`, :math:`t = 2 y - 1`: a smooth count of the errors."""

    name: ClassVar[str] = "sigmoid"
    task: ClassVar[str] = "classification"
    family: ClassVar[float] = 2.0
    gradient_lipschitz: ClassVar[float] = math.sqrt(3.0) / 18.0  # at margins of 1.317 on either side
    weak_convexity: ClassVar[float] = gradient_lipschitz

    def convex_start(self) -> Loss:
        return Logistic()

r"""The losses that owners of rows answer gradients of.

Per record, with score z and target y:

- ``squared``: :math:`(z - y)^2 / 2`. The paper writes :math:`(z - y)^2`: its
  gradients and its Xi are twice ours, its step constants half.
- ``hinge``: :math:`\max(0, 1 - y z)`, labels -1 and 1.
- ``logistic``: :math:`\log(1 + e^{-y z})`, labels -1 and 1.

The objective is per mean loss, with the whole parameter vector penalised, the
constant included, as in the paper:

.. math:: f(\theta) = \tfrac\lambda2 \|\theta\|^2 + \tfrac1n \sum_i \ell(u_i^\top\theta, y_i).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fastadmm.errors import ConfigError
from fastadmm.other_names import choose_instead

__all__ = ["LOSSES", "OwnerLoss", "get_loss"]


@dataclass(frozen=True)
class OwnerLoss:
    """One loss."""

    name: str
    code: int  # as in owner_gradient
    task: str  # which labels it takes
    curvature: float  # largest second derivative in z; infinite for the hinge

    def slope_bound(self, score: float, target: float) -> float:
        """Largest absolute derivative for scores and targets of at most these sizes.

        Returns: infinite where there is none.
        """
        return score + target if self.name == "squared" else 1.0

    def values(self, z: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Loss of every record, the shape of ``z``; y is broadcast against z."""
        if self.name == "squared":
            return 0.5 * (z - y) ** 2
        if self.name == "hinge":
            return np.maximum(0.0, 1.0 - y * z)
        return np.logaddexp(0.0, -y * z)


LOSSES: dict[str, OwnerLoss] = {
    loss.name: loss
    for loss in (
        OwnerLoss("squared", 0, "regression", 1.0),
        OwnerLoss("hinge", 1, "classification", math.inf),
        OwnerLoss("logistic", 2, "classification", 0.25),
    )
}


def get_loss(name: str, task: str, place: str = "data") -> OwnerLoss:
    """The loss of a name; ``auto`` takes squared for a regression, logistic for two classes."""
    if name == "auto":
        name = "squared" if task == "regression" else "logistic"
    if name not in LOSSES:
        raise ConfigError(f"loss: unknown loss {name!r}; {choose_instead('loss', name, ('auto', *LOSSES))}")
    loss = LOSSES[name]
    if loss.task == "classification" and task != "classification":
        raise ConfigError(
            f"loss: {name} needs labels of two classes (-1 and 1), but {place} has real targets; "
            "convert with --task classification, or choose squared"
        )
    return loss

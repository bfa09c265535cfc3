r"""Losses: value, derivative, curvature and scalar proximal operator.

All values are **summed** and weighted over samples, ``sum_i s_i l(z_i, y_i)``;
the solver divides by the total weight where it reports a mean.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastadmm.engine import Engine, row_ranges
from fastadmm.errors import ConfigError

__all__ = ["LOSSES", "Loss", "get_loss"]

Array = np.ndarray


@dataclass(frozen=True)
class Loss:
    """A loss of one linear predictor per sample.

    Parameters
    ----------
    name : str
        Name in configurations.
    task : {"classification", "regression"}
        What the targets are: 0 and 1, or real numbers.
    curvature_bound : float
        Supremum of the second derivative for unit weight: the natural unit
        of the penalty r.
    kernels : callable
        Returns the kernels (evaluate, curvature, prox); called at first use,
        so that importing a loss compiles nothing.
    predict_mean : callable
        Inverse link: linear predictor to expected target.
    """

    name: str
    task: str
    curvature_bound: float
    kernels: Callable[[], tuple[Any, Any, Any]]
    predict_mean: Callable[[Array], Array]

    def evaluate(self, z: Array, y: Array, weight: Array, gradient: Array, engine: Engine) -> float:
        """Summed loss at z; writes the weighted gradient.

        Parameters
        ----------
        z, y, weight : ndarray of shape (N,)
            Linear predictor, targets, sample weights.
        gradient : ndarray of shape (N,)
            Output.
        engine : Engine
            Runs the row ranges.

        Returns
        -------
        float
            ``sum_i s_i l(z_i, y_i)``.
        """
        kernel = self.kernels()[0]
        parts = engine.map(lambda rows: kernel(z, y, weight, gradient, *rows), row_ranges(len(z)))
        return float(sum(parts))

    def curvature(self, z: Array, y: Array, weight: Array, out: Array, engine: Engine) -> Array:
        """Write the weighted second derivative at z to ``out``, all of shape (N,); returns ``out``."""
        kernel = self.kernels()[1]
        engine.map(lambda rows: kernel(z, y, weight, out, *rows), row_ranges(len(z)))
        return out

    def prox(
        self,
        v: Array,
        shift: Array,
        y: Array,
        weight: Array,
        penalty: float,
        z: Array,
        gradient: Array,
        engine: Engine,
    ) -> tuple[float, float]:
        """Minimise ``s l(z + shift) + r/2 (z - v)^2`` for each sample, in place.

        Parameters
        ----------
        v, shift, y, weight : ndarray of shape (N,)
            Proximal centre, offset plus intercept, targets, sample weights.
        penalty : float
            r in the summed scaling.
        z : ndarray of shape (N,)
            In: warm start. Out: the minimiser.
        gradient : ndarray of shape (N,)
            Out: ``s l'(z + shift)``.
        engine : Engine
            Runs the row ranges.

        Returns
        -------
        tuple of float
            Sum of the gradients; sum of their derivatives in the shift.
        """
        kernel = self.kernels()[2]
        parts = engine.map(
            lambda rows: kernel(v, shift, y, weight, penalty, z, gradient, *rows), row_ranges(len(z))
        )
        return float(sum(p[0] for p in parts)), float(sum(p[1] for p in parts))


def _logistic_kernels() -> tuple[Any, Any, Any]:
    from fastadmm.kernels.logistic import logistic_curvature, logistic_evaluate, logistic_prox

    return logistic_evaluate, logistic_curvature, logistic_prox


def _squared_kernels() -> tuple[Any, Any, Any]:
    from fastadmm.kernels.squared import squared_curvature, squared_evaluate, squared_prox

    return squared_evaluate, squared_curvature, squared_prox


def _sigmoid(z: Array) -> Array:
    from scipy.special import expit

    return expit(z)


def _identity(z: Array) -> Array:
    return np.array(z, dtype=np.float64)


#: Every loss by name.
LOSSES: dict[str, Loss] = {
    "logistic": Loss("logistic", "classification", 0.25, _logistic_kernels, _sigmoid),
    "squared": Loss("squared", "regression", 1.0, _squared_kernels, _identity),
}


def get_loss(name: str) -> Loss:
    """Loss of a given name.

    Raises
    ------
    ConfigError
        If there is no loss of that name.
    """
    try:
        return LOSSES[name]
    except KeyError:
        raise ConfigError(f"loss: unknown loss {name!r}; choose one of {', '.join(sorted(LOSSES))}") from None

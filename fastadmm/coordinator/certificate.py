r"""The duality gap: how far the current model can be from the best one, proved.

At the predictor :math:`z = o + b + \sum_m D_m x_m` with summed loss gradient
g, Fenchel duality with the dual point g gives

.. math:: F(x) - F^* \le \frac{1}{W} \sum_m \frac{\|D_m^\top g + \lambda W x_m\|^2}{2 \lambda W}.

The intercept is first minimised out exactly, which makes g sum to zero, as
dual feasibility asks (up to rounding, about 1e-13 of the objective). Every
round thereby proves a lower bound on :math:`F^*`; the best one so far counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fastadmm.coordinator.root import increasing_root
from fastadmm.engine import Engine
from fastadmm.problem import Problem

__all__ = ["LowerBound", "PrimalValue", "primal_value", "sums_to_zero"]

#: Largest sum of the gradient, relative to its absolute sum, that counts as zero.
_FEASIBILITY = 1e-9


@dataclass(frozen=True)
class PrimalValue:
    """Loss at the current weights, with the best intercept.

    Attributes
    ----------
    loss : float
        Summed loss.
    gradient : ndarray of shape (N,)
        Summed-scaling gradient g.
    intercept : float
        The minimising b.
    dual_feasible : bool
        Whether g sums to zero as far as rounding allows; without it the gap
        formula proves nothing.
    """

    loss: float
    gradient: np.ndarray
    intercept: float
    dual_feasible: bool


def primal_value(problem: Problem, total: np.ndarray, intercept: float, engine: Engine) -> PrimalValue:
    """Evaluate the loss at a sum of messages, with the intercept minimised out.

    Parameters
    ----------
    problem : Problem
    total : ndarray of shape (N,)
        Sum of the messages.
    intercept : float
        Warm start.
    engine : Engine

    Returns
    -------
    PrimalValue
    """
    loss, y, weight = problem.loss, problem.y, problem.weight
    gradient = np.empty_like(total)
    base = problem.offset + total
    value = math.nan

    def evaluate(b: float) -> tuple[float, float]:
        nonlocal value
        value = loss.evaluate(base + b, y, weight, gradient, engine)
        slope = loss.curvature(base + b, y, weight, np.empty_like(total), engine).sum()
        return float(gradient.sum()), float(slope)

    if problem.fit_intercept:
        intercept = increasing_root(evaluate, intercept)
    else:
        value, intercept = loss.evaluate(base, y, weight, gradient, engine), 0.0
    feasible = not problem.fit_intercept or sums_to_zero(gradient)
    return PrimalValue(value, gradient, intercept, feasible)


def sums_to_zero(gradient: np.ndarray) -> bool:
    """Whether a gradient of shape (N,) sums to zero as far as rounding allows."""
    return bool(abs(float(gradient.sum())) <= _FEASIBILITY * float(np.abs(gradient).sum()))


class LowerBound:
    """The best proved lower bound on the optimum, per mean loss.

    Parameters
    ----------
    value : float
        Bound carried over from a checkpoint.
    """

    def __init__(self, value: float = -math.inf) -> None:
        self.value = value

    def update(self, objective: float, bound: float) -> tuple[float, float]:
        """Take in one certificate; return the absolute and relative gap it leaves.

        Parameters
        ----------
        objective : float
            F at the current weights.
        bound : float
            A proved lower bound on ``F*``.

        Returns
        -------
        absolute : float
            Upper bound on ``F - F*``.
        relative : float
            Upper bound on ``(F - F*) / F*``: the absolute gap over the lower
            bound on ``F*``; infinite while that bound is not positive.
        """
        self.value = max(self.value, bound)  # NaN never wins
        absolute = max(objective - self.value, 0.0)
        if self.value > 0.0:
            return absolute, absolute / self.value
        return absolute, 0.0 if absolute == 0.0 else math.inf

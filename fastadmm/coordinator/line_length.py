"""Length of least objective along a direction of descent: Newton inside a bracket, on the derivative."""

from __future__ import annotations

import math

import numpy as np

from fastadmm.coordinator.certificate import inner
from fastadmm.coordinator.root import increasing_root
from fastadmm.engine.engine import Engine
from fastadmm.problem.problem import Problem

__all__ = ["best_length"]


def best_length(
    problem: Problem, base: np.ndarray, along: np.ndarray, linear: float, square: float, engine: Engine
) -> float:
    r"""Minimise :math:`\ell(z + t v) + p t + \tfrac q2 t^2` over t between 0 and 1.

    Parameters
    ----------
    problem : Problem
        Whose loss is used.
    base, along : ndarray of shape (N,)
        z, offset and intercept included, and v.
    linear, square : float
        p and q, of the regulariser.
    engine : Engine
    """
    gradient, curvature, classes = np.empty_like(base), np.empty_like(base), problem.n_outputs

    def derivatives(length: float) -> tuple[float, float]:
        z = base + length * along
        problem.loss.evaluate(z, problem.y, problem.weight, gradient, engine)
        problem.loss.curvature(z, problem.y, problem.weight, curvature, engine)
        first = inner(gradient, along, engine, classes) + linear + length * square
        second = inner(curvature, along * along, engine, classes) + square
        # Overflow, or infinity minus infinity: too far.
        return (first, second) if math.isfinite(first) else (math.inf, 0.0)

    high = 1.0
    while derivatives(high)[0] > 0.0 and derivatives(0.1 * high)[0] > 0.0 and high > 1e-30:
        high *= 0.1
    return min(max(increasing_root(derivatives, 0.5 * high, 1e-6 * high), 0.0), high)

"""Messages of parts. A part is what a party holds of one class; without classes, the party itself.

With C classes part m C + c is party m's weights of class c, and its messages count in class c alone: they
are rows of N numbers, while predictors, gradients and sums hold C N, class by class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.method.class_certificate import shifted
from fastadmm.method.method import Saved
from fastadmm.problem.problem import Problem

Array = np.ndarray


@dataclass
class HullPoint(Saved):
    """A combination of points. Shapes: coefficients (K,); intercept (C,); total (N,) or (C N,)."""

    coefficients: Array  # of shape (K,)
    intercept: Any  # of shape (C,)
    total: Array  # of shape (N,) or (C N,): ``coefficients @ messages``, class by class


def predictor(problem: Problem, point: Any, engine: Engine) -> Array:
    """Predictors at a point with intercept and total: of shape (N,) or (C N,)."""
    if problem.n_outputs == 1:
        return engine.plus(problem.offset, point.total, point.intercept)
    return shifted(problem.offset + point.total, point.intercept)


def loss_at(problem: Problem, point: Any, gradient: Array, engine: Engine) -> float:
    """Summed loss at a point with intercept and total; writes the gradient, of shape (N,) or (C N,)."""
    loss, y, weight = problem.loss, problem.y, problem.weight
    if problem.n_outputs == 1:
        return loss.measure(problem, point.total, point.intercept, gradient, engine)
    z = shifted(problem.offset, point.intercept) + point.total
    return loss.evaluate(z, y, weight, gradient, engine)


def difference(problem: Problem, end: Any, start: Any, engine: Engine) -> Array:
    """Predictors at ``end`` less those at ``start``, points with intercept and total: (N,) or (C N,)."""
    rise = end.intercept - start.intercept
    if problem.n_outputs == 1:
        return engine.plus(end.total, start.total, rise, factor=-1.0)
    return shifted(end.total - start.total, rise)

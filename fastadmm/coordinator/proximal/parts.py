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


def combined(c: Array, messages: Array, classes: Array | None, n_classes: int, engine: Engine) -> Array:
    """Sum of messages of shape (K, N), each times its coefficient: of shape (N,), or (C N,)."""
    if classes is None:
        return engine.combine(c, messages)
    from fastadmm.kernels.vectors import combine_by_class

    rows, total = np.ascontiguousarray(messages), np.empty((n_classes, messages.shape[1]))
    leaves, numbers = engine.leaves(messages.shape[1]), np.asarray(c, dtype=np.float64)
    engine.over_rows(combine_by_class, leaves, numbers, rows, np.asarray(classes, dtype=np.int64), total)
    return total.ravel()


def products_with(messages: Array, v: Array, classes: Array | None, engine: Engine) -> Array:
    """Inner product of every message with its class of v, of shape (N,) or (C N,)."""
    from fastadmm.kernels.vectors import products_by_class

    k, n = messages.shape
    own = np.zeros(k, dtype=np.int64) if classes is None else np.asarray(classes, dtype=np.int64)
    rows = np.ascontiguousarray(messages), own, np.ascontiguousarray(v).reshape(-1, n)
    return engine.sum_over_rows(products_by_class, engine.leaves(n), (k,), *rows)


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

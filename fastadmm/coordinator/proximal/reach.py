"""How far weights may go that nothing bounds, for a bound to be proved: fixed by the data alone."""

from __future__ import annotations

import math

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.problem.problem import Problem

__all__ = ["reach_of"]

#: What a column contributes to predictors at most, in standard deviations of the target.
_DEVIATIONS = 1000.0


def reach_of(problem: Problem, engine: Engine) -> float:
    """R: largest standard deviation of what a column contributes, in models that are compared.

    1000 where predictors have a scale of their own, of classes and logarithms; else 1000 of the target's
    deviations. Deviations are from the mean or, without an intercept, from zero.

    Parameters
    ----------
    problem : Problem
    engine : Engine
    """
    loss = problem.loss
    if loss.task == "classification" or loss.link(1.0) is not None:
        return _DEVIATIONS
    target = engine.plus(problem.y, problem.offset, factor=-1.0)
    rows = engine.all_rows(len(target))
    mean = engine.total(target) / rows if problem.fit_intercept else 0.0
    apart = target - mean
    largest = engine.largest(np.abs(apart)) or 1.0  # whose square may overflow
    return _DEVIATIONS * largest * engine.norm(apart / largest) / math.sqrt(rows)

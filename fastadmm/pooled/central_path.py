"""Small problems on which other minimisers stall: the central path of all columns at once."""

from __future__ import annotations

import math

import numpy as np

from fastadmm.coordinator.proximal.central_path import follow_central_path
from fastadmm.pooled.goal import Goal
from fastadmm.pooled.point import Point

__all__ = ["CentralPath"]

#: Rows times classes and weights at most, and operations of a Newton step.
_MOST_ROWS, _MOST_WEIGHTS, _MOST_WORK = 1 << 14, 2048, 1 << 33

#: A gap this small against the objective is rounding; share of the wanted gap that is aimed at.
_ROUNDING, _SHARE_OF_WANTED = 1e-13, 0.5


class CentralPath:
    """Any convex problem whose table is small."""

    name = "central path"

    def takes(self, goal: Goal) -> bool:
        """Whether the problem is one for this."""
        classes = goal.problem.n_outputs
        rows, weights = classes * goal.n_samples, classes * sum(goal.widths)
        few = rows <= _MOST_ROWS and weights <= _MOST_WEIGHTS and (rows + weights) * weights**2 <= _MOST_WORK
        return few and not goal.engine.shares_rows

    def cost(self, goal: Goal) -> float:
        """More than any other: it is for what others leave."""
        return math.inf

    def minimise(self, goal: Goal, point: Point, wanted: float, otherwise: float) -> Point | None:
        """Follow the path; None where a set has no inside, or the end is no better."""
        problem, engine = goal.problem, goal.engine
        values = np.hstack([block.columns(np.arange(block.shape[1]), engine) for block in problem.blocks])
        least = point.lower if math.isfinite(point.lower) else 0.0
        aims = _SHARE_OF_WANTED * wanted, _ROUNDING * abs(point.value), least
        with np.errstate(all="ignore"):
            end = follow_central_path(problem, problem.penalties, values, goal.widths, *aims, engine)
        if end is None:
            return None
        found = goal.at(end.weights, end.intercept, np.ravel(end.gradient))
        return found if found.value < point.value or found.lower > point.lower else None

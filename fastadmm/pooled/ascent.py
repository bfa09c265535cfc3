"""Dual coordinate ascent over the rows of all columns: a few passes where rows have little in common."""

from __future__ import annotations

import numpy as np

from fastadmm.blocks.some_columns import some_columns
from fastadmm.coordinator.subspace.row_ascent import ascend
from fastadmm.coordinator.subspace.span import SpanPoint
from fastadmm.pooled import cost
from fastadmm.pooled.goal import Goal
from fastadmm.pooled.point import Point

__all__ = ["DualAscent"]

#: The dual vector proves exactly the gap that a pass has measured.
_SHARE_OF_WANTED = 0.9

#: Passes that it takes with more columns than rows, and at most; with fewer columns as many times more as
#: the square of that ratio.
_PASSES, _MOST_PASSES = 12.0, 1000.0

#: Fewer entries in a row than this leave little to gain.
_FEWEST_ENTRIES = 4.0


class DualAscent:
    """Squared l2, one predictor per sample, a loss with a proximal operator; many columns, or kinks."""

    name = "dual ascent"

    def takes(self, goal: Goal) -> bool:
        """Whether the problem is one for this."""
        problem = goal.problem
        if not (problem.is_ridge and problem.n_outputs == 1 and goal.in_memory) or goal.engine.shares_rows:
            return False
        if problem.loss.kernels().prox_of_row is None:
            return False
        return goal.entries >= _FEWEST_ENTRIES or not problem.loss.smooth

    def cost(self, goal: Goal) -> float:
        """Passes, each of two products."""
        few = max(1.0, goal.n_samples / sum(goal.widths)) ** 2
        return min(_PASSES * few, _MOST_PASSES) * 2.0 * cost.product(goal)

    def minimise(self, goal: Goal, point: Point, wanted: float, otherwise: float) -> Point | None:
        """Passes until the gap is reached; None where they promise to take too long."""
        problem, engine = goal.problem, goal.engine
        rows, order = some_columns(problem.blocks, np.arange(sum(goal.widths)), engine)
        start = SpanPoint(point.weights[order], point.intercept, point.total)
        most = min(_MOST_PASSES, otherwise / (2.0 * cost.product(goal)))
        found = ascend(problem, rows, start, _SHARE_OF_WANTED * wanted, most, engine)
        if found is None:
            return None
        weights = np.empty(len(order))
        weights[order] = found.point.coefficients
        return goal.at(weights, found.point.intercept, found.dual)

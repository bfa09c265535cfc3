"""Dual coordinate ascent over the rows of all columns: a few passes where rows have little in common."""

from __future__ import annotations

import numpy as np

from fastadmm.blocks.some_columns import some_columns
from fastadmm.coordinator.subspace.row_ascent import ascend
from fastadmm.coordinator.subspace.span import SpanPoint
from fastadmm.pooled.goal import Goal
from fastadmm.pooled.point import Point

__all__ = ["DualAscent"]

#: The dual vector proves exactly the gap that a pass has measured.
_SHARE_OF_WANTED = 0.9

#: Passes that it may take beside another minimiser, and where there is none; columns for each row, at least.
_PASSES, _ALONE, _COLUMNS = 40.0, 1000.0, 1.0

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
        many = sum(goal.widths) >= _COLUMNS * goal.n_samples and goal.entries >= _FEWEST_ENTRIES
        return many or not problem.loss.smooth

    def minimise(self, goal: Goal, point: Point, wanted: float) -> Point | None:
        """Passes until the gap is reached; None where they promise to take too long."""
        problem, engine = goal.problem, goal.engine
        rows, order = some_columns(problem.blocks, np.arange(sum(goal.widths)), engine)
        start = SpanPoint(point.weights[order], point.intercept, point.total)
        most = _PASSES if problem.loss.smooth else _ALONE
        found = ascend(problem, rows, start, _SHARE_OF_WANTED * wanted, most, engine)
        if found is None:
            return None
        weights = np.empty(len(order))
        weights[order] = found.point.coefficients
        return goal.at(weights, found.point.intercept, found.dual)

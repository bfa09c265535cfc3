"""Subspace Newton sharing of few columns with mostly zeros in one process: all of them as they are.

Parties say what the first gradient leaves at zero weights. Then Newton's method goes over the weights of all
parties, on their columns side by side, and the next round proves where it ended. Where a round gains nothing
any more, directions follow, from the weights that were found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastadmm.blocks.side_by_side import can_stand_side_by_side, mean_row_square, side_by_side
from fastadmm.conversation.exchange import Talk
from fastadmm.coordinator.subspace.span import SpanPoint, descend
from fastadmm.coordinator.subspace.span_hessian import SpanHessian
from fastadmm.coordinator.subspace.stacked_span import StackedSpan
from fastadmm.coordinator.subspace.subspace import NOTHING, SubspaceMethod, span_tolerance
from fastadmm.coordinator.subspace.whole_span import SPAN, Rounds, stacked_rows_pay
from fastadmm.engine.engine import Engine
from fastadmm.parties.direction import DirectionParty
from fastadmm.problem.problem import Problem

__all__ = ["StackedSubspaceMethod", "goes_by_stacked_rows"]


def goes_by_stacked_rows(problem: Problem, engine: Engine, most: int, rounds: Rounds = SPAN) -> bool:
    """Whether the columns of the parties of this process are best read side by side.

    Parameters
    ----------
    problem : Problem
    engine : Engine
    most : int
        Messages that a party may keep.
    rounds : Rounds
        What directions cost.
    """
    loss, blocks = problem.loss, problem.blocks
    if not (loss.smooth and problem.convex and problem.n_outputs == 1 and can_stand_side_by_side(blocks)):
        return False
    n, square = engine.all_rows(problem.n_samples), mean_row_square(blocks, engine)
    shapes = [block.shape[1] for block in blocks], [block.density for block in blocks]
    return stacked_rows_pay(n, *shapes, square, most, loss.name == "squared", rounds)


class StackedSubspaceMethod(SubspaceMethod):
    """Rounds over all columns; blocks as of :func:`fastadmm.blocks.side_by_side.can_stand_side_by_side`.

    Attributes
    ----------
    stacked : bool
        Whether rounds are over all columns; else by directions.
    """

    stacked = True

    def keep_to_directions(self) -> None:
        super().keep_to_directions()
        self.stacked = False

    def make_parties(self) -> Sequence[DirectionParty]:
        parties = super().make_parties()
        for party in parties if self.stacked else ():
            party.reason += "; in one process all columns are read side by side"
        return parties

    def exchange(self) -> Talk[list[float]]:
        if not self.stacked:
            return (yield from super().exchange())
        coordinator, forecast = self.coordinator, self.coordinator.forecast
        primal = coordinator.primal if coordinator.primal is not None else coordinator.start()
        before = primal.loss + coordinator.regulariser()
        squared = yield from coordinator.squared_residuals(primal.gradient)
        gap = coordinator.proved_gap(squared, primal)
        if not forecast.proves(gap, before):
            after = self._minimise(span_tolerance(gap, before, True, forecast.wanted))
            self.stacked = before - after > NOTHING * abs(before)
        return squared

    def _minimise(self, tolerance: float) -> float:
        """Move to the best weights; the objective there."""
        coordinator, problem, old = self.coordinator, self.problem, self.coordinator.point
        widths = [block.shape[1] for block in problem.blocks]
        c = np.concatenate(self.weights()) if len(coordinator.owner) else np.zeros(sum(widths))
        span = StackedSpan(problem, side_by_side(problem.blocks, self.engine), self.engine)
        start = SpanPoint(c, old.intercept, old.total, old.loss, old.gradient, old.sums)
        found = descend(span, start, tolerance, SpanHessian(problem.fit_intercept))
        self.begin_at(np.split(found.coefficients, np.cumsum(widths)[:-1]), found.intercept)
        assert coordinator.primal is not None
        return coordinator.primal.loss + coordinator.regulariser()

    def begin_at(self, weights: Sequence[np.ndarray], intercept: Any) -> None:
        self.coordinator.all_at_once = self.coordinator.all_at_once and not self.stacked
        super().begin_at(weights, intercept)

    def export(self) -> dict[str, Any]:
        return {**super().export(), "stacked": self.stacked}

    def restore(self, saved: dict[str, Any]) -> None:
        super().restore(saved)
        self.stacked = bool(saved.get("stacked", False))  # not in runs that began without it

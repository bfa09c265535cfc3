"""Subspace Newton sharing of sparse columns in one process: all of them as they are.

Parties say what the first gradient leaves at zero weights. Then Newton's method goes over the weights of all
parties, on their columns side by side, and the next round proves where it ended. Where a round gains nothing
any more, directions follow, from the weights that were found.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastadmm.blocks.side_by_side import can_stand_side_by_side, mean_row_square, side_by_side
from fastadmm.conversation.exchange import Talk
from fastadmm.coordinator.subspace.span import SpanPoint, descend
from fastadmm.coordinator.subspace.span_hessian import SpanHessian
from fastadmm.coordinator.subspace.stacked_newton import minimise_by_products
from fastadmm.coordinator.subspace.stacked_span import StackedSpan
from fastadmm.coordinator.subspace.subspace import NOTHING, SubspaceMethod, span_tolerance
from fastadmm.coordinator.subspace.whole_span import SPARSE_SPAN, Rounds, stacked_rows_pay
from fastadmm.engine.engine import Engine
from fastadmm.parties.direction import DirectionParty
from fastadmm.problem.problem import Problem

__all__ = ["StackedSubspaceMethod", "goes_by_stacked_rows"]

#: Of the gap that ends a run, what Newton's method may leave.
_SHARE_OF_WANTED = 0.3

#: Entries that products of a round read, about: large problems show how far they are.
_ENTRIES_OF_ROUND = 1e9


def goes_by_stacked_rows(problem: Problem, engine: Engine, most: int, rounds: Rounds = SPARSE_SPAN) -> str:
    """Whether the columns of the parties of this process are best read side by side, and how.

    Parameters
    ----------
    problem : Problem
    engine : Engine
    most : int
        Messages that a party may keep.
    rounds : Rounds
        What directions cost.

    Returns
    -------
    {"gram", "products", ""}
        As of :func:`stacked_rows_pay`.
    """
    loss, blocks = problem.loss, problem.blocks
    if not (loss.smooth and problem.convex and problem.n_outputs == 1 and can_stand_side_by_side(blocks)):
        return ""
    n, square = engine.all_rows(problem.n_samples), mean_row_square(blocks, engine)
    shapes = [block.shape[1] for block in blocks], [block.density for block in blocks]
    return stacked_rows_pay(n, *shapes, square, most, loss.name == "squared", rounds)


class StackedSubspaceMethod(SubspaceMethod):
    """Rounds over all columns; blocks as of :func:`fastadmm.blocks.side_by_side.can_stand_side_by_side`.

    Parameters
    ----------
    how : {"gram", "products", ""}
        As of :func:`goes_by_stacked_rows`.
    problem, engine, directions
        As of the method that this extends.

    Attributes
    ----------
    how : {"gram", "products", ""}
        How rounds are over all columns; by directions where that is empty.
    """

    def __init__(self, how: str, problem: Problem, engine: Engine, directions: int | None) -> None:
        super().__init__(problem, engine, directions)
        self.how = how

    def keep_to_directions(self) -> None:
        super().keep_to_directions()
        self.how = ""

    def make_parties(self) -> Sequence[DirectionParty]:
        parties = super().make_parties()
        for party in parties if self.how else ():
            party.reason += "; in one process all columns are read side by side"
        return parties

    def exchange(self) -> Talk[list[float]]:
        if not self.how:
            return (yield from super().exchange())
        coordinator, forecast = self.coordinator, self.coordinator.forecast
        primal = coordinator.primal if coordinator.primal is not None else coordinator.start()
        before = primal.loss + coordinator.regulariser()
        squared = yield from coordinator.squared_residuals(primal.gradient)
        gap = coordinator.proved_gap(squared, primal)
        if not forecast.proves(gap, before):
            self._begin_at_best(gap, before)
            after = coordinator.start(coordinator.point.intercept).loss + coordinator.regulariser()
            if before - after <= NOTHING * abs(before):
                self.how, self._span = "", None
        return squared

    def _begin_at_best(self, gap: float, objective: float) -> None:
        """Move to the best weights, from a gap and an objective on."""
        point, problem, wanted = self.coordinator.point, self.problem, self.coordinator.forecast.wanted
        widths = [block.shape[1] for block in problem.blocks]
        c = np.concatenate(self.weights()) if len(self.coordinator.owner) else np.zeros(sum(widths))
        start = SpanPoint(c, point.intercept, point.total, point.loss, point.gradient, point.sums)
        if self._span is None:
            self._span = StackedSpan(problem, side_by_side(problem.blocks, self.engine), self.engine)
        tolerance = span_tolerance(gap, objective, True, wanted)
        if self.how == "gram":
            found = descend(self._span, start, tolerance, SpanHessian(problem.fit_intercept))
        else:
            row = sum(block.shape[1] * block.density for block in problem.blocks)
            entries = self.engine.all_rows(problem.n_samples) * row
            accuracy = _SHARE_OF_WANTED * wanted if wanted > 0.0 else tolerance / abs(objective)
            found = minimise_by_products(self._span, start, accuracy, math.ceil(_ENTRIES_OF_ROUND / entries))
        self.begin_at(np.split(found.coefficients, np.cumsum(widths)[:-1]), found.intercept)

    _span: StackedSpan | None = None

    def begin_at(self, weights: Sequence[np.ndarray], intercept: Any) -> None:
        self.coordinator.all_at_once = self.coordinator.all_at_once and not self.how
        super().begin_at(weights, intercept)

    def export(self) -> dict[str, Any]:
        return {**super().export(), "how": self.how}

    def restore(self, saved: dict[str, Any]) -> None:
        super().restore(saved)
        self.how = str(saved.get("how", ""))  # not in runs that began without it

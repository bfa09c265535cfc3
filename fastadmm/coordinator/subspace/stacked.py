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

from fastadmm.blocks.block import CSRBlock
from fastadmm.blocks.side_by_side import can_stand_side_by_side, mean_row_square, side_by_side
from fastadmm.conversation.exchange import Talk
from fastadmm.coordinator.subspace.span import SpanPoint, descend
from fastadmm.coordinator.subspace.span_hessian import SpanHessian
from fastadmm.coordinator.subspace.stacked_newton import minimise_by_products
from fastadmm.coordinator.subspace.stacked_span import StackedSpan
from fastadmm.coordinator.subspace.subspace import NOTHING, SubspaceMethod, span_tolerance
from fastadmm.coordinator.subspace.whole_span import MOSTLY, SPARSE_SPAN, Rounds, stacked_rows_pay
from fastadmm.engine.engine import Engine
from fastadmm.parties.direction import DirectionParty
from fastadmm.problem.problem import Problem

__all__ = ["SHARE_OF_WANTED", "StackedRows", "StackedSubspaceMethod", "goes_by_stacked_rows"]

Array = np.ndarray

#: Of the gap that ends a run, what Newton's method may leave.
SHARE_OF_WANTED = 0.3

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
    {"gram", "products", "coordinates", ""}
        As of :func:`stacked_rows_pay`.
    """
    loss, blocks = problem.loss, problem.blocks
    if not (problem.convex and problem.n_outputs == 1 and can_stand_side_by_side(blocks)):
        return ""
    columns = sum(block.shape[1] for block in blocks)
    if rounds.sweeps == 0.0 and sum(b.shape[1] * b.density for b in blocks) > MOSTLY * columns:
        return ""  # as messages columns take no more memory then, and no more time
    n, square = engine.all_rows(problem.n_samples), mean_row_square(blocks, engine)
    shapes = [block.shape[1] for block in blocks], [block.density for block in blocks]
    return stacked_rows_pay(n, *shapes, square, most, loss.name == "squared", rounds)


class StackedRows:
    """The columns of all parties of this process side by side, and the best weights for them.

    Parameters
    ----------
    how : {"gram", "products", ""}
        As of :func:`goes_by_stacked_rows`; empty where they are not read any more.
    problem : Problem
    engine : Engine
    """

    def __init__(self, how: str, problem: Problem, engine: Engine) -> None:
        self.how, self.engine, self.blocks = how, engine, problem.blocks
        self._rows: CSRBlock | None = None
        self._span: StackedSpan | None = None

    def leave(self) -> None:
        """Go on by directions, which need the memory."""
        self.how, self._rows, self._span = "", None, None

    def span(self, problem: Problem) -> StackedSpan:
        """Passes for a problem with these blocks."""
        if self._rows is None:
            self._rows = side_by_side(self.blocks, self.engine)
        if self._span is None or self._span.problem is not problem:
            self._span = StackedSpan(problem, self._rows, self.engine)
        return self._span

    def most_products(self) -> int:
        """Of a round."""
        row = sum(block.shape[1] * block.density for block in self.blocks)
        return math.ceil(_ENTRIES_OF_ROUND / (self.engine.all_rows(self.blocks[0].shape[0]) * row))

    def parted(self, c: Array) -> list[Array]:
        """Weights of each party, of those of all."""
        return np.split(c, np.cumsum([block.shape[1] for block in self.blocks])[:-1])

    def weights(self, method: SubspaceMethod) -> Array:
        """Weights of all parties where a method is."""
        if len(method.coordinator.owner):
            return np.concatenate(method.weights())
        return np.zeros(sum(block.shape[1] for block in self.blocks))

    def best(
        self, problem: Problem, point: SpanPoint, tolerance: float, most: int, accuracy: float = 0.0
    ) -> tuple[SpanPoint, int]:
        """The best weights from a point on, and how many products that took.

        Parameters
        ----------
        problem : Problem
            With a smooth loss.
        point : SpanPoint
            Weights of all parties.
        tolerance : float
            As of :func:`fastadmm.coordinator.subspace.span.minimise_over_span`.
        most : int
            No further step after so many products.
        accuracy : float
            With products, as of :func:`minimise_by_products`.
        """
        span = self.span(problem)
        if self.how == "gram":
            return descend(span, point, tolerance, SpanHessian(problem.fit_intercept)), 0
        return minimise_by_products(span, point, tolerance, accuracy, most)


class StackedSubspaceMethod(SubspaceMethod):
    """Rounds over all columns.

    Parameters
    ----------
    how : {"gram", "products"}
        As of :func:`goes_by_stacked_rows`.
    problem, engine, directions
        As of the method that this extends.

    Attributes
    ----------
    rows : StackedRows
    """

    def __init__(self, how: str, problem: Problem, engine: Engine, directions: int | None) -> None:
        super().__init__(problem, engine, directions)
        self.rows = StackedRows(how, problem, engine)

    def keep_to_directions(self) -> None:
        super().keep_to_directions()
        self.rows.leave()

    def make_parties(self) -> Sequence[DirectionParty]:
        parties = super().make_parties()
        for party in parties if self.rows.how else ():
            party.reason += "; in one process all columns are read side by side"
        return parties

    def exchange(self) -> Talk[list[float]]:
        if not self.rows.how:
            return (yield from super().exchange())
        coordinator, forecast = self.coordinator, self.coordinator.forecast
        primal = coordinator.primal if coordinator.primal is not None else coordinator.start()
        before = primal.loss + coordinator.regulariser()
        squared = yield from coordinator.squared_residuals(primal.gradient)
        gap = coordinator.proved_gap(squared, primal)
        if not forecast.proves(gap, before):
            point, wanted = coordinator.point, forecast.wanted
            c = self.rows.weights(self)
            start = SpanPoint(c, point.intercept, point.total, point.loss, point.gradient, point.sums)
            tolerance, most = span_tolerance(gap, before, True, wanted), self.rows.most_products()
            found, _ = self.rows.best(self.problem, start, tolerance, most, SHARE_OF_WANTED * wanted)
            self.begin_at(self.rows.parted(found.coefficients), found.intercept)
            after = coordinator.start(point.intercept).loss + coordinator.regulariser()
            if before - after <= NOTHING * abs(before):
                self.rows.leave()
        return squared

    def begin_at(self, weights: Sequence[Array], intercept: Any) -> None:
        self.coordinator.all_at_once = self.coordinator.all_at_once and not self.rows.how
        super().begin_at(weights, intercept)

    def export(self) -> dict[str, Any]:
        return {**super().export(), "how": self.rows.how}

    def restore(self, saved: dict[str, Any]) -> None:
        super().restore(saved)
        self.rows.how = str(saved.get("how", ""))  # not in runs that began without it

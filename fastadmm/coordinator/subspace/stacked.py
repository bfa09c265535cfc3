"""Subspace Newton sharing in one process, with all columns read in place.

Parties prove the gap at zero weights. Then Newton's method minimises over the weights of all parties, and the
next round proves the gap at its result. If a round makes no more progress, the run continues by directions
from the weights that were found.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from fastadmm.blocks.block import DenseBlock
from fastadmm.blocks.mixed import Rows, in_order, rows_of_all
from fastadmm.blocks.side_by_side import can_stand_side_by_side, mean_row_square, side_by_side
from fastadmm.conversation.exchange import Talk
from fastadmm.coordinator.method import Measured
from fastadmm.coordinator.subspace.dense_kinks import saddle_pays
from fastadmm.coordinator.subspace.memory_of_ways import hessian_fits
from fastadmm.coordinator.subspace.row_ascent import Ascent, ascend
from fastadmm.coordinator.subspace.row_kernel import minimise_over_rows
from fastadmm.coordinator.subspace.sampled_start import sampled_start
from fastadmm.coordinator.subspace.span import SpanPoint, descend_to
from fastadmm.coordinator.subspace.span_hessian import SpanHessian
from fastadmm.coordinator.subspace.stacked_newton import minimise_by_products
from fastadmm.coordinator.subspace.stacked_span import StackedSpan
from fastadmm.coordinator.subspace.subspace import NOTHING, SubspaceMethod, span_tolerance
from fastadmm.coordinator.subspace.whole_span import (
    dense_rows_pay,
    kernel_pays,
    products_to_try,
    stacked_rows_pay,
    too_full,
)
from fastadmm.coordinator.subspace.work_of_ways import SPARSE_SPAN, Rounds
from fastadmm.engine.engine import Engine
from fastadmm.parties.direction import DirectionParty
from fastadmm.problem.problem import Problem

__all__ = [
    "SHARE_OF_WANTED",
    "OverStackedRows",
    "StackedRows",
    "StackedSubspaceMethod",
    "goes_by_stacked_rows",
    "of_few_rows",
]

Array = np.ndarray

#: Share of the gap that ends a run which Newton's method may leave.
SHARE_OF_WANTED = 0.3

#: The same of dual coordinate ascent, whose dual vector proves exactly the gap that it has measured.
_SHARE_IN_ASCENT = 0.9

#: About so many entries are read by a round's Hessian-vector products, so that large problems show progress.
_ENTRIES_OF_ROUND = 1e9


def goes_by_stacked_rows(problem: Problem, engine: Engine, most: int, rounds: Rounds = SPARSE_SPAN) -> str:
    """Whether the columns of the parties of this process are best read in place, and by which method."""
    loss, blocks = problem.loss, problem.blocks
    if not (problem.convex and problem.n_outputs == 1 and can_stand_side_by_side(blocks)):
        return ""
    n, quadratic = engine.all_rows(problem.n_samples), loss.name == "squared"
    shapes = [block.shape[1] for block in blocks], [block.density for block in blocks]
    if rounds is SPARSE_SPAN and all(isinstance(block, DenseBlock) for block in blocks):
        return dense_rows_pay(n, shapes[0], most, quadratic)
    if too_full(*shapes, rounds):
        # Columns with so many entries take no more memory and time as messages.
        at_kinks = not (loss.smooth or engine.shares_rows) and loss.bends(problem.y) is not None
        return "saddle" if at_kinks and saddle_pays(n, *shapes, most) else ""
    apart = rounds is SPARSE_SPAN
    square = mean_row_square(blocks, engine, apart) if hessian_fits(n, shapes[0], most) else math.inf
    return stacked_rows_pay(n, *shapes, square, most, quadratic, rounds)


def of_few_rows(problem: Problem, engine: Engine) -> str:
    """The best method on the columns of all parties of this process, with few rows."""
    blocks = problem.blocks
    if engine.shares_rows or not (problem.convex and can_stand_side_by_side(blocks)):
        return ""
    shapes = [block.shape[1] for block in blocks], [block.density for block in blocks]
    return "kernel" if kernel_pays(problem.n_samples, *shapes) else "products"


class StackedRows:
    """The columns of all parties of this process, and the best weights for them."""

    def __init__(self, how: str, problem: Problem, engine: Engine, passes: float = 0.0) -> None:
        self.how, self.engine, self.problem, self.blocks = how, engine, problem, problem.blocks
        self.passes, self.tries = passes, True
        # Most rows of a loss with kinks have no curvature, and sparse rows are skipped one by one.
        self._apart = problem.loss.smooth
        self._order = in_order(self.blocks) if self._apart else list(range(len(self.blocks)))
        ends = accumulate(self.blocks[m].shape[1] for m in self._order)
        columns = dict(zip(self._order, pairwise([0, *ends])))
        self._columns = [columns[m] for m in range(len(columns))]
        self._rows: Rows | None = None
        self._span: StackedSpan | None = None

    def leave(self) -> None:
        """Go on by directions, which need the memory."""
        self.how, self._rows, self._span = "", None, None

    def span(self, problem: Problem) -> StackedSpan:
        """Passes for a problem with these blocks."""
        if self._rows is None:
            once = self.problem.loss.name == "squared"  # for a single Hessian
            given = self.blocks, self.engine
            self._rows = rows_of_all(*given, once) if self._apart else side_by_side(*given)
        if self._span is None or self._span.problem is not problem:
            self._span = StackedSpan(problem, self._rows, self.engine)
        return self._span

    def ascend(self, point: SpanPoint, wanted: float) -> Ascent | None:
        """Dual coordinate ascent, once, from weights of all parties; None if it does not pay."""
        passes, self.passes = self.passes, 0.0
        if not (passes and wanted > 0.0):
            return None
        rows = self.span(self.problem).rows
        return ascend(self.problem, rows, point, _SHARE_IN_ASCENT * wanted, passes, self.engine)

    def by_kernel(self, tolerance: float, accuracy: float) -> SpanPoint | None:
        """The best weights by the Gram matrix of the rows; None if that fails."""
        problem, engine = self.problem, self.engine
        kernel = reduce(np.add, [block.kernel_gram() for block in self.blocks])
        found = minimise_over_rows(problem, kernel, tolerance, accuracy, engine)
        if found is None:
            return None
        c = self.joined([block.transposed_product(found[0], engine) for block in self.blocks])
        return SpanPoint(c, found[1], self.product(c))

    def most_products(self) -> int:
        """Most Hessian-vector products of a round."""
        row = sum(block.shape[1] * block.density for block in self.blocks)
        return math.ceil(_ENTRIES_OF_ROUND / (self.engine.all_rows(self.blocks[0].shape[0]) * row))

    def parted(self, c: Array) -> list[Array]:
        """The weights of all parties, of shape (d,), split by party."""
        return [c[begin:end] for begin, end in self._columns]

    def joined(self, weights: Sequence[Array]) -> Array:
        """The weights of each party as those of all, of shape (d,), in the order of the rows' columns."""
        return np.concatenate([weights[m] for m in self._order])

    def product(self, c: Array) -> Array:
        """Sum of all messages, of shape (N,), for weights of all parties."""
        if self._rows is None and self.how in ("kernel", "rows"):
            own = zip(self.blocks, self.parted(c))
            return reduce(np.add, [block.product(x, self.engine) for block, x in own])
        return self.span(self.problem).combined(c)

    def weights(self, method: SubspaceMethod) -> Array:
        """Weights of all parties at the current point of a method."""
        if len(method.coordinator.owner):
            return self.joined(method.weights())
        return np.zeros(sum(block.shape[1] for block in self.blocks))

    def best(
        self, problem: Problem, point: SpanPoint, tolerance: float, most: int, accuracy: float = 0.0
    ) -> tuple[SpanPoint, int]:
        """The best weights, from a starting point, and the number of Hessian-vector products."""
        span = self.span(problem)
        if self.how == "gram":
            tried = self._products_to_try() if self.tries else 0
            self.tries = False
            if tried:
                given = span, point, tolerance, accuracy, tried
                point, products, reached = minimise_by_products(*given, tried=tried)
                if reached:
                    return point, products
            hessian = SpanHessian(problem.fit_intercept)
            if not point.coefficients.any():
                start = sampled_start(problem, span.rows, point, hessian, self.engine)
                if start is not point:
                    point = span.unmeasured(start.coefficients, start.intercept)
                    return descend_to(span, point, tolerance, accuracy, hessian), 0
            if span.side_by_side and point.gradient is not None:  # others know its vectors
                total, gradient = (self.engine.vector(len(v)) for v in (point.total, point.gradient))
                self.engine.copy(point.total, total)
                self.engine.copy(point.gradient, gradient)
                point = replace(point, total=total, gradient=gradient)
            return descend_to(span, point, tolerance, accuracy, hessian), 0
        return minimise_by_products(span, point, tolerance, accuracy, most)[:2]

    def _products_to_try(self) -> int:
        """Before a Hessian is formed."""
        widths, densities = zip(*((block.shape[1], block.density) for block in self.blocks))
        square = mean_row_square(self.blocks, self.engine, self._apart)
        n, quadratic = self.engine.all_rows(self.problem.n_samples), self.problem.loss.name == "squared"
        return products_to_try(n, widths, densities, square, quadratic)


class OverStackedRows(SubspaceMethod):
    """Base of methods that read all columns in place, until they continue by directions."""

    rows: StackedRows
    _messages_are_known = True
    #: Where :meth:`stand_at` went, and the weights of each party there.
    _stand: tuple[SpanPoint | None, list[Array]] = (None, [])

    def keep_to_directions(self) -> None:
        super().keep_to_directions()
        self.rows.leave()

    def make_parties(self) -> Sequence[DirectionParty]:
        parties = super().make_parties()
        for party in parties if self.rows.how else ():
            party.reason += "; in one process all columns are read side by side"
        return parties

    def begin_at(self, weights: Sequence[Array], intercept: Any) -> None:
        if not self.rows.how:
            super().begin_at(weights, intercept)
            return
        self.coordinator.all_at_once = False
        c = self.rows.joined(weights)
        self.stand_at(SpanPoint(c, intercept, self.rows.product(c)))

    def stand_at(self, point: SpanPoint) -> None:
        """Continue from weights of all parties: each party's only direction is its weights.

        Their messages are not computed, as only rounds by directions need them.
        """
        coordinator, weights = self.coordinator, self.rows.parted(point.coefficients)
        norms = np.array([math.sqrt(float(x @ x)) for x in weights])
        owner = np.flatnonzero(norms > 0.0)
        found = []
        for party, own, norm in zip(self.parties, weights, norms.tolist()):
            party.directions = (own / norm)[np.newaxis] if norm > 0.0 else own[np.newaxis][:0]
            # As a sum of products: no zero is negative.
            found.append(0.0 + norm * party.directions[0] if norm > 0.0 else np.zeros(len(own)))
        coordinator.adopt(np.empty((0, len(point.total))), owner)
        coordinator.point = replace(point, coefficients=norms[owner], products=None)
        self._stand = coordinator.point, found
        self._messages_are_known = False
        self._at_start(coordinator.point)
        coordinator.start(point.intercept)

    def weights(self) -> list[Array]:
        # Of many parties each takes some microseconds to ask.
        point, found = self._stand
        return list(found) if point is self.coordinator.point else super().weights()

    def know(self, gradient: Array, products: Array) -> None:
        """Give the parties their block gradients, computed in one pass over all columns.

        Shapes: gradient (N,); products (d,).
        """
        residual = self.problem.regularization * self.rows.joined(self.weights())
        residual += products
        for party, own in zip(self.parties, self.rows.parted(residual)):
            party.know(gradient, own)

    def leave(self) -> None:
        """Continue by directions."""
        self._stand = None, []
        self.make_messages()
        self.rows.leave()

    def make_messages(self) -> None:
        """Compute the messages that :meth:`stand_at` left out."""
        if not self._messages_are_known:
            coordinator, engine = self.coordinator, self.engine
            messages = np.empty((len(coordinator.owner), len(coordinator.point.total)))
            for m, message in zip(coordinator.owner.tolist(), messages):
                self.parties[m].block.product_into(self.parties[m].directions[0], message, engine)
            coordinator.adopt(messages, coordinator.owner)
            self._messages_are_known = True

    def export(self) -> dict[str, Any]:
        self.make_messages()
        return {**super().export(), "how": self.rows.how, "tries": self.rows.tries}

    def restore(self, saved: dict[str, Any]) -> None:
        super().restore(saved)
        self.rows.how = str(saved.get("how", ""))  # not in runs that began without it
        self.rows.passes, self.rows.tries = 0.0, bool(saved.get("tries", False))


class StackedSubspaceMethod(OverStackedRows):
    """Rounds over all columns."""

    def __init__(
        self, how: str, problem: Problem, engine: Engine, directions: int | None, passes: float = 0.0
    ) -> None:
        super().__init__(problem, engine, directions)
        self.rows = StackedRows(how or "rows", problem, engine, passes)

    def round(self) -> Talk[Measured]:
        if self.rows.how:
            self._descend()
        return (yield from super().round())

    def exchange(self) -> Talk[list[float]]:
        coordinator = self.coordinator
        if not self.rows.how or coordinator.primal is None:
            return (yield from super().exchange())
        squared = yield from coordinator.squared_residuals(coordinator.primal.gradient)
        coordinator.forecast.take(coordinator.proved_gap(squared, coordinator.primal))
        return squared

    def _ask_about(self, dual: Array) -> None:
        """Have the parties prove the gap of a dual vector of shape (N,) at these weights."""
        primal = self.coordinator.primal
        assert primal is not None
        self.coordinator.primal = replace(primal, gradient=dual, dual_feasible=False)

    def _descend(self) -> None:
        """Minimise over all weights, so that the parties need only prove the gap."""
        coordinator, forecast = self.coordinator, self.coordinator.forecast
        primal = coordinator.primal if coordinator.primal is not None else coordinator.start()
        point, before = coordinator.point, primal.loss + coordinator.regulariser()
        start = replace(point, coefficients=self.rows.weights(self))
        # Before the first round nothing is known of the gap.
        tolerance = span_tolerance(min(float(forecast.gaps[1]), before), before, True, forecast.wanted)
        accuracy, most = SHARE_OF_WANTED * forecast.wanted, self.rows.most_products()
        ascent = self.rows.ascend(start, forecast.wanted)
        if ascent is not None:
            self.stand_at(ascent.point)
            self._ask_about(ascent.dual)
            rows = self.rows.span(self.problem).rows
            self.know(ascent.dual, rows.transposed_product(ascent.dual, self.engine))
            return
        if self.rows.how == "kernel":
            self.rows.how = "rows"  # a second time it would find the same
            solved = self.rows.by_kernel(tolerance, accuracy)
            if solved is None:
                self.leave()
                return
            self.stand_at(solved)
            if coordinator.primal.loss + coordinator.regulariser() > before:
                self.stand_at(start)  # given, and better
            return
        if self.rows.how == "rows":
            self.leave()
            return
        found, _ = self.rows.best(self.problem, start, tolerance, most, accuracy)
        self.stand_at(found)
        assert coordinator.primal is not None
        # If the intercept did not move the gradient, its products with all columns are known; else one pass
        # over all of them costs less than one per party.
        gradient, products = coordinator.primal.gradient, found.products
        if products is None or gradient is not found.gradient or coordinator.point.sums != found.sums:
            products = self.rows.span(self.problem).rows.transposed_product(gradient, self.engine)
        self.know(gradient, products)
        gained = before - (coordinator.primal.loss + coordinator.regulariser())
        if gained <= NOTHING * abs(before):
            self.leave()

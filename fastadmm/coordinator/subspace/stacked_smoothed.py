"""Losses with kinks in one process: smoothed problems over the weights of all parties, with moving centres.

As :mod:`fastadmm.coordinator.subspace.smoothed`, but each smoothed problem is solved over the weights of all
parties (:mod:`fastadmm.coordinator.subspace.stacked`), as accurately as needed, so that a few centres are
enough. Most rows are on flat pieces of the smoothed loss and cost nothing in a Hessian. If centres gain
little, an interior point method takes over (:mod:`fastadmm.coordinator.proximal.interior_point`). Where dense
columns are many for their rows, it comes first (:mod:`fastadmm.coordinator.subspace.dense_kinks`).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from fastadmm.conversation.exchange import Talk
from fastadmm.coordinator.certificate import dual_bound, primal_value
from fastadmm.coordinator.method import Measured
from fastadmm.coordinator.proximal.interior_point import find_saddle
from fastadmm.coordinator.proximal.kinked_work import columns_pay
from fastadmm.coordinator.subspace.smoothed import SmoothedSubspaceMethod
from fastadmm.coordinator.subspace.span import SpanPoint
from fastadmm.coordinator.subspace.stacked import SHARE_OF_WANTED, OverStackedRows, StackedRows
from fastadmm.engine.engine import Engine, Stopped
from fastadmm.problem.penalty import PartyPenalty
from fastadmm.problem.problem import Problem

__all__ = ["StackedSmoothedMethod"]

Array = np.ndarray

#: Most centres in a round, and the factor by which each reduces the width.
_MOST_CENTRES, _NARROWER = 12, 0.5

#: Accuracy of a smoothed problem, as a share of the gap.
_ACCURACY = 0.03

#: A round has failed if it leaves more than this share of the gap; so many failures in a row are the last.
_IN_VAIN, _MOST_IN_VAIN = 0.5, 3


class StackedSmoothedMethod(OverStackedRows, SmoothedSubspaceMethod):
    """Rounds over all columns.

    Shapes: dual (N,).
    """

    row_keys = (*SmoothedSubspaceMethod.row_keys, "dual")

    def __init__(
        self, how: str, problem: Problem, engine: Engine, directions: int | None, passes: float = 0.0
    ) -> None:
        super().__init__(problem, engine, directions)
        self.rows = StackedRows(how or "rows", problem, engine, passes)
        self.proved, self.idle = math.inf, 0
        self.dual: Array | None = None

    def round(self) -> Talk[Measured]:
        if self.rows.how and self.rows.passes:
            self._ascend()
        if not self.rows.how:
            return (yield from super().round())
        coordinator, problem = self.coordinator, self.problem
        start = coordinator.primal if coordinator.primal is not None else coordinator.start()
        begun = self.dual, self.idle, self.proved
        if self.dual is not None:
            start, self.dual = replace(start, gradient=self.dual), None
        squared = yield from coordinator.squared_residuals(start.gradient)
        total, regulariser = coordinator.point.total, coordinator.regulariser()
        gaps = sum(squared) / (2.0 * problem.regularization)
        self._lower_bound(start, total, regulariser, gaps)
        objective = self._objective(total, regulariser)
        wanted = coordinator.forecast.wanted
        if not self.gap <= wanted * self.bound:
            self.idle = self.idle + 1 if self.gap > _IN_VAIN * self.proved else 0
            self.proved = self.gap
            if self.idle == _MOST_IN_VAIN or self.rows.how == "rows":
                self.leave()
            else:
                try:
                    self._go_on(wanted)
                except Stopped:  # the run goes on with this round
                    self.dual, self.idle, self.proved = begun
                    raise
                objective = self._objective(coordinator.point.total, coordinator.regulariser())
        return Measured(
            objective=objective,
            lower_bound=self.bound,
            primal_residual=0.0,
            dual_residual=float(np.sqrt(sum(squared) / problem.n_parties / self.engine.all_rows(len(total)))),
            augmented_lagrangian=objective,
            lyapunov=sum(squared) / (1.0 + problem.regularization) ** 2,
            penalty=None,
            accelerated=False,
        )

    def _go_on(self, wanted: float) -> None:
        """Move to better weights, by the interior point method or by centres."""
        first = self.rows.how == "saddle"
        between = (first or (self.idle > 0 and self._few_columns())) and self._pass_between(wanted)
        if first:
            self.rows.how = "gram"  # a second time it would find the same
        if not between:
            self._descend(wanted)

    def _ascend(self) -> None:
        """Try coordinate ascent on the loss itself."""
        point, weights = self.coordinator.point, self.rows.weights(self)
        start = SpanPoint(weights, self._intercept, point.total)
        found = self.rows.ascend(start, self.coordinator.forecast.wanted)
        if found is not None:
            self._stand_at(found.point)
            self.dual = found.dual
        elif self.rows.how == "rows":
            self.leave()

    def _objective(self, total: Array, regulariser: float) -> float:
        """Objective of the loss itself, with its best intercept; updates the gap."""
        primal = primal_value(self.problem, total, self._intercept, self.engine)
        self._intercept = primal.intercept
        self.gap = max(primal.loss + regulariser - self.bound, 0.0)
        return primal.loss + regulariser

    def _few_columns(self) -> bool:
        """Whether the interior point method can afford a system of all columns."""
        widths, densities = zip(*[(block.shape[1], block.density) for block in self.problem.blocks])
        pays = columns_pay(self.problem.n_samples, widths, densities, sum(widths))
        return pays and not self.engine.shares_rows

    def _pass_between(self, wanted: float) -> bool:
        """Move to the result of the interior point method if it is better; its gradient is sent next.

        Whether there is a result.
        """
        problem, coordinator = self.problem, self.coordinator
        own = problem.party_regularizers[0], problem.party_constraints[0], problem.regularization
        rows = self.rows.span(coordinator.problem).rows
        asked = problem, PartyPenalty(*own), rows, SHARE_OF_WANTED * wanted
        found = find_saddle(*asked, self.engine, self.engine.check)
        if found is None:
            return False
        if found.value < self.gap + self.bound:
            x = found.weights
            self._stand_at(SpanPoint(x, found.intercept, self.rows.product(x)))
        self.dual = found.gradient
        return True

    def _stand_at(self, point: SpanPoint) -> None:
        """Start the next round at a point, with the present smoothing."""
        kept = self.smoothing.width, self.smoothing.centre
        self.stand_at(point)
        self.smoothing.width, self.smoothing.centre = kept
        self.coordinator.set_problem(self.smoothing.smoothed())
        self.coordinator.start(point.intercept)

    def _descend(self, wanted: float) -> None:
        """Solve the smoothed problem for some centres; the next round starts at the last solution."""
        coordinator, problem, engine = self.coordinator, self.problem, self.engine
        scale = problem.regularization
        point, c = coordinator.point, self.rows.weights(self)
        here = SpanPoint(c, point.intercept, point.total, point.loss, point.gradient, point.sums)
        bound, spent, limit = self.bound, 0, self.rows.most_products()
        value = primal_value(problem, here.total, self._intercept, engine)
        gap = min(self.gap, value.loss + 0.5 * scale * float(c @ c))
        for number in range(_MOST_CENTRES):
            smoothed = coordinator.problem
            here, products = self.rows.best(smoothed, here, _ACCURACY * gap, limit)
            spent += products
            near = primal_value(smoothed, here.total, here.intercept, engine)
            here = replace(
                here, intercept=near.intercept, loss=near.loss, gradient=near.gradient, sums=near.sums
            )
            u, c = near.gradient, here.coefficients
            slope = self.rows.span(smoothed).rows.transposed_product(u, engine) + scale * c
            square = 0.5 * scale * float(c @ c)
            share = float(slope @ slope) / (2.0 * scale)
            bound = max(bound, dual_bound(problem, u, here.total, square, share, engine))
            value = primal_value(problem, here.total, value.intercept, engine)
            gap = value.loss + square - bound
            if gap <= SHARE_OF_WANTED * wanted * bound or spent >= limit or number == _MOST_CENTRES - 1:
                break
            self.smoothing.move(u, _NARROWER)
            coordinator.set_problem(self.smoothing.smoothed())
            here = SpanPoint(c, here.intercept, here.total)  # of another loss
        self._stand_at(SpanPoint(here.coefficients, here.intercept, here.total))

    def export(self) -> dict[str, Any]:
        own = {} if self.dual is None else {"dual": self.dual}
        return {**super().export(), **own, "proved": self.proved, "in_vain": self.idle}

    def restore(self, saved: dict[str, Any]) -> None:
        super().restore(saved)
        self.proved, self.idle = float(saved.get("proved", math.inf)), int(saved.get("in_vain", 0))
        self.dual = np.array(saved["dual"], dtype=np.float64) if "dual" in saved else None

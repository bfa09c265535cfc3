"""Proximal Newton sharing in one process on the columns of all parties as they are, instead of messages.

As :mod:`fastadmm.coordinator.proximal.narrow`, but the parties' weights are their only directions. A few
sparse columns are copied side by side for a Gram matrix; coordinate descent takes more of them, or several
classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from fastadmm.blocks.side_by_side import can_stand_side_by_side, side_by_side
from fastadmm.coordinator.certificate import PrimalValue
from fastadmm.coordinator.proximal.class_coordinate_newton import ClassCoordinateNewton
from fastadmm.coordinator.proximal.coordinate_newton import CoordinateNewton, CoordinateSteps
from fastadmm.coordinator.proximal.hull import HullPoint
from fastadmm.coordinator.proximal.narrow import (
    SHARE_OF_WANTED,
    UNWANTED,
    NarrowProximalMethod,
    goes_by_all_columns,
    most_columns,
    penalty_is_a_sum,
)
from fastadmm.coordinator.proximal.narrow_classes import NarrowClassesMethod
from fastadmm.coordinator.proximal.narrow_newton import loss_alone
from fastadmm.coordinator.proximal.proximal import ProximalMethod
from fastadmm.coordinator.proximal.sampled_columns import begins_with_samples, sampled_columns
from fastadmm.coordinator.proximal.working_sets import WorkingSets
from fastadmm.coordinator.subspace.span import SpanPoint
from fastadmm.coordinator.subspace.span_hessian import SpanHessian
from fastadmm.coordinator.subspace.stacked import goes_by_stacked_rows
from fastadmm.coordinator.subspace.stacked_span import StackedSpan
from fastadmm.coordinator.subspace.whole_span import classes_pay_one_by_one
from fastadmm.coordinator.subspace.work_of_ways import FACES
from fastadmm.engine.engine import Engine
from fastadmm.problem.problem import Problem

__all__ = ["StackedClassesMethod", "StackedProximalMethod", "goes_by_sparse_columns"]

Array = np.ndarray


def goes_by_sparse_columns(problem: Problem, engine: Engine) -> str:
    """Whether the columns of the parties of this process are best taken as they are, and how."""
    if not penalty_is_a_sum(problem):
        return ""
    widths, densities = zip(*((block.shape[1], block.density) for block in problem.blocks))
    if problem.n_outputs > 1:
        if engine.shares_rows or not can_stand_side_by_side(problem.blocks):
            return ""
        at_once = goes_by_all_columns(problem, engine)
        shape = problem.n_samples, widths, densities, problem.n_outputs
        return "coordinates" if classes_pay_one_by_one(*shape, at_once) else ""
    way = goes_by_stacked_rows(
        problem, engine, most_columns(engine.all_rows(problem.n_samples), widths), FACES
    )
    if not way and goes_by_working_sets(problem) and goes_by_all_columns(problem, engine):
        way = "gram"
    # Coordinate descent needs all rows of a column: that is, no other workers.
    return "" if way == "coordinates" and engine.shares_rows else way


def goes_by_working_sets(problem: Problem) -> bool:
    """Whether most weights are likely to be zero, and columns are there to choose from."""
    norm = problem.n_outputs == 1 and problem.party_regularizers[0].shares[0] > 0.0
    return norm and can_stand_side_by_side(problem.blocks)


#: Of a goal: the first is a thousandth of what is wanted, of which a third is enough.
_OF_GOAL = 100.0


class StackedProximalMethod(NarrowProximalMethod):
    """Rounds with all columns."""

    def __init__(self, way: str, problem: Problem, engine: Engine, wanted: float) -> None:
        super().__init__(problem, engine, wanted)
        self.way, self.how = way, "read side by side" if way == "gram" else "taken one by one"
        #: A model that is one direction of each party, and the weights; whether messages are known.
        self._stand: tuple[HullPoint, list[Array]] | None = None
        self._messages_are_known = True

    def _opened(self) -> float:
        loss = super()._opened()
        if self.whole and self.problem.n_outputs == 1:  # zero is in the set
            self._stand = self.coordinator.model, [np.zeros(block.shape[1]) for block in self.problem.blocks]
        return loss

    def begin_at(self, weights: Sequence[Array], intercept: Any) -> None:
        if not self.whole or self.problem.n_outputs > 1:
            ProximalMethod.begin_at(self, weights, intercept)
            return
        total = np.zeros(self.problem.n_samples)
        for block, x in zip(self.problem.blocks, weights):
            if x.any():
                total = self.engine.plus(total, block.product(x, self.engine))
        self._stand_at(weights, intercept, total)

    def _stand_at(self, weights: Sequence[Array], intercept: Any, total: Array) -> PrimalValue:
        """Make weights the model, of which ``total`` of shape (N,) is the predictor; loss and gradient there.

        Each party's are one direction, whose message nobody asks for.
        """
        coordinator = self.coordinator
        sizes = np.array([np.linalg.norm(part.span.scale * x) for part, x in zip(self.parties, weights)])
        squares = []
        for party, x, size in zip(self.parties, weights, sizes):
            party.directions = (x / size)[np.newaxis] if size > 0.0 else x[np.newaxis][:0]
            squares += [float(own @ own) for own in party.directions]
        coordinator.shared.hold_one_each(np.flatnonzero(sizes > 0.0), np.array(squares))
        coordinator.model = coordinator.proposal = HullPoint(sizes[sizes > 0.0], intercept, total)
        coordinator.stepping, coordinator.repaired = False, None
        self._stand, self._messages_are_known = (coordinator.model, list(weights)), False
        primal: PrimalValue = coordinator.evaluate()
        self._intercept = primal.intercept
        return primal

    def weights(self) -> list[Array]:
        if self._stand is not None and self._stand[0] is self.coordinator.model:
            return list(self._stand[1])
        return super().weights()

    def _make_messages(self) -> None:
        """Give the coordinator the messages of the weights' directions, unless it has them."""
        if not self._messages_are_known:
            pairs = [(party.block, own) for party in self.parties for own in party.directions]
            self.coordinator.shared.give([block.product(own, self.engine) for block, own in pairs])
            self._messages_are_known = True

    def go_by_directions(self) -> None:
        self._make_messages()
        super().go_by_directions()

    def export(self) -> dict[str, Any]:
        self._make_messages()
        return super().export()

    def restore_parties(self, parties: list[dict[str, Array]]) -> None:
        super().restore_parties(parties)
        if self.whole and self.problem.n_outputs == 1:
            weights = [np.array(state["weights"], dtype=np.float64) for state in parties]
            if any(x.shape != (block.shape[1],) for x, block in zip(weights, self.problem.blocks)):
                raise ValueError("weights")
            self._stand = self.coordinator.model, weights

    def send_columns(self) -> None:
        """Nothing: they are read where they are."""

    def measure_columns(self) -> None:
        """Nothing: the weights are the only directions."""

    def _minimise_from(self, primal: PrimalValue, objective: float) -> float:
        if self._sets is None and self.way == "gram":
            return super()._minimise_from(primal, objective)
        goal = self.goal(objective)
        if self._sets is None:
            return self._minimise_by_coordinates(primal, objective, goal)
        weights, wanted = np.concatenate(self.weights()), (self.wanted or UNWANTED) * abs(objective)
        found = self._sets.minimise(weights, primal, goal, SHARE_OF_WANTED * wanted, self.way == "gram")
        if found.total is not None:
            self._stand_at(self._parted(found.coefficients), found.primal.intercept, found.total)
            objective = self.objective(self.coordinator.primal)
        coordinator = self.coordinator
        if not found.ended:
            return self._minimise_by_coordinates(coordinator.primal, objective, goal)
        # Products of the columns with this gradient are known; a resumed run takes it as it is.
        coordinator.repaired = gradient = found.primal.gradient
        coordinator.primal = replace(coordinator.primal, gradient=gradient)
        for block, own in zip(self.problem.blocks, self._parted(found.slope)):
            block.know([(gradient, own)])
        return objective

    def _minimise_by_coordinates(self, primal: PrimalValue, objective: float, goal: float) -> float:
        weights, gap = np.concatenate(self.weights()), self._gap_to_reach(objective, goal)
        found = self._coordinates.minimise(weights.T, primal.intercept, gap)
        return self._move_to_all(found.coefficients.T, found.intercept, found.total)

    def minimise(self, point: SpanPoint, objective: float) -> float:
        point.coefficients, hessian = np.concatenate(self.weights()), SpanHessian(self.problem.fit_intercept)
        if self._begins_with_samples and not point.coefficients.any():
            given = self.problem, self.parties[0].penalty, self._rows, point.intercept
            point = sampled_columns(*given, hessian)
        found = self.best(self._rows, point, objective, hessian)
        return self._move_to_all(found.coefficients, found.intercept, found.total)

    def _move_to_all(self, weights: Array, intercept: Any, total: Array) -> float:
        """Make weights of all columns the model, with their predictor; the objective there."""
        if self.problem.n_outputs == 1:
            self._stand_at(self._parted(weights), intercept, total)
        else:
            self.begin_at(self._parted(weights), intercept)
        return self.objective(self.coordinator.primal)

    def _parted(self, x: Array) -> list[Array]:
        """Each party's share of numbers for all columns."""
        ends = [0, *accumulate(block.shape[1] for block in self.problem.blocks)]
        return [x[start:end] for start, end in pairwise(ends)]

    def _gap_to_reach(self, objective: float, goal: float) -> float:
        """Of coordinates: steps gain the squares of slopes, in which the gap may be linear."""
        wanted = self.wanted or UNWANTED
        return math.sqrt(_OF_GOAL * goal * wanted * abs(objective))

    @cached_property
    def _begins_with_samples(self) -> bool:
        problem = self.problem
        if problem.n_outputs > 1 or self.way != "gram":
            return False
        widths, densities = zip(*((block.shape[1], block.density) for block in problem.blocks))
        n, quadratic = self.engine.all_rows(problem.n_samples), problem.loss.name == "squared"
        return begins_with_samples(n, widths, densities, quadratic)

    @cached_property
    def _sets(self) -> WorkingSets | None:
        if self._begins_with_samples or not goes_by_working_sets(self.problem):
            return None
        sizes = np.concatenate([party.span.scale for party in self.parties])
        return WorkingSets(self.problem, self.parties[0].penalty, sizes, self.engine)

    @cached_property
    def _rows(self) -> StackedSpan:
        rows = side_by_side(self.problem.blocks, self.engine)
        return StackedSpan(loss_alone(self.problem), rows, self.engine)

    @cached_property
    def _coordinates(self) -> CoordinateSteps:
        classes = self.problem.n_outputs > 1
        penalty = self.parties[0].parts[0].penalty if classes else self.parties[0].penalty
        return (ClassCoordinateNewton if classes else CoordinateNewton)(self.problem, penalty, self.engine)

    def round(self) -> Any:
        if not self.whole:
            self._make_messages()
        measured = yield from super().round()
        if not self.whole:  # their memory is needed for messages
            self.__dict__.pop("_rows", None)
            self.__dict__.pop("_coordinates", None)
        return measured


class StackedClassesMethod(StackedProximalMethod, NarrowClassesMethod):
    """Rounds over all columns in one process for several classes, one column after the other."""

"""Proximal Newton sharing in one process on the columns of all parties as they are, instead of messages.

As :mod:`fastadmm.coordinator.proximal.narrow`, but the parties' weights are their only directions. A few
sparse columns are copied side by side for a Gram matrix; coordinate descent takes more of them, or several
classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from fastadmm.blocks.side_by_side import can_stand_side_by_side, side_by_side
from fastadmm.coordinator.certificate import PrimalValue
from fastadmm.coordinator.proximal.class_coordinate_newton import ClassCoordinateNewton
from fastadmm.coordinator.proximal.coordinate_newton import CoordinateNewton, CoordinateSteps
from fastadmm.coordinator.proximal.narrow import (
    UNWANTED,
    NarrowProximalMethod,
    goes_by_all_columns,
    most_columns,
    penalty_is_a_sum,
)
from fastadmm.coordinator.proximal.narrow_classes import NarrowClassesMethod
from fastadmm.coordinator.proximal.narrow_newton import loss_alone
from fastadmm.coordinator.proximal.proximal import ProximalMethod
from fastadmm.coordinator.subspace.span import SpanPoint
from fastadmm.coordinator.subspace.span_hessian import SpanHessian
from fastadmm.coordinator.subspace.stacked import goes_by_stacked_rows
from fastadmm.coordinator.subspace.stacked_span import StackedSpan
from fastadmm.coordinator.subspace.whole_span import classes_pay_one_by_one
from fastadmm.coordinator.subspace.work_of_ways import FACES
from fastadmm.engine.engine import Engine
from fastadmm.problem.problem import Problem

__all__ = ["StackedClassesMethod", "StackedProximalMethod", "goes_by_sparse_columns"]


def goes_by_sparse_columns(problem: Problem, engine: Engine) -> str:
    """Whether the columns of the parties of this process are best taken as they are, and how.

    Parameters
    ----------
    problem : Problem
    engine : Engine

    Returns
    -------
    {"gram", "coordinates", ""}
        As of :func:`fastadmm.coordinator.subspace.whole_span.stacked_rows_pay`.
    """
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
    # Coordinate descent needs all rows of a column: that is, no other workers.
    return "" if way == "coordinates" and engine.shares_rows else way


#: Of a goal: the first is a thousandth of what is wanted, of which a third is enough.
_OF_GOAL = 100.0


class StackedProximalMethod(NarrowProximalMethod):
    """Rounds with all columns.

    Parameters
    ----------
    way : {"gram", "coordinates"}
        As of :func:`goes_by_sparse_columns`.
    problem, engine, wanted
        As of the method that this extends.
    """

    def __init__(self, way: str, problem: Problem, engine: Engine, wanted: float) -> None:
        super().__init__(problem, engine, wanted)
        self.way, self.how = way, "read side by side" if way == "gram" else "taken one by one"

    def begin_at(self, weights: Sequence[np.ndarray], intercept: Any) -> None:
        ProximalMethod.begin_at(self, weights, intercept)

    def send_columns(self) -> None:
        """Nothing: they are read where they are."""

    def measure_columns(self) -> None:
        """Nothing: the weights are the only directions."""

    def _minimise_from(self, primal: PrimalValue, objective: float) -> float:
        if self.way == "gram":
            return super()._minimise_from(primal, objective)
        weights = np.concatenate(self.weights())
        found = self._coordinates.minimise(weights.T, primal.intercept, self._gap_to_reach(objective))
        return self._move_to_all(found.coefficients.T, found.intercept)

    def minimise(self, point: SpanPoint, objective: float) -> float:
        point.coefficients = np.concatenate(self.weights())
        found = self.best(self._rows, point, objective, SpanHessian(self.problem.fit_intercept))
        return self._move_to_all(found.coefficients, found.intercept)

    def _move_to_all(self, weights: np.ndarray, intercept: Any) -> float:
        """Make weights of all columns the model; the objective there."""
        ends = np.cumsum([block.shape[1] for block in self.problem.blocks])[:-1]
        self.begin_at(np.split(weights, ends), intercept)
        return self.objective(self.coordinator.primal)

    def _gap_to_reach(self, objective: float) -> float:
        """Of coordinates: steps gain the squares of slopes, in which the gap may be linear."""
        wanted = self.wanted or UNWANTED
        return math.sqrt(_OF_GOAL * self.goal(objective) * wanted * abs(objective))

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
        measured = yield from super().round()
        if not self.whole:  # their memory is needed for messages
            self.__dict__.pop("_rows", None)
            self.__dict__.pop("_coordinates", None)
        return measured


class StackedClassesMethod(StackedProximalMethod, NarrowClassesMethod):
    """The same of several classes, one column after the other."""

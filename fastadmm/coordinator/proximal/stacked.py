"""Proximal Newton sharing in one process on the columns of all parties as they are, instead of messages.

As :mod:`fastadmm.coordinator.proximal.narrow`, but the parties' weights are their only directions. Few sparse
columns stand side by side for a Gram matrix; of more, coordinates descend one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from fastadmm.blocks.side_by_side import side_by_side
from fastadmm.coordinator.proximal.coordinate_newton import CoordinateNewton
from fastadmm.coordinator.proximal.narrow import NarrowProximalMethod, most_columns, penalty_is_a_sum
from fastadmm.coordinator.proximal.narrow_newton import loss_alone
from fastadmm.coordinator.proximal.proximal import ProximalMethod
from fastadmm.coordinator.subspace.span import SpanPoint
from fastadmm.coordinator.subspace.span_hessian import SpanHessian
from fastadmm.coordinator.subspace.stacked import goes_by_stacked_rows
from fastadmm.coordinator.subspace.stacked_span import StackedSpan
from fastadmm.coordinator.subspace.whole_span import FACES
from fastadmm.engine.engine import Engine
from fastadmm.problem.problem import Problem

__all__ = ["StackedProximalMethod", "goes_by_sparse_columns"]


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
    if not penalty_is_a_sum(problem) or problem.n_outputs > 1:
        return ""
    most = most_columns(engine.all_rows(problem.n_samples), [block.shape[1] for block in problem.blocks])
    way = goes_by_stacked_rows(problem, engine, most, FACES)
    # The rows of a column are on one worker only where there is no other.
    return "" if way == "coordinates" and engine.shares_rows else way


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

    def minimise(self, point: SpanPoint, objective: float) -> float:
        coordinator, problem = self.coordinator, self.problem
        point.coefficients = np.concatenate(self.weights())
        if self.way == "gram":
            found = self.best(self._rows, point, objective, SpanHessian(problem.fit_intercept))
        else:
            found = self._coordinates.minimise(point, self.goal(objective))
        ends = np.cumsum([block.shape[1] for block in problem.blocks])[:-1]
        self.begin_at(np.split(found.coefficients, ends), found.intercept)
        return self.objective(coordinator.primal)

    @cached_property
    def _rows(self) -> StackedSpan:
        rows = side_by_side(self.problem.blocks, self.engine)
        return StackedSpan(loss_alone(self.problem), rows, self.engine)

    @cached_property
    def _coordinates(self) -> CoordinateNewton:
        return CoordinateNewton(self.problem, [party.penalty for party in self.parties], self.engine)

    def round(self) -> Any:
        measured = yield from super().round()
        if not self.whole:  # their memory is needed for messages
            self.__dict__.pop("_rows", None)
            self.__dict__.pop("_coordinates", None)
        return measured

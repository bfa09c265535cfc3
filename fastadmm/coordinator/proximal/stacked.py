"""Proximal Newton sharing of few columns with mostly zeros in one process: all of them side by side.

As :mod:`fastadmm.coordinator.proximal.narrow`, over sparse rows instead of messages: the parties' weights are
their only directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastadmm.blocks.side_by_side import side_by_side
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


def goes_by_sparse_columns(problem: Problem, engine: Engine) -> bool:
    """Whether a problem whose parties are in this process is one for all columns side by side."""
    most = most_columns(engine.all_rows(problem.n_samples), [block.shape[1] for block in problem.blocks])
    return penalty_is_a_sum(problem) and bool(goes_by_stacked_rows(problem, engine, most, FACES))


class StackedProximalMethod(NarrowProximalMethod):
    """Rounds with all columns, of which :func:`goes_by_sparse_columns`."""

    how = "read side by side"

    def begin_at(self, weights: Sequence[np.ndarray], intercept: Any) -> None:
        ProximalMethod.begin_at(self, weights, intercept)

    def send_columns(self) -> None:
        """Nothing: they are read where they are."""

    def minimise(self, point: SpanPoint, objective: float) -> float:
        coordinator, problem, engine = self.coordinator, self.problem, self.engine
        point.coefficients = np.concatenate(self.weights())
        span = StackedSpan(loss_alone(problem), side_by_side(problem.blocks, engine), engine)
        found = self.best(span, point, objective, SpanHessian(problem.fit_intercept))
        ends = np.cumsum([block.shape[1] for block in problem.blocks])[:-1]
        self.begin_at(np.split(found.coefficients, ends), found.intercept)
        return self.objective(coordinator.primal)

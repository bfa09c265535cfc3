r"""Subspace sharing with the regulariser ``log_sum``: monotone descent to a stationary point.

Log_sum is smooth, so rounds and steps are those of :mod:`fastadmm.coordinator.subspace.descent`. But it is a
sum over weights, which the coordinator does not know. The parties answer what a step over the span needs (its
value, slope and matrix of curvatures), in one exchange for each trial point. If the Hessian is not positive
definite, quadratic upper bounds of log_sum take its place, as in iteratively reweighted ridge regression.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.conversation.exchange import Call, Exchange, Pace, Talk
from fastadmm.coordinator.stationarity import intercept_part
from fastadmm.coordinator.subspace.descent import (
    Bend,
    DescentCoordinator,
    DescentSubspaceMethod,
    descend_over_span,
)
from fastadmm.engine.engine import Engine
from fastadmm.method.certificate import PrimalValue
from fastadmm.method.span import SpanPoint
from fastadmm.parties.direction import DirectionParty
from fastadmm.parties.log_sum_direction import LogSumDirectionParty
from fastadmm.problem.problem import Problem
from fastadmm.problem.regularizers import LogSum, Regularizer, SquaredL2

__all__ = ["LogSumCoordinator", "LogSumSubspaceMethod"]

#: Most steps over the span in a round: each is an exchange, and more hardly save a round.
_MOST_STEPS = 3


class LogSumCoordinator(DescentCoordinator):
    """Messages of all parties, and the descent over their span."""

    def __init__(self, problem: Problem, engine: Engine, directions: int | None = None) -> None:
        super().__init__(problem, engine, directions)
        self.penalty = 0.0

    def set_problem(self, problem: Problem) -> None:
        # What is left of the problem when the parties answer for their regularisers.
        super().set_problem(replace(problem, regularizers=[SquaredL2()] * problem.n_parties))

    def regulariser(self) -> float:
        return self.penalty

    def repair(self) -> None:
        """Nothing: no gradient proves a bound."""

    def _bend(self, coefficients: np.ndarray) -> Talk[Bend]:
        places = [np.flatnonzero(self.owner == m) for m in range(self.problem.n_parties)]
        calls = [Call(m, "bend", {"coefficients": coefficients[mine]}) for m, mine in enumerate(places)]
        answers = yield Exchange(calls, Pace.SHORT)
        k = len(coefficients)
        found = Bend(0.0, np.empty(k), np.zeros((k, k)), np.zeros((k, k)))
        for mine, answer in zip(places, answers):
            found.value += float(answer["value"])
            found.slope[mine] = answer["slope"]
            found.exact[np.ix_(mine, mine)] = answer["exact"]
            found.above[np.ix_(mine, mine)] = answer["above"]
        return found

    def _best_of_span(self, tolerance: float, tilt: np.ndarray | None) -> Talk[Any]:
        given = self.problem, self.messages, self.point, tolerance, self.engine
        point, bend = yield from descend_over_span(*given, self._bend, _MOST_STEPS)
        self.penalty = bend.value
        return point


class LogSumSubspaceMethod(DescentSubspaceMethod):
    """Subspace sharing with ``log_sum``."""

    family = LogSumDirectionParty.family
    coordinator: LogSumCoordinator
    coordinator_type = LogSumCoordinator

    def _party(self, name: str, block: FeatureBlock, regularizer: Regularizer) -> DirectionParty:
        assert isinstance(regularizer, LogSum)
        return LogSumDirectionParty(name, block, self.problem.regularization, self.engine, regularizer)

    def _at_start(self, point: SpanPoint) -> None:
        coordinator = self.coordinator
        own = [coordinator.coefficients(m) for m in range(self.problem.n_parties)]
        coordinator.penalty = sum(party.bend(c)["value"] for party, c in zip(self.parties, own))

    def _measure(self, primal: PrimalValue, gradients: float) -> float:
        """V at a model: a smooth regulariser is part of the gradient. ``gradients``: squared norm of all."""
        return gradients + intercept_part(self.problem, primal.gradient, self.engine)

    def export(self) -> dict[str, Any]:
        return {**super().export(), "penalty": self.coordinator.penalty}

    def restore(self, saved: dict[str, Any]) -> None:
        super().restore(saved)
        self.coordinator.penalty = float(saved["penalty"])

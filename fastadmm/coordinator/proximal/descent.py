"""Proximal Newton sharing for losses that are not convex: monotone descent to a stationary point.

Rounds are those of :mod:`fastadmm.coordinator.proximal.proximal`. What they rest on is not that the loss is
convex but that steps are downhill and checked: parties answer in a metric of the sizes of the rows'
curvatures, searches take Newton steps with their positive parts, and every step is one of Armijo's rule or of
a line search on the objective itself. Nothing is bounded from below, so rounds have no gap. How far to go
follows from how far the model is from stationary (:mod:`fastadmm.proof.stationary`), which is measured at the
proposals and, before a run may end, at the weights.
"""

from __future__ import annotations

import numpy as np

from fastadmm.conversation.exchange import Call, Exchange, Talk
from fastadmm.coordinator.proximal.chord_newton import ROUNDING
from fastadmm.coordinator.proximal.parts import HullPoint
from fastadmm.coordinator.proximal.proximal import ProximalMethod
from fastadmm.coordinator.stationarity import Progress, intercept_part, start_point
from fastadmm.coordinator.subspace.descent import SUFFICIENT
from fastadmm.engine.engine import Engine
from fastadmm.method.certificate import PrimalValue, primal_value
from fastadmm.method.method import Measured
from fastadmm.problem.problem import Problem
from fastadmm.proof.prove import value_at

Array = np.ndarray

#: Steps in the intercept of a round, at most.
_MOST_INTERCEPTS = 40


class DescentProximalMethod(ProximalMethod):
    """Proximal Newton sharing for a loss that is not convex."""

    SAVED = (*ProximalMethod.SAVED, "reference: progress.reference", "at_start: _at_start")
    proves_stationarity = True
    bounds_objective = False

    def __init__(self, problem: Problem, engine: Engine, directions: int | None = None) -> None:
        super().__init__(problem, engine, directions)
        self.progress = Progress()
        self._at_start = 0.0

    def prepare(self) -> Talk[float]:
        loss = yield from super().prepare()
        self.progress.reference = yield from self._squared(self.evaluate().gradient)
        return loss

    def reopen(self) -> float:
        start = start_point(self.problem, self.engine)
        self.model.intercept = self._intercept = start.intercept
        self.evaluate()
        self._at_start = start.loss
        return start.loss

    def round(self) -> Talk[Measured]:
        problem = self.problem
        answers = yield from self.exchange()
        own = intercept_part(problem, self.sent, self.engine)
        squared = own + sum(float(answer["squared"]) for answer in answers)
        stationarity = self.progress.relative(squared)
        # About a minimum the objective is off by the square of the slope.
        self.gap = self._at_start * min(stationarity, 1.0) ** 2
        value = self._settled() if 2.0 * own > squared else self.primal_of(problem, self.model)
        self._intercept = value.intercept
        objective = value.loss + sum(float(penalty) for penalty in self.penalties)
        yield from self.propose()
        return self._measured(objective, -np.inf, squared, squared, stationarity=stationarity)

    def _settled(self) -> PrimalValue:
        """The model with an intercept that is nearly the best for its weights: losses are flat far out."""
        problem, engine, point = self.problem, self.engine, self.model
        value, length = primal_value(problem, point.total, point.intercept, engine), 1.0
        for _ in range(_MOST_INTERCEPTS):
            z = engine.plus(problem.offset, point.total, value.intercept)
            bend = problem.loss.curvature(z, problem.y, problem.weight, np.empty(len(z)), engine)
            slope, size = float(engine.total(value.gradient)), engine.total_and_size(bend)[1]
            step = -length * slope / (size or problem.total_weight)
            if not -slope * step > ROUNDING * abs(value.loss):
                break
            trial = primal_value(problem, point.total, value.intercept + step, engine)
            if trial.loss <= value.loss + SUFFICIENT * slope * step:
                value, length = trial, 2.0 * length
            else:
                length *= 0.5
        self.model = HullPoint(point.coefficients, value.intercept, point.total)
        return value

    def fresh_stationarity(self) -> Talk[float]:
        messages = yield from self.scores("train")
        total = sum(messages[1:], messages[0])
        gradient = value_at(self.problem, total, self._intercept, self.engine).gradient
        return self.progress.relative((yield from self._squared(gradient)))

    def _squared(self, gradient: Array) -> Talk[float]:
        """The squared measure at the parties' weights, for the loss gradient there; shape (N,)."""
        told = {"gradient": gradient, "curvature": self.problem.loss.gradient_lipschitz}
        parties = range(self.problem.n_parties)
        answers = yield Exchange(
            [Call(m, "prox_gradient", {**told, **self.final_arguments(m)}) for m in parties]
        )
        squares = sum(float(answer["squared"]) for answer in answers)
        return squares + intercept_part(self.problem, gradient, self.engine)

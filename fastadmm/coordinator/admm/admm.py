"""ADMM sharing as a method: rounds of the coordinator, each with its certificate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.conversation.exchange import Talk, ask_all
from fastadmm.coordinator.admm.coordinator import Coordinator, RoundOutcome
from fastadmm.coordinator.admm.order import Order
from fastadmm.coordinator.stationarity import (
    Progress,
    descent_penalty,
    intercept_part,
    model_measure,
    start_point,
    stationarities,
)
from fastadmm.engine.engine import Engine
from fastadmm.method.certificate import PrimalValue, dual_bound, primal_value
from fastadmm.method.method import Measured, Method, StallWatch
from fastadmm.method.penalised_bound import penalised_bound
from fastadmm.parties.proximal import Party
from fastadmm.problem.constraints import Constraint
from fastadmm.problem.problem import Problem
from fastadmm.problem.regularizers import Regularizer


class AdmmMethod(Method):
    """Sharing, Jacobi or Gauss-Seidel ADMM. Scaling: penalty summed scaling."""

    family = "admm"

    def __init__(
        self,
        problem: Problem,
        order: Order,
        penalty: float,
        memory: int,
        x_update: str,
        engine: Engine,
        adaptive: bool = False,
        reweighting: bool = False,
        relaxation: float = 1.0,
    ) -> None:
        self.problem, self.engine = problem, engine
        self.name, self.convergent = order.name, order.convergent
        if not problem.convex:
            self.convergent = order.convergent and penalty >= descent_penalty(problem, engine, above=1.0)
        self.progress = Progress()
        self.x_update = x_update
        self.coordinator = Coordinator(
            problem, order, penalty, engine, memory, adaptive, reweighting, relaxation
        )
        # Who gives a penalty, or wants no acceleration, gets the iteration as it is printed, not relaxed.
        if problem.convex and relaxation != 1.0:
            self.watch = StallWatch()
            self.coordinator.balance_stalls()
        self._intercept: Any = 0.0
        self._norms = [0.0] * problem.n_parties

    def make_parties(self) -> Sequence[Party]:
        problem = self.problem
        penalties = zip(problem.party_regularizers, problem.party_constraints)
        return [self._party(*own) for own in zip(problem.names, problem.blocks, penalties)]

    def _party(self, name: str, block: FeatureBlock, penalty: tuple[Regularizer, Constraint]) -> Party:
        return Party(name, block, self.problem.regularization, self.engine, self.x_update, *penalty)

    def _primal(self, total: np.ndarray, intercept: Any) -> PrimalValue:
        return primal_value(self.problem, total, intercept, self.engine)

    def close(self) -> None:
        if self.coordinator.anderson is not None:
            self.coordinator.anderson.close()

    def prepare(self) -> Talk[float]:
        loss = self.reopen()
        if not self.problem.convex:
            self.progress.reference = yield from model_measure(
                self.problem, self.coordinator.state.u, self.engine
            )
        return loss

    def reopen(self) -> float:
        if self.problem.convex:
            start = self._primal(np.zeros(self.problem.message_size), 0.0)
        else:
            start = start_point(self.problem, self.engine)
            # u is the loss gradient at z, as after every round: the descent begins with the first.
            self.coordinator.state.u[:] = start.gradient
        self._intercept = self.coordinator.intercept = start.intercept
        return start.loss

    def start_at(self, intercept: Any) -> None:
        """Take over an intercept; messages, z and u are set in the coordinator's state."""
        self._intercept = self.coordinator.intercept = intercept

    def begin_at(self, weights: Sequence[np.ndarray], intercept: Any) -> None:
        # z is then the sum of the messages and u the loss gradient there.
        state, vector = self.coordinator.state, self.problem.loss.vector
        for party, x, message in zip(self.parties, weights, state.messages, strict=True):
            party.weights = np.array(x.T, order="C")  # parties keep a row for each class
            product = party.block.matrix_product if vector else party.block.product
            message[:] = product(party.weights, self.engine).ravel()
        state.z[:] = state.total()
        start = self._primal(state.z.copy(), intercept)
        state.u[:] = start.gradient
        self.start_at(start.intercept)

    def round(self) -> Talk[Measured]:
        problem, r = self.problem, self.coordinator.penalty
        outcome = yield from self.coordinator.round()
        self._norms = outcome.norms
        start = self._intercept if problem.convex else self.coordinator.intercept
        primal = self._primal(outcome.total, start)
        self._intercept = primal.intercept
        if not problem.convex:
            return (yield from self._measure_descent(outcome, primal))
        # With kinks the gradient proves nothing; u does, see the certificate's module.
        dual = primal.gradient if problem.loss.smooth else self.coordinator.last.u
        regulariser = outcome.regulariser
        objective = primal.loss + regulariser
        stationarity, bound = yield from self._certificate(dual, outcome, primal)
        cross, pressed, pulled, square = outcome.lagrangian_terms
        lagrangian = self._loss_at_z() + regulariser + cross + 0.5 * pressed
        self.raise_bound(bound, dual if problem.is_ridge else self.coordinator.last.u)
        if self.watch is not None and self.watch.stalls(objective - self.bound):
            self.coordinator.rebalance()
        return Measured(
            objective=objective,
            lower_bound=bound,
            primal_residual=outcome.primal_residual,
            dual_residual=outcome.dual_residual,
            augmented_lagrangian=lagrangian,
            # The z-part of equation 13 is |r (S - z)|^2, as u is the loss gradient at z.
            lyapunov=stationarity + pulled + square,
            penalty=r,
            accelerated=outcome.accelerated,
        )

    def _certificate(
        self, dual: np.ndarray, outcome: RoundOutcome, primal: PrimalValue
    ) -> Talk[tuple[float, float]]:
        """The parties' part of V^t, and the lower bound that a dual vector of shape (N,) proves."""
        problem, pull = self.problem, outcome.pull
        if problem.is_ridge:
            answers = yield from ask_all(problem.n_parties, "certify", gradient=dual, pull=pull)
            stationarity = sum(float(answer["stationarity"]) for answer in answers)
            gaps = sum(float(answer["gap"]) for answer in answers)
            bound = self._ridge_bound(dual, outcome, primal, gaps)
        else:
            answers = yield from ask_all(problem.n_parties, "stationarity", pull=pull)
            stationarity = sum(float(answer["value"]) for answer in answers)
            bound = yield from penalised_bound(problem, self.coordinator.last.u, self.engine)
        return stationarity, bound

    def _ridge_bound(
        self, dual: np.ndarray, outcome: RoundOutcome, primal: PrimalValue, gaps: float
    ) -> float:
        """Lower bound for squared l2 without a set, from the sum of the parties' shares of the gap."""
        if primal.dual_feasible:
            return primal.loss + outcome.regulariser - gaps
        return dual_bound(self.problem, dual, outcome.total, outcome.regulariser, gaps, self.engine)

    def _measure_descent(self, outcome: RoundOutcome, primal: PrimalValue) -> Talk[Measured]:
        """What a round of a non-convex problem left behind."""
        problem, r, regulariser = self.problem, self.coordinator.penalty, outcome.regulariser
        cross, pressed, pulled, square = outcome.lagrangian_terms
        state = sum((yield from stationarities(problem, outcome.pull)))
        state += intercept_part(problem, outcome.pull, self.engine) + pulled + square
        model = yield from model_measure(problem, primal.gradient, self.engine)
        return Measured(
            objective=primal.loss + regulariser,
            lower_bound=-np.inf,
            primal_residual=outcome.primal_residual,
            dual_residual=outcome.dual_residual,
            augmented_lagrangian=self._loss_at_z() + regulariser + cross + 0.5 * pressed,
            lyapunov=state,
            penalty=r,
            accelerated=outcome.accelerated,
            stationarity=self.progress.relative(max(state, model)),
        )

    def _loss_at_z(self) -> float:
        problem, coordinator = self.problem, self.coordinator
        # `last`, not `reached`: a rejected extrapolation leaves `reached` one round behind.
        z = self.engine.plus(coordinator.last.z, problem.offset, coordinator.intercept)
        return problem.loss.evaluate(z, problem.y, problem.weight, self.engine.vector(len(z)), self.engine)

    @property
    def intercept(self) -> Any:
        return self._intercept

    def weight_norms(self) -> list[float]:
        return self._norms

    def export(self) -> dict[str, Any]:
        saved = {**self.coordinator.export(), "exact_intercept": self._intercept, **self.kept_witness()}
        if self.watch is not None:
            saved.update(watch=self.watch.export(), bound=self.bound)
        return saved if self.problem.convex else {**saved, "reference": self.progress.reference}

    def export_parties(self) -> list[dict[str, np.ndarray]]:
        return [{"weights": p.weights} for p in self.parties]

    def restore(self, saved: dict[str, Any]) -> None:
        self.coordinator.restore(saved)
        self.take_witness(saved)
        self._intercept = float(saved["exact_intercept"])
        if self.watch is not None:
            self.watch, self.bound = StallWatch.restored(saved["watch"]), float(saved["bound"])
        if "reference" in saved:
            self.progress.reference = float(saved["reference"])

    def restore_parties(self, parties: list[dict[str, np.ndarray]]) -> None:
        if (metric := self.coordinator.metric) is not None:
            self.engine.map(lambda party: party.set_metric(metric), self.parties)
        for party, state in zip(self.parties, parties, strict=True):
            weights = np.array(state["weights"], dtype=np.float64)
            if weights.shape != party.weights.shape:
                raise ValueError("weights")
            party.weights = weights

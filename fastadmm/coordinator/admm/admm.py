"""ADMM sharing as a method: rounds of the coordinator, each with its certificate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastadmm.conversation.exchange import Talk
from fastadmm.coordinator.admm.coordinator import Coordinator, RoundOutcome
from fastadmm.coordinator.admm.schemes import Scheme, correction
from fastadmm.coordinator.admm.state import SharedState
from fastadmm.coordinator.certificate import PrimalValue, dual_bound, primal_value
from fastadmm.coordinator.method import Measured, Method
from fastadmm.coordinator.penalised_bound import penalised_bound
from fastadmm.coordinator.stationarity import (
    Progress,
    descent_penalty,
    intercept_part,
    model_measure,
    start_point,
)
from fastadmm.engine.engine import Engine
from fastadmm.parties.proximal import Party
from fastadmm.problem.problem import Problem

__all__ = ["AdmmMethod"]


class AdmmMethod(Method):
    """Sharing, Jacobi or Gauss-Seidel ADMM.

    Parameters
    ----------
    problem : Problem
    scheme : Scheme
    penalty : float
        r, summed scaling.
    memory : int
        Anderson memory; 0 without acceleration.
    x_update : str
        See :func:`fastadmm.parties.xupdate.choose.choose_x_update`.
    engine : Engine
    adaptive : bool
        Whether the penalty is adapted from round to round.
    reweighting : bool
        Whether it becomes one per sample, after the loss's curvature.
    relaxation : float
        Over-relaxation, in (0, 2); 1 is none.
    """

    def __init__(
        self,
        problem: Problem,
        scheme: Scheme,
        penalty: float,
        memory: int,
        x_update: str,
        engine: Engine,
        adaptive: bool = False,
        reweighting: bool = False,
        relaxation: float = 1.0,
    ) -> None:
        self.problem, self.engine = problem, engine
        self.name, self.convergent = scheme.name, scheme.convergent
        if not problem.convex:
            self.convergent = scheme.convergent and penalty >= descent_penalty(problem, above=1.0)
        self.progress = Progress()
        self.x_update = x_update
        self.coordinator = Coordinator(
            problem, scheme, penalty, engine, memory, adaptive, reweighting, relaxation
        )
        self._intercept: Any = 0.0
        #: The state and penalty that the parties have looked ahead to.
        self._ahead: tuple[SharedState, float] | None = None

    def make_parties(self) -> Sequence[Party]:
        problem = self.problem
        return [
            Party(name, block, problem.regularization, self.engine, self.x_update, regularizer, constraint)
            for name, block, regularizer, constraint in zip(
                problem.names, problem.blocks, problem.party_regularizers, problem.party_constraints
            )
        ]

    def _primal(self, total: np.ndarray, intercept: Any) -> PrimalValue:
        return primal_value(self.problem, total, intercept, self.engine)

    def prepare_parties(self) -> None:
        self.engine.map(lambda party: party.prepare(), self.parties)

    def reopen(self) -> float:
        if not self.problem.convex:
            return self._start_descent()
        start = self._primal(np.zeros(self.problem.message_size), 0.0)
        self._intercept = self.coordinator.intercept = start.intercept
        return start.loss

    def _start_descent(self) -> float:
        start = start_point(self.problem, self.engine)
        self._intercept = self.coordinator.intercept = start.intercept
        # u is the loss gradient at z, as after every round: the descent begins with the first.
        self.coordinator.state.u[:] = start.gradient
        self.progress.reference = model_measure(self.problem, self.parties, start.gradient, self.engine)
        return start.loss

    def start_at(self, intercept: Any) -> None:
        """Take over an intercept; messages, z and u are set in the coordinator's state."""
        self._intercept = self.coordinator.intercept = intercept

    def begin_at(self, weights: Sequence[np.ndarray], intercept: Any) -> None:
        """Let the first round begin at the parties' weights, of the shapes that the parties keep.

        z is then the sum of the messages and u the loss gradient there.
        """
        state, vector = self.coordinator.state, self.problem.loss.vector
        for party, x, message in zip(self.parties, weights, state.messages, strict=True):
            party.weights = np.array(x)
            product = party.block.matrix_product if vector else party.block.product
            message[:] = product(party.weights, self.engine).ravel()
        state.z[:] = state.total()
        start = self._primal(state.z.copy(), intercept)
        state.u[:] = start.gradient
        self.start_at(start.intercept)

    def round(self) -> Talk[Measured]:
        yield from ()
        problem, r = self.problem, self.coordinator.penalty
        ahead, self._ahead = self._ahead, None
        if ahead is None or ahead[0] is not self.coordinator.state or ahead[1] != r:
            for party in self.parties:
                party.forget_target()
        outcome = self.coordinator.round(self.parties)
        start = self._intercept if problem.convex else self.coordinator.intercept
        primal = self._primal(outcome.total, start)
        self._intercept = primal.intercept
        if not problem.convex:
            return self._measure_descent(outcome, primal)
        # With kinks the gradient proves nothing; u does, see the certificate's module.
        dual = primal.gradient if problem.loss.smooth else self.coordinator.last.u
        regulariser = sum(p.penalty_value() for p in self.parties)
        objective = primal.loss + regulariser
        self._look_ahead([dual if problem.is_ridge else self.coordinator.last.u, outcome.pull])
        if problem.is_ridge:
            certificates = self.engine.map(lambda p: p.certify(dual, outcome.pull), self.parties)
            stationarity, gaps = sum(c.stationarity for c in certificates), sum(c.gap for c in certificates)
            if primal.dual_feasible:
                bound = objective - gaps
            else:
                bound = dual_bound(problem, dual, outcome.total, regulariser, gaps, self.engine)
        else:
            stationarity = sum(self.engine.map(lambda p: p.stationarity(outcome.pull), self.parties))
            bound = penalised_bound(problem, self.parties, self.coordinator.last.u, self.engine)
        cross, pressed, pulled, square = outcome.lagrangian_terms
        return Measured(
            objective=objective,
            lower_bound=bound,
            primal_residual=outcome.primal_residual,
            dual_residual=outcome.dual_residual,
            augmented_lagrangian=self._loss_at_z() + regulariser + cross + 0.5 * pressed,
            # The z-part of equation 13 is |r (S - z)|^2, as u is the loss gradient at z.
            lyapunov=stationarity + pulled + square,
            penalty=r,
            accelerated=outcome.accelerated,
        )

    def _measure_descent(self, outcome: RoundOutcome, primal: PrimalValue) -> Measured:
        """What a round of a non-convex problem left behind."""
        problem, r = self.problem, self.coordinator.penalty
        regulariser = sum(p.penalty_value() for p in self.parties)
        cross, pressed, pulled, square = outcome.lagrangian_terms
        state = sum(self.engine.map(lambda p: p.stationarity(outcome.pull), self.parties))
        state += intercept_part(problem, outcome.pull) + pulled + square
        model = model_measure(problem, self.parties, primal.gradient, self.engine)
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

    def _look_ahead(self, vectors: list[np.ndarray]) -> None:
        """Let every party read its block once for this round's certificate and the next x-update."""
        coordinator, scheme = self.coordinator, self.coordinator.scheme
        if any(type(party) is not Party for party in self.parties):
            return  # parties of several classes make their images themselves
        # A round later a party's target also depends on its predecessors, where they take turns.
        state = coordinator.state if scheme.parallel else None
        common = (
            correction(scheme, len(self.parties), state, coordinator.penalties) if state is not None else None
        )

        def work(m: int) -> None:
            target = None if state is None else state.messages[m] - common
            self.parties[m].look_ahead(vectors, target)

        self.engine.map(work, range(len(self.parties)))
        self._ahead = (coordinator.state, coordinator.penalty)

    def _loss_at_z(self) -> float:
        problem, coordinator = self.problem, self.coordinator
        # `last`, not `reached`: a rejected extrapolation leaves `reached` one round behind.
        z = coordinator.last.z + problem.offset + coordinator.intercept
        return problem.loss.evaluate(z, problem.y, problem.weight, np.empty_like(z), self.engine)

    @property
    def intercept(self) -> Any:
        return self._intercept

    def weights(self) -> list[np.ndarray]:
        return [party.weights for party in self.parties]

    def party_notes(self) -> list[tuple[str, str, str]]:
        return [(p.name, p.update.name, p.reason) for p in self.parties]

    def export(self) -> dict[str, Any]:
        saved = {**self.coordinator.export(), "exact_intercept": self._intercept}
        return saved if self.problem.convex else {**saved, "reference": self.progress.reference}

    def export_parties(self) -> list[dict[str, np.ndarray]]:
        return [{"weights": p.weights} for p in self.parties]

    def restore(self, saved: dict[str, Any]) -> None:
        self.coordinator.restore(saved)
        self._intercept = float(saved["exact_intercept"])
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

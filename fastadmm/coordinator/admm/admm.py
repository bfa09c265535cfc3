r"""ADMM sharing as a method: rounds in sharing, Jacobi or Gauss-Seidel order, each with its certificate.

All three orders send party m the target

.. math:: w_m = a_m - \frac{S - z}{\tau} - \frac{u}{\tau r}, \qquad S = \sum_k a_k,

and differ only in :math:`\tau` and in the order of the parties:

``sharing``
    :math:`\tau = M`, parties in parallel. Sharing ADMM of Boyd et al. (2011,
    section 7.3), convergent for every convex problem and every penalty.
``jacobi``
    :math:`\tau = 1`, parties in parallel: Algorithm 1 of Hu et al. It does
    **not** converge in general.
``gauss-seidel``
    :math:`\tau = 1`, parties one after the other, each seeing its
    predecessors' new messages (Hong et al. 2016).

With :math:`\tau = M` new messages may be over-relaxed,

.. math:: \hat a_m = \alpha D_m x_m^+ + (1 - \alpha)\, \xi_m, \qquad
          \xi_m = \hat a_m^t - \frac{S^t - z^t}{M}

where :math:`\xi_m` is party m's copy of its message in the two-block form, and :math:`\hat a_m^t` and
:math:`S^t`, their sum, are relaxed ones as well (Boyd et al. 2011, sections 3.4.3 and 7.3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastadmm.conversation.exchange import Answers, Call, Exchange, Pace, Talk, ask_all
from fastadmm.coordinator.admm.anderson import Anderson
from fastadmm.coordinator.admm.penalty_rule import MAX_DECISIONS, CurvatureRule, Order, PenaltyRule
from fastadmm.coordinator.admm.z_update import update_z_u
from fastadmm.coordinator.stationarity import (
    Progress,
    descent_penalty,
    intercept_part,
    model_measure,
    start_point,
    stationarities,
)
from fastadmm.engine.engine import Engine
from fastadmm.engine.stacked import StackedRows
from fastadmm.method.certificate import PrimalValue, dual_bound
from fastadmm.method.class_certificate import best_primal, shifted
from fastadmm.method.method import Measured, Method, StallWatch
from fastadmm.method.penalised_bound import penalised_bound
from fastadmm.parties.proximal import Party
from fastadmm.problem.problem import Problem

#: An extrapolated state whose residual exceeds the best one by this factor is taken back.
_MAX_GROWTH = 2.0

#: Summable bound of Zhang, O'Donoghue and Boyd (2020): accepted steps keep convergence a theorem.
_SUMMABLE_SCALE = 1e4
_SUMMABLE_POWER = 1.1


@dataclass
class SharedState:
    """Messages, consensus variable and dual variable, in one vector: a point to an acceleration step."""

    vector: np.ndarray  # of shape ((M + 2) N,)
    n_parties: int

    @property
    def _rows(self) -> np.ndarray:
        return self.vector.reshape(self.n_parties + 2, -1)

    @property
    def messages(self) -> np.ndarray:
        """Of shape (M, N)."""
        return self._rows[:-2]

    @property
    def z(self) -> np.ndarray:
        """Of shape (N,)."""
        return self._rows[-2]

    @property
    def u(self) -> np.ndarray:
        """Of shape (N,)."""
        return self._rows[-1]

    def total(self) -> np.ndarray:
        """Sum of the messages over parties, in the parties' order, of shape (N,)."""
        return self.messages.sum(axis=0)


class AdmmMethod(Method):
    """Sharing, Jacobi or Gauss-Seidel ADMM. Scaling: penalty summed scaling."""

    family = "admm"
    party_type: Any = Party
    SAVED = (
        *("state: state.vector", "reached: reached.vector", "intercept: shift", "penalty", "relaxation"),
        *("extrapolated", "n_extrapolations", "first_residual", "best_residual", "anderson"),
        *("penalty_rule: rule", "curvature_rule", "metric", "exact_intercept: _intercept"),
        *("witness: witness_rows", "watch", "bound?", "reference?: progress.reference"),
    )

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
        self.problem, self.engine, self.order, self.x_update = problem, engine, order, x_update
        self.name, self.convergent = order.name, order.convergent
        if not problem.convex:
            self.convergent = order.convergent and penalty >= descent_penalty(problem, engine, above=1.0)
        self.progress = Progress()
        self.rows = StackedRows(engine, problem.n_samples)
        self.penalty, self.relaxation = penalty, relaxation
        self.state = self._state(np.zeros((problem.n_parties + 2) * problem.message_size))
        self.reached = self.last = self.state
        #: The intercept of the iteration, and the best one at the model.
        self.shift: Any = 0.0
        self._intercept: Any = 0.0
        self.metric: np.ndarray | None = None  # penalties of samples as shares of r, of shape (N,)
        self.extrapolated, self.n_extrapolations = False, 0
        self.first_residual, self.best_residual = math.nan, math.inf
        self.anderson: Anderson | None = None
        if memory:
            self.anderson = Anderson(len(self.state.vector), self._sections(), memory, self.rows)
        self.rule = PenaltyRule() if adaptive else None
        self.curvature_rule = CurvatureRule() if reweighting else None
        # Who gives a penalty, or wants no acceleration, gets the iteration as it is printed, not relaxed.
        if problem.convex and relaxation != 1.0:
            self.watch = StallWatch()
            self.rule = self.rule or PenaltyRule(scheduled=False)
        self._norms = [0.0] * problem.n_parties

    def _state(self, vector: np.ndarray) -> SharedState:
        return SharedState(vector, self.problem.n_parties)

    def _primal(self, total: np.ndarray, intercept: Any) -> PrimalValue:
        return best_primal(self.problem, total, intercept, self.engine)

    def close(self) -> None:
        if self.anderson is not None:
            self.anderson.close()

    def prepare(self) -> Talk[float]:
        loss = self.reopen()
        if not self.problem.convex:
            self.progress.reference = yield from model_measure(self.problem, self.state.u, self.engine)
        return loss

    def reopen(self) -> float:
        if self.problem.convex:
            start = self._primal(np.zeros(self.problem.message_size), 0.0)
        else:
            start = start_point(self.problem, self.engine)
            # u is the loss gradient at z, as after every round: the descent begins with the first.
            self.state.u[:] = start.gradient
        self.start_at(start.intercept)
        return start.loss

    def start_at(self, intercept: Any) -> None:
        """Take over an intercept; messages, z and u are set in the state."""
        self._intercept = self.shift = intercept

    def begin_at(self, weights: Sequence[np.ndarray], intercept: Any) -> None:
        # z is then the sum of the messages and u the loss gradient there.
        state, vector = self.state, self.problem.loss.vector
        for party, x, message in zip(self.parties, weights, state.messages, strict=True):
            party.weights = np.array(x.T, order="C")  # parties keep a row for each class
            product = party.block.matrix_product if vector else party.block.product
            message[:] = product(party.weights, self.engine).ravel()
        state.z[:] = state.total()
        start = self._primal(state.z.copy(), intercept)
        state.u[:] = start.gradient
        self.start_at(start.intercept)

    # --- one iteration ----------------------------------------------------------------------------------

    @property
    def penalties(self) -> Any:
        """The penalty of every sample: r, or an array of shape (N,) where they differ."""
        r, metric = self.penalty, self.metric
        return r if metric is None else self.engine.plus(metric, metric, factor=0.0, scale=r)

    @property
    def _tau(self) -> float:
        return self.order.tau(self.problem.n_parties)

    @property
    def _told(self) -> tuple[float, np.ndarray]:
        """Penalties as the kernels of :mod:`fastadmm.kernels.sharing` take them."""
        return float(self.penalty), np.empty(0) if self.metric is None else self.metric

    def _sections(self) -> list[tuple[slice, Any]]:
        """Parts of the state and their weights in the norm of the fixed-point residual."""
        m, n, r, tau = self.problem.n_parties, self.problem.message_size, self.penalties, self._tau
        if self.metric is None:
            pulled, inverse = tau * r, 1.0 / r
        else:
            pulled = self.engine.plus(r, r, factor=0.0, scale=tau)
            inverse = self.engine.each(np.reciprocal, r)
        weights = [*([pulled] * m), r, inverse]
        return [(slice(k * n, (k + 1) * n), weight) for k, weight in enumerate(weights)]

    def _iterate(self) -> Talk[tuple[np.ndarray, np.ndarray, float, tuple[float, ...], dict[str, Any]]]:
        """x-updates, z- and u-update, and the choice of the next state.

        Returns: the sum of the new messages; ``u + r (S - z)`` at the new state, what V^t needs of the
        parties, both of shape (N,); R(x) at the new weights; terms of Lagrangian and V^t; what is measured.
        Scaling: the result summed scaling.
        """
        from fastadmm.kernels.sharing import dual_residual, pull_and_squares, relax_messages

        problem, engine, state, told = self.problem, self.engine, self.state, self._told
        new, leaves = self._state(engine.vector(len(state.vector))), engine.leaves(problem.message_size)
        rows = engine.all_rows(problem.n_samples)
        answers = new.messages
        if self.relaxation != 1.0:
            answers = engine.vector(answers.size).reshape(answers.shape)
        stepped = yield from self._step(answers)
        total, relaxed, pull = (engine.vector(problem.message_size) for _ in range(3))
        given = state.messages, state.z, answers, float(self.relaxation), new.messages, total, relaxed
        engine.over_rows(relax_messages, leaves, *given)
        engine.copy(state.z, new.z)  # warm start of the z-update
        at = new.z, new.u, self.shift, engine, self.metric
        self.shift = update_z_u(problem, relaxed, state.u, self.penalty, *at)
        found = engine.sum_over_rows(pull_and_squares, leaves, (6,), total, new.z, new.u, *told, pull)
        cross, pressed, pulled, square, *sizes = found.tolist()
        # Party m solved lambda W x + tau r D'(a_m - w_m) = 0; optimality asks for
        # lambda W x + D'u = 0. The difference is D's with s from messages alone.
        own = state.messages, state.z, state.u, answers, new.u, *told, float(self._tau), self.order.parallel
        off = float(engine.sum_over_rows(dual_residual, leaves, (1,), *own)[0])
        residuals = math.sqrt(square / rows), math.sqrt(off / (problem.n_parties * rows))
        measured = {"primal_residual": residuals[0], "dual_residual": residuals[1]}
        measured |= {"penalty": self.penalty, "accelerated": self.extrapolated}  # as the iteration began
        self._norms = [float(answer["norm"]) for answer in stepped]
        regulariser = sum(float(answer["penalty"]) for answer in stepped)
        self.last = new
        self._advance(new)
        if self.rule is not None:
            pairs = zip(residuals, map(math.sqrt, sizes))
            ratios = [x * math.sqrt(rows) / size if size > 0.0 else math.nan for x, size in pairs]
            if (factor := self.rule.factor(*ratios)) != 1.0:
                self.penalty *= factor
                self._start_afresh()
        if self.curvature_rule is not None and self.curvature_rule.due():
            yield from self._reweight(total)
        return total, pull, regulariser, (cross, pressed, pulled, square), measured

    def _step(self, out: np.ndarray) -> Talk[Answers]:
        """One x-update of every party, whose messages go to ``out``, of shape (M, N)."""
        from fastadmm.kernels.sharing import shift_of_targets

        engine, state, scaled = self.engine, self.state, float(self._tau * self.penalty)
        common = engine.vector(len(state.z))
        given = state.messages, state.z, state.u, *self._told, float(self._tau), common
        engine.over_rows(shift_of_targets, engine.leaves(len(common)), *given)

        def call(m: int) -> Call:
            def asked() -> dict[str, Any]:
                return {"w": engine.plus(state.messages[m], common, factor=-1.0), "scaled_penalty": scaled}

            return Call(m, "step", asked)

        if self.order.parallel:
            answers = yield Exchange([call(m) for m in range(len(out))])
            for m, answer in enumerate(answers):
                out[m] = answer["message"]
            return answers
        answers = []
        for m in range(len(out)):
            answers += yield Exchange([call(m)], Pace.IN_TURN)
            out[m] = answers[m]["message"]
            engine.plus(common, engine.plus(out[m], state.messages[m], factor=-1.0), out=common)
        return answers

    def _reweight(self, total: np.ndarray) -> Talk[None]:
        """Let the penalty follow the curvature of the loss at the model."""
        problem = self.problem
        z, bend = self.engine.plus(total, problem.offset, self.shift), self.engine.vector(len(total))
        problem.loss.curvature(z, problem.y, problem.weight, bend, self.engine)
        found = CurvatureRule.metric(bend, self.engine)
        if found is None:
            return
        self.metric, self.penalty = found
        yield from ask_all(problem.n_parties, "set_metric", curvature=found[0])
        self._start_afresh()

    def _start_afresh(self) -> None:
        """Go on from the last accepted result with another penalty, and an empty memory."""
        self.state, self.extrapolated = self.reached, False
        self.n_extrapolations, self.first_residual, self.best_residual = 0, math.nan, math.inf
        if self.anderson is not None:
            self.anderson.sections = self._sections()
            self.anderson.reset()

    def _advance(self, new: SharedState) -> None:
        """Choose where the next round starts: the new state, or one extrapolated from it."""
        if self.anderson is None:
            self.state = self.reached = new
            return
        residual = self.rows.difference(new.vector, self.state.vector)
        norm = math.sqrt(self.anderson.squared_norm(residual))
        if math.isnan(self.first_residual):
            self.first_residual = norm
        summable = _SUMMABLE_SCALE * self.first_residual * (self.n_extrapolations + 1) ** -_SUMMABLE_POWER
        if self.extrapolated and not norm <= min(_MAX_GROWTH * self.best_residual, summable):
            # Take the extrapolation back: go on from the last plain result, with an empty memory.
            self.state, self.extrapolated = self.reached, False
            self.anderson.reset()
            return
        self.best_residual, self.state = min(self.best_residual, norm), new
        self.reached = new
        vector = self.anderson.extrapolate(new.vector, residual)
        self.extrapolated = vector is not None
        if vector is not None:
            self.n_extrapolations += 1
            self.state = self._state(vector)

    # --- what a round proves ----------------------------------------------------------------------------

    def round(self) -> Talk[Measured]:
        problem, engine = self.problem, self.engine
        total, pull, regulariser, terms, measured = yield from self._iterate()
        cross, pressed, pulled, square = terms
        primal = self._primal(total, self._intercept if problem.convex else self.shift)
        self._intercept = primal.intercept
        objective, bound, stationarity = primal.loss + regulariser, -math.inf, None
        lagrangian = self._loss_at_z() + regulariser + cross + 0.5 * pressed
        # The z-part of equation 13 is |r (S - z)|^2, as u is the loss gradient at z.
        if problem.convex:
            # With kinks the gradient proves nothing; u does, see the certificate's module.
            dual = primal.gradient if problem.loss.smooth and problem.is_ridge else self.last.u
            lyapunov, bound = yield from self._certificate(dual, total, pull, regulariser, primal)
            lyapunov = lyapunov + pulled + square
            self.raise_bound(bound, dual)
            if self.watch is not None and self.watch.stalls(objective - self.bound):
                self._rebalance()
        else:
            lyapunov = sum((yield from stationarities(problem, pull)))
            lyapunov += intercept_part(problem, pull, engine) + pulled + square
            model = yield from model_measure(problem, primal.gradient, engine)
            stationarity = self.progress.relative(max(lyapunov, model))
        measured |= {"augmented_lagrangian": lagrangian, "lyapunov": lyapunov}
        return Measured(objective, bound, stationarity=stationarity, **measured)

    def _certificate(
        self, dual: np.ndarray, total: np.ndarray, pull: np.ndarray, regulariser: float, primal: PrimalValue
    ) -> Talk[tuple[float, float]]:
        """The parties' part of V^t, and the lower bound that a dual vector of shape (N,) proves."""
        problem = self.problem
        if not problem.is_ridge:
            stationarity = sum((yield from stationarities(problem, pull)))
            return stationarity, (yield from penalised_bound(problem, dual, self.engine))
        answers = yield from ask_all(problem.n_parties, "certify", gradient=dual, pull=pull)
        stationarity, gaps = (sum(float(own[key]) for own in answers) for key in ("stationarity", "gap"))
        if primal.dual_feasible:
            return stationarity, primal.loss + regulariser - gaps
        return stationarity, dual_bound(problem, dual, total, regulariser, gaps, self.engine)

    def _rebalance(self) -> None:
        """Where the gap stands still: residuals shrink together with another penalty, and a new memory."""
        if self.rule is not None and self.rule.n_stalls < MAX_DECISIONS:
            self.penalty *= self.rule.stalled()
            self._start_afresh()

    def _loss_at_z(self) -> float:
        problem = self.problem
        # `last`, not `reached`: a rejected extrapolation leaves `reached` one round behind.
        if problem.loss.vector:
            z = shifted(self.last.z + problem.offset, self.shift)
        else:
            z = self.engine.plus(self.last.z, problem.offset, self.shift)
        return problem.loss.evaluate(z, problem.y, problem.weight, self.engine.vector(len(z)), self.engine)

    @property
    def intercept(self) -> Any:
        return self._intercept

    def weight_norms(self) -> list[float]:
        return self._norms

    def restore(self, saved: Mapping[str, Any]) -> None:
        self.reached = self._state(self.state.vector)  # not one with where the next round starts
        super().restore(saved)
        metric = np.ones_like(self.state.z) if self.metric is None else self.metric
        if metric.shape != self.state.z.shape or not (metric > 0.0).all():
            raise ValueError("metric")
        if self.anderson is not None:
            self.anderson.sections = self._sections()

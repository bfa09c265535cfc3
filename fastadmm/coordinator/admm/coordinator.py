"""One round of ADMM sharing, with safeguarded acceleration."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastadmm.conversation.exchange import Talk, ask_all
from fastadmm.coordinator.admm.anderson import Anderson
from fastadmm.coordinator.admm.messages import SharedState, collect_messages, penalty_terms, relax
from fastadmm.coordinator.admm.order import Order
from fastadmm.coordinator.admm.penalty_rule import MAX_DECISIONS, CurvatureRule, PenaltyRule
from fastadmm.coordinator.admm.z_update import update_z_u
from fastadmm.engine.engine import Engine
from fastadmm.engine.stacked import StackedRows
from fastadmm.method.method import Saved
from fastadmm.problem.problem import Problem

#: An extrapolated state whose residual exceeds the best one by this factor is taken back.
_MAX_GROWTH = 2.0

#: Summable bound of Zhang, O'Donoghue and Boyd (2020): accepted steps keep convergence a theorem.
_SUMMABLE_SCALE = 1e4
_SUMMABLE_POWER = 1.1

#: Differences that the acceleration keeps, and memory that these may take, in bytes.
_MOST_DIFFERENCES, _HISTORY_BUDGET = 10, 2 * 2**30


def acceleration_memory(n_parties: int, n_samples: int) -> int:
    """Number of Anderson differences that fit the memory budget; 0 where fewer than 3 do."""
    each = 16 * (n_parties + 2) * n_samples
    memory = min(_MOST_DIFFERENCES, _HISTORY_BUDGET // each)
    return int(memory) if memory >= 3 else 0


@dataclass(frozen=True)
class Stepped:
    """What all x-updates of a round gave. Shapes: total, relaxed (N,); answers (M, N)."""

    total: np.ndarray  # of shape (N,): sum of the new messages
    regulariser: float  # R(x) at the new weights, summed scaling
    norms: list[float]  # of each party's new weights
    answers: np.ndarray  # of shape (M, N): the new messages
    relaxed: np.ndarray  # of shape (N,): sum of the new state's messages


@dataclass(frozen=True)
class RoundOutcome:
    """What a round did. Shapes: total, pull (N,)."""

    total: np.ndarray  # of shape (N,): sum of the new messages
    pull: np.ndarray  # of shape (N,): ``u + r (S - z)`` at the new state: what V^t needs from the parties
    primal_residual: float  # as in RoundRecord
    dual_residual: float  # as in RoundRecord
    lagrangian_terms: tuple[float, float, float, float]
    accelerated: bool  # whether the round started from an extrapolated state
    regulariser: float  # R(x) at the new weights, summed scaling
    norms: list[float]  # of each party's new weights


class Coordinator(Saved):
    """Holds the shared state and runs rounds.

    Shapes: metric (N,).
    Scaling: penalty summed scaling.
    """

    SAVED = "penalty", "relaxation", "extrapolated", "n_extrapolations", "first_residual", "best_residual"

    def __init__(
        self,
        problem: Problem,
        order: Order,
        penalty: float,
        engine: Engine,
        memory: int = 0,
        adaptive: bool = False,
        reweighting: bool = False,
        relaxation: float = 1.0,
    ) -> None:
        self.problem, self.order, self.engine = problem, order, engine
        self.rows = StackedRows(engine, problem.n_samples)
        self.penalty, self.relaxation = penalty, relaxation
        self.state = SharedState(problem.n_parties, problem.message_size)
        self.reached = self.last = self.state
        self.intercept: Any = 0.0
        self.metric: np.ndarray | None = None
        self.anderson: Anderson | None = None
        self.extrapolated = False
        self.n_extrapolations = 0
        self.first_residual = math.nan
        self.best_residual = math.inf
        if memory:
            self.anderson = Anderson(len(self.state.vector), self._sections(), memory, self.rows)
        self.rule = PenaltyRule() if adaptive else None
        self.curvature_rule = CurvatureRule() if reweighting else None

    @property
    def penalties(self) -> Any:
        """The penalty of every sample: r, or an array of shape (N,) where they differ."""
        r, metric = self.penalty, self.metric
        return r if metric is None else self.engine.plus(metric, metric, factor=0.0, scale=r)

    def _sections(self) -> list[tuple[slice, Any]]:
        """Parts of the state and their weights in the norm of the fixed-point residual."""
        m, n, r = self.problem.n_parties, self.problem.message_size, self.penalties
        tau = self.order.tau(m)
        if self.metric is None:
            pulled, inverse = tau * r, 1.0 / r
        else:
            pulled = self.engine.plus(r, r, factor=0.0, scale=tau)
            inverse = self.engine.each(np.reciprocal, r)
        weights = [*([pulled] * m), r, inverse]
        return [(slice(k * n, (k + 1) * n), weight) for k, weight in enumerate(weights)]

    def round(self) -> Talk[RoundOutcome]:
        """Run one round: x-updates, z- and u-update, and the choice of the next state."""
        from fastadmm.kernels.sharing import pull_and_squares

        problem, state, r = self.problem, self.state, self.penalty
        new = state.like(self.engine.vector(len(state.vector)))
        stepped = yield from self._step(new)
        total = stepped.total
        self.engine.copy(state.z, new.z)  # warm start of the z-update
        self.intercept = update_z_u(
            problem, stepped.relaxed, state.u, r, new.z, new.u, self.intercept, self.engine, self.metric
        )
        pull = self.engine.vector(len(total))
        given = total, new.z, new.u, *penalty_terms(r, self.metric), pull
        cross, pressed, pulled, square, *sizes = self._sums(pull_and_squares, 6, *given)
        outcome = RoundOutcome(
            total,
            pull,
            math.sqrt(square / self.engine.all_rows(problem.n_samples)),
            self._dual_residual(state, new, stepped),
            (cross, pressed, pulled, square),
            self.extrapolated,
            stepped.regulariser,
            stepped.norms,
        )
        self.last = new
        self._advance(new)
        if self.rule is not None:
            self._adapt(self.rule, outcome, *map(math.sqrt, sizes))
        if self.curvature_rule is not None and self.curvature_rule.due():
            yield from self._reweight(total)
        return outcome

    def _step(self, new: SharedState) -> Talk[Stepped]:
        """Every party's x-update; the new state's messages are filled in, relaxed."""
        state, relaxes = self.state, self.relaxation != 1.0
        answers = new.messages
        if relaxes:
            answers = self.engine.vector(answers.size).reshape(answers.shape)
        stepped = yield from collect_messages(
            self.order, state, self.penalty, answers, self.engine, self.metric
        )
        total, relaxed = relax(state, answers, self.relaxation, new.messages, self.engine)
        regulariser = sum(float(answer["penalty"]) for answer in stepped)
        return Stepped(total, regulariser, [float(answer["norm"]) for answer in stepped], answers, relaxed)

    def _sums(self, kernel: Any, count: int, *arguments: Any) -> list[float]:
        """Sums of what a kernel adds up over the rows."""
        leaves = self.engine.leaves(self.problem.message_size)
        found: list[float] = self.engine.sum_over_rows(kernel, leaves, (count,), *arguments).tolist()
        return found

    def balance_stalls(self) -> None:
        """Take in what :meth:`rebalance` needs, where the penalty is not adapted anyway."""
        if self.rule is None:
            self.rule = PenaltyRule(scheduled=False)

    def rebalance(self) -> None:
        """Where the gap stands still: residuals shrink together with another penalty, and a new memory."""
        if self.rule is not None and self.rule.n_stalls < MAX_DECISIONS:
            self.penalty *= self.rule.stalled()
            self._start_afresh()

    def _adapt(self, rule: PenaltyRule, outcome: RoundOutcome, size: float, dual_size: float) -> None:
        """Change the penalty where the rule says so, by the norms of S and u; acceleration starts afresh."""
        root = math.sqrt(self.engine.all_rows(self.problem.n_samples))
        factor = rule.factor(
            outcome.primal_residual * root / size if size > 0.0 else math.nan,
            outcome.dual_residual * root / dual_size if dual_size > 0.0 else math.nan,
        )
        if factor == 1.0:
            return
        self.penalty *= factor
        self._start_afresh()

    def _reweight(self, total: np.ndarray) -> Talk[None]:
        """Let the penalty follow the curvature of the loss at the model."""
        problem = self.problem
        z, bend = self.engine.plus(total, problem.offset, self.intercept), self.engine.vector(len(total))
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

    def _dual_residual(self, old: SharedState, new: SharedState, stepped: Stepped) -> float:
        # Party m solved lambda W x + tau r D'(a_m - w_m) = 0; optimality asks for
        # lambda W x + D'u = 0. The difference is D's with s as below, from messages alone.
        from fastadmm.kernels.sharing import dual_residual

        order, m = self.order, self.problem.n_parties
        given = old.messages, old.z, old.u, stepped.answers, new.u, *penalty_terms(self.penalty, self.metric)
        (total,) = self._sums(dual_residual, 1, *given, float(order.tau(m)), order.parallel)
        return math.sqrt(total / (m * self.engine.all_rows(self.problem.n_samples)))

    def _advance(self, new: SharedState) -> None:
        """Choose where the next round starts: the new state, or one extrapolated from it."""
        if self.anderson is None:
            self.state = self.reached = new
            return
        residual = self.rows.difference(new.vector, self.state.vector)
        norm = math.sqrt(self.anderson.squared_norm(residual))
        if math.isnan(self.first_residual):
            self.first_residual = norm
        if self.extrapolated and not self._acceptable(norm):
            # Take the extrapolation back: go on from the last plain result, with an empty memory.
            self.state = self.reached
            self.anderson.reset()
            self.extrapolated = False
            return
        self.best_residual = min(self.best_residual, norm)
        self.reached = new
        vector = self.anderson.extrapolate(new.vector, residual)
        self.extrapolated = vector is not None
        if vector is None:
            self.state = new
        else:
            self.n_extrapolations += 1
            self.state = new.like(vector)

    def _acceptable(self, norm: float) -> bool:
        summable = _SUMMABLE_SCALE * self.first_residual * (self.n_extrapolations + 1) ** -_SUMMABLE_POWER
        return norm <= min(_MAX_GROWTH * self.best_residual, summable)

    def export(self) -> dict[str, Any]:
        vectors = {"state": self.state.vector, "reached": self.reached.vector}
        saved: dict[str, Any] = {**vectors, "intercept": self.intercept, **super().export()}
        if self.anderson is not None:
            saved["anderson"] = self.anderson.export()
        if self.rule is not None:
            saved["penalty_rule"] = self.rule.export()
        if self.curvature_rule is not None:
            saved["curvature_rule"] = self.curvature_rule.export()
        if self.metric is not None:
            saved["metric"] = self.metric
        return saved

    def restore(self, saved: Mapping[str, Any]) -> None:
        super().restore(saved)
        n = self.problem.message_size
        self.reached = self.state.like(np.array(saved["reached"]))
        self.state = self.state.like(np.array(saved["state"]))
        self.intercept = float(saved["intercept"])
        if self.curvature_rule is not None:
            self.curvature_rule.restore(saved["curvature_rule"])
        if "metric" in saved:
            metric = np.array(saved["metric"], dtype=np.float64)
            if metric.shape != (n,) or not (metric > 0.0).all():
                raise ValueError("metric")
            self.metric = metric
        if self.anderson is not None:
            self.anderson.sections = self._sections()
            self.anderson.restore(saved["anderson"])
        if self.rule is not None and "penalty_rule" in saved:
            self.rule.restore(saved["penalty_rule"])

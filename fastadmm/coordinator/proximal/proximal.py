r"""Proximal Newton sharing: few rounds for regularisers with kinks and for sets.

Each round the coordinator proposes a model y and sends the loss gradient
there. Every party solves its block's proximal Newton problem and answers with
the message of what is new in its solution, one direction, and with scalars.
Two small problems follow at the coordinator:

the model
    The best *convex* combination of the old model, the answers and points
    between: the regulariser of a combination is bounded by
    convexity, so the objective never increases.
the proposal
    Newton's method over the *face* of the answers: all combinations of the
    directions so far that keep the zeros and bounds of the answers, on which
    the objective is smooth. Only parties can see weights that leave their
    orthant or box on the way: they report the regulariser at the kinks
    between model and proposal, so that the next round begins with an exact
    line search.

See ``docs/solver.md`` and ``docs/theory.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastadmm.conversation.exchange import Answers, Talk
from fastadmm.coordinator.proximal.coordinator import ProximalCoordinator
from fastadmm.coordinator.smoothing import Smoothing
from fastadmm.engine.engine import Engine
from fastadmm.method.method import Measured, StallWatch
from fastadmm.method.penalised_bound import DualShare, bound_from_shares
from fastadmm.parties.face import FaceParty
from fastadmm.problem.bounded_models import reach_of
from fastadmm.problem.problem import Problem

Array = np.ndarray

#: Factor on the smoothing's width at a new centre: as a rule, and the least if smoothing causes far too much
#: of the gap. Between two centres there is a round.
_NARROWER, _NARROWEST = 0.3, 0.1


class ProximalMethod(ProximalCoordinator):
    """Proximal Newton sharing as a method."""

    name = "proximal"
    convergent = True
    family = "proximal"
    party_type: Any = FaceParty
    bounds_objective = True
    row_keys = (
        "witness",
        *("directions/messages", "directions/curvature", "model/total", "proposal/total", "metric"),
        "repaired",
        *Smoothing.row_keys,
    )

    SAVED = (
        *ProximalCoordinator.SAVED,
        *Smoothing.SAVED,
        *("bound", "within: _within", "exact_intercept: _intercept", "watch", "witness: witness_rows"),
    )

    def __init__(self, problem: Problem, engine: Engine, directions: int | None = None) -> None:
        super().__init__(problem, engine, directions)
        self.smoothing = None if problem.loss.smooth else Smoothing(problem, engine)
        self._intercept: Any = self.model.intercept
        self.watch: StallWatch = StallWatch()
        self._reach: float | None = None
        #: Best lower bound among models of bounded size so far, where nothing bounds the weights.
        self._within = -math.inf

    def prepare(self) -> Talk[float]:
        yield from self.start()
        return self.reopen()

    def reopen(self) -> float:
        start = self.evaluate()
        self._intercept = start.intercept
        if self.smoothing is not None:
            self.smoothing.begin(start.loss)
            self.solved = self.smoothing.smoothed()
            self.evaluate()
        return start.loss

    def begin_at(self, weights: Sequence[Array], intercept: Any) -> None:
        """Let the first round begin at the parties' weights, each of shape (d,) and in its set."""
        self.model.intercept = intercept
        start = self.add_start(*self._parts(weights))
        if self.smoothing is not None:
            start = self.primal_of(self.problem, self.model)
        self._intercept = start.intercept
        if self.smoothing is not None:
            value = start.loss + sum(
                party.penalty.value(party.weights(self.coefficients(m)))
                for m, party in enumerate(self.parties)
            )
            if self.smoothing.begin_near(value):
                self.solved = self.smoothing.smoothed()
                self.evaluate()

    def _parts(self, weights: Sequence[Array]) -> tuple[Sequence[FaceParty], Sequence[Array]]:
        """The coordinator's parts in this process, and their weights."""
        return self.parties, weights

    def _refine(self, smoothing: Smoothing, objective: float) -> None:
        """Smooth about the gradient at the model where smoothing causes too much of the gap."""
        z = self.problem.offset + self.model.intercept + self.model.total
        u = smoothing.gradient(z)
        # Where nothing is proved, the objective itself is the gap: no loss with kinks is negative.
        excess = smoothing.excess(z, u, min(self.gap, objective))
        if excess > 1.0:
            smoothing.move(u, max(_NARROWER / excess, _NARROWEST))
            self.solved = smoothing.smoothed()

    def round(self) -> Talk[Measured]:
        problem = self.problem
        self.asks_sizes = self._bounds_sizes
        answers = yield from self.exchange()
        shares = [DualShare.read(answer) for answer in answers]
        self.raise_bound(bound_from_shares(problem, self.sent, shares, self.engine), self.sent)
        primal = self.primal_of(problem, self.model, self._intercept)
        self._intercept = primal.intercept
        objective = primal.loss + sum(float(penalty) for penalty in self.penalties)
        within = self._bound_within(answers, shares)
        if within > self._within and problem.party_regularizers[0].shares == (0.0, 0.0):
            self._within, self.witness = within, np.array(self.sent).ravel()
        self.gap = max(objective - max(self.bound, within), 0.0)
        if self.smoothing is not None:
            self._refine(self.smoothing, objective)
        self.watch.stalls(self.gap)
        self.patient = self.watch.slow
        yield from self.propose()
        squared = sum(float(answer["squared"]) for answer in answers)
        return self._measured(objective, self.bound, squared, squared, bound_within=within)

    def raise_bound(self, bound: float, u: Array) -> None:
        if self._within == -math.inf:
            super().raise_bound(bound, u)
        else:  # hardly anything is proved among all models: the final proof is about bounded ones
            self.bound = max(self.bound, bound)

    @property
    def _bounds_sizes(self) -> bool:
        """Whether what is proved among models of bounded size may count."""
        return self.problem.party_regularizers[0].shares[0] == 0.0 or self.watch.n_stalls > 0

    def _bound_within(self, answers: Answers, proved: Sequence[DualShare]) -> float:
        """Lower bound among models of bounded size, where no square and no set bounds some parties' weights.

        It counts while the model is one of these. A norm bounds weights too. But of columns that are large
        for their lambda, what rounding leaves of the gradient outweighs it, so where that bound stalls this
        one counts.
        """
        if not self._bounds_sizes or all("excess" not in answer for answer in answers):
            return -math.inf
        if self._reach is None:  # no cached property: that locks out workers which are threads
            self._reach = reach_of(self.problem, self.engine)
        reach = self._reach
        if self.heaviest > reach:
            return -math.inf
        shares = [
            DualShare(1.0, reach * float(answer["excess"]), 0.0) if "excess" in answer else share
            for answer, share in zip(answers, proved)
        ]
        return bound_from_shares(self.problem, self.sent, shares, self.engine)

    @property
    def intercept(self) -> Any:
        return self._intercept

    def final_arguments(self, m: int) -> dict[str, Any]:
        return {"coefficients": self.coefficients(m)}

    @property
    def total(self) -> Array:
        return self.model.total

    def weight_norms(self) -> list[float]:
        return [float(length) for length in self.lengths]

    def place(self, count: int) -> Array:
        return self.shared.store.place(count, self.shared.most)

r"""Proximal Newton sharing of wide tables in one process: columns instead of directions.

With one direction per party and round, a run takes as many rounds as there are free weights: in a wide table
about as many as rows. If the parties are in this process, a direction may be a single column. In each round a
party adds the columns that a step along the gradient moves most, and the coordinator finds the best weights
of all columns so far (:mod:`fastadmm.coordinator.proximal.predictor_newton`). The gradient with the best
bound for these columns is sent in the next round, as in any working set method; there are about ten rounds.
As with directions, the parties prove a bound in every round.

Columns do not travel: no call of the table asks for them. If there are more free weights than room, or the
problem over the columns is not solved, the run continues by directions from the model it has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fastadmm.conversation.exchange import Talk
from fastadmm.coordinator.certificate import PrimalValue
from fastadmm.coordinator.method import Measured
from fastadmm.coordinator.penalised_bound import DualShare, bound_from_shares
from fastadmm.coordinator.proximal.predictor_newton import Columns, minimise_over_columns
from fastadmm.coordinator.proximal.proximal import ProximalMethod
from fastadmm.engine.engine import Engine
from fastadmm.parties.face import FaceParty
from fastadmm.problem.problem import Problem

__all__ = ["FEW_COLUMNS", "MOST_COLUMNS", "MOST_ROWS", "WideProximalMethod", "goes_by_columns"]

Array = np.ndarray

#: Rows of a table that counts as wide, at most; columns of all parties, at most.
MOST_ROWS, MOST_COLUMNS = 1024, 2048

#: Columns with weight zero are kept, as they may be needed again, up to so many of all parties.
FEW_COLUMNS = 512

#: Columns that a party adds: at least, and in the first round of all parties as a share of the rows.
_LEAST, _FIRST = 10, 0.5

#: The columns' own problem is solved to this share of the gap, and of the objective where nothing is proved.
_ACCURACY, _UNPROVED = 0.05, 0.05

#: A round that lowers objective and gap by less than this share of the objective was the last by columns.
_ROUNDING = 1e-15


def goes_by_columns(problem: Problem, engine: Engine) -> bool:
    """Whether a problem whose parties are in this process is one for columns."""
    if not problem.convex or problem.n_outputs > 1:
        return False
    widths, rows = sum(block.shape[1] for block in problem.blocks), problem.n_samples
    few = not engine.shares_rows and rows <= MOST_ROWS and rows < widths
    norms = all(regularizer.shares[0] > 0.0 for regularizer in problem.party_regularizers)
    sets = all(
        math.isinf(own.radius) and own.bounds[0] <= 0.0 <= own.bounds[1] for own in problem.party_constraints
    )
    return few and norms and sets


class WideProximalMethod(ProximalMethod):
    """Rounds by columns, and by directions from where there are too many."""

    def __init__(self, problem: Problem, engine: Engine, directions: int | None = None) -> None:
        super().__init__(problem, engine, directions)
        self.numbers: list[Array] | None = [np.zeros(0, dtype=np.int64) for _ in problem.blocks]
        self.length = 0.0

    def make_parties(self) -> list[FaceParty]:
        parties = super().make_parties()
        for party in parties:
            party.reason += "; in one process a direction may be a single column"
        return parties

    def begin_at(self, weights: Sequence[Array], intercept: Any) -> None:
        super().begin_at(weights, intercept)
        if self.numbers is not None:
            self.numbers = [self._in_use(m, x) for m, x in enumerate(weights)]

    def go_on_from(self, weights: Sequence[Array], intercept: Any, gradient: Array) -> None:
        super().go_on_from(weights, intercept, gradient)
        if self.numbers is not None:
            self._keep([self._in_use(m, x) for m, x in enumerate(weights)])

    def _in_use(self, m: int, x: Array) -> Array:
        """Columns of party m with weights, and what is at a kink only together with them."""
        return self.parties[m].penalty.regularizer.together(np.flatnonzero(x), len(x))

    def round(self) -> Talk[Measured]:
        if self.numbers is None:
            return (yield from super().round())
        coordinator, problem, engine = self.coordinator, self.problem, self.engine
        primal, weights = coordinator.primal, self.weights()
        room = (MOST_COLUMNS - sum(map(len, self.numbers))) // problem.n_parties
        answers = [
            party.offer_columns(primal.gradient, x, kept, self._most_new(x, room))
            for party, x, kept in zip(self.parties, weights, self.numbers)
        ]
        coordinator.sent = primal.gradient
        proved = bound_from_shares(problem, primal.gradient, [DualShare.read(a) for a in answers], engine)
        gains = proved > self.bound + _ROUNDING * abs(proved)
        self.raise_bound(proved, primal.gradient)
        exact = primal if self.smoothing is None else self._exact()
        before = exact.loss + sum(p.penalty.value(x) for p, x in zip(self.parties, weights))
        columns = [
            Columns(party.penalty, answer["numbers"], party.block.columns(answer["numbers"], engine), x)
            for party, answer, x in zip(self.parties, answers, weights)
        ]
        goal = min(_ACCURACY * (before - self.bound), _UNPROVED * before)
        found = minimise_over_columns(
            problem, self.smoothing, columns, exact.intercept, goal, self.length, engine
        )
        self.length = found.length
        if self.smoothing is not None:
            coordinator.problem = self.smoothing.smoothed()
        self._move_to([own.weights for own in columns], found.intercept)
        if len(found.gradient):
            coordinator.repaired = found.gradient
            coordinator.primal = replace(coordinator.primal, gradient=found.gradient)
        exact = coordinator.primal if self.smoothing is None else self._exact()
        self._intercept = exact.intercept
        objective = exact.loss + float(coordinator.penalties.sum())
        coordinator.gap = max(objective - self.bound, 0.0)
        self._keep([own.numbers for own in columns])
        gains = gains or objective < before * (1.0 - _ROUNDING)
        if self.watch.stalls(coordinator.gap) or (self.watch.slow and not (gains and found.solved)):
            self.numbers = None
        squared = sum(float(answer["squared"]) for answer in answers)
        return self._measured(objective, self.bound, squared, squared)

    def _exact(self) -> PrimalValue:
        """The loss itself at the model."""
        coordinator = self.coordinator
        return coordinator.primal_of(self.problem, coordinator.model, self._intercept)

    def _most_new(self, x: Array, room: int) -> int:
        """Columns that a party may add to those of its weights: as many again."""
        first = int(_FIRST * self.problem.n_samples / self.problem.n_parties) if not x.any() else 0
        return max(0, min(max(_LEAST, first, int(np.count_nonzero(x))), room))

    def _keep(self, numbers: list[Array]) -> None:
        """Forget columns at zero where there are many; too many in use end the rounds by columns."""
        if sum(map(len, numbers)) > FEW_COLUMNS:
            numbers = [self._in_use(m, x) for m, x in enumerate(self.weights())]
        self.numbers = numbers if sum(map(len, numbers)) <= MOST_COLUMNS // 2 else None

    def export(self) -> dict[str, Any]:
        saved = super().export()
        if self.numbers is not None:
            counts = np.array([len(own) for own in self.numbers])
            numbers = np.concatenate(self.numbers).astype(np.int64)
            saved["columns"] = {"numbers": numbers, "counts": counts, "length": self.length}
        return saved

    def restore(self, saved: dict[str, Any]) -> None:
        super().restore(saved)
        self.numbers = None
        if "columns" in saved:  # not in runs that began without them
            numbers, counts = (np.array(saved["columns"][key], np.int64) for key in ("numbers", "counts"))
            widths = [block.shape[1] for block in self.problem.blocks]
            own = np.split(numbers, np.cumsum(counts)[:-1]) if len(counts) == len(widths) else []
            whole = len(own) and (counts >= 0).all() and counts.sum() == len(numbers)
            if not whole or any((k < 0).any() or (k >= d).any() for k, d in zip(own, widths)):
                raise ValueError("columns")
            self.numbers, self.length = own, float(saved["columns"]["length"])

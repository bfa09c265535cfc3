"""Rounds until a run stops, and what it leaves."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fastadmm.engine.engine import Stopped
from fastadmm.method.method import Saved
from fastadmm.proof.claim import Claim, Proof
from fastadmm.solver.history import RoundRecord, Status
from fastadmm.solver.run import Run

#: What is told each round's record.
Monitor = Callable[[RoundRecord], None]

#: Ends of a run whose last round is not proved to be good enough.
_UNPROVED = (Status.AT_ROUNDING, Status.MAX_ROUNDS, Status.TIME_LIMIT)


@dataclass
class SolveResult:
    """The trained model and how it came about. Shapes: each of weights (d_m,); intercept (C,)."""

    weights: list[np.ndarray]  # x_m of shape (d_m,) per party; of a multinomial model of shape (d_m, C)
    intercept: Any  # b, the exact minimiser for these weights; 0 where none is fitted
    status: Status  # why the solver stopped
    message: str  # the same in a sentence, with advice where it helps
    history: list[RoundRecord] = field(default_factory=list)
    kept: RoundRecord | None = None
    proof: Proof | None = None
    program: str = ""  # which program ran: pooled, or parties as between organisations
    hint: str = ""  # a line where the other would have been much faster
    exchanges: int = 0  # of parties, as between organisations; 0 pooled
    party_bytes: list[int] = field(default_factory=list)  # bytes of each party in these

    @property
    def record(self) -> RoundRecord:
        """The round that the returned model is of."""
        return self.history[-1] if self.kept is None else self.kept

    @property
    def objective(self) -> float:
        """F at the returned model, per mean loss."""
        return self.record.objective

    @property
    def gap(self) -> float:
        """Proved relative gap at the returned model; infinite where none is proved."""
        return math.inf if self.proof is None or self.proof.claim is Claim.CONTRADICTION else self.proof.gap

    @property
    def certified(self) -> bool:
        """Whether the gap that was asked for is proved, among all models."""
        return self.proof is not None and self.proof.claim is Claim.CERTIFIED

    @property
    def certified_within(self) -> bool:
        """Whether it is proved among bounded models only: :mod:`fastadmm.problem.bounded_models`."""
        return self.proof is not None and self.proof.claim is Claim.CERTIFIED_WITHIN

    @property
    def stationarity(self) -> float | None:
        """Relative stationarity of a non-convex problem at the returned model; None for a convex one."""
        return self.record.stationarity


def run_rounds(
    solver: Run, monitor: Monitor | None = None, should_stop: Callable[[], bool] | None = None
) -> SolveResult:
    """Run rounds of a prepared or restored solver until it stops.

    ``monitor`` and ``should_stop`` as in :func:`fastadmm.solver.solver.solve`.
    """
    history: list[RoundRecord] = []
    # A run that was stopped between its last round and its result has only the result left to make.
    record = solver.last_record
    status = solver.stop_reason(record) if record is not None else None
    if record is not None and status is not None:
        history.append(record)
    while status is None:
        solver.engine.should_stop = should_stop
        try:
            record = solver.round()
        except Stopped:
            if record is None:
                raise KeyboardInterrupt from None  # there is nothing yet to end with
            history = history or [record]
            status = Status.INTERRUPTED
            break
        finally:
            solver.engine.should_stop = None
        history.append(record)
        if monitor is not None:
            monitor(record)
        status = solver.stop_reason(record)
        if status is None and should_stop is not None and should_stop():
            status = Status.INTERRUPTED
    return ended(solver, status, history)


def ended(solver: Run, status: Status, history: list[RoundRecord]) -> SolveResult:
    """The result of a run that has stopped."""
    kept = solver.kept_model() if status is not Status.DIVERGED else None
    if kept is None:
        weights, intercept = [w.copy() for w in solver.party_weights()], solver.intercept
    else:
        weights, intercept, record = kept
        if status in (Status.CONVERGED, Status.STATIONARY) and record.round != history[-1].round:
            status = Status.EARLY_STOPPED  # what is proved of the last round is not proved of the kept one
    told, open_end = None if kept is None else kept[2], status is Status.INTERRUPTED
    proof = None if open_end else solver.proof_of(weights, intercept, kept is not None)
    if proof is not None and status in _UNPROVED and (told is None or told.validation is None):
        if proof.claim is Claim.CONTRADICTION:
            status = Status.CONTRADICTION
        elif proof.settled:
            status = Status.CONVERGED  # an earlier model is, and it is the one returned
    last = history[-1] if proof is None else told_by(proof, history[-1])
    message = solver.describe(status, last)
    if proof is not None and told is not None:
        told = told_by(proof, told)
    elif proof is not None:
        history = [*history[:-1], last]
    told_of: tuple[Any, ...] = solver.program(), solver.hint()
    if solver.traffic is not None:
        sent = solver.traffic.bytes_by_party(solver.engine.all_rows(solver.problem.n_samples))
        told_of = *told_of, solver.traffic.exchanges, sent
    return SolveResult(weights, intercept, status, message, history, told, proof, *told_of)


#: An attempt gains something if it leaves at most this share of the gap.
_GAIN = 0.5

#: So many attempts in a row that gain nothing are the last.
_MOST_IN_VAIN = 4


#: Claims that say nothing of bounded models.
_WITHOUT = (Claim.CERTIFIED, Claim.CONTRADICTION)


class Attempts(Saved):
    """Attempts of a run to prove what its rounds claim: they tell when the next one is worth its passes."""

    def __init__(self) -> None:
        self.least, self.idle, self.due, self.at_rounding = math.inf, 0, 0, False

    def failed(self, proof: Proof, n_rounds: int) -> None:
        """Take in a proof of less than was claimed."""
        gains = proof.left < _GAIN * self.least
        self.idle = 0 if gains else self.idle + 1
        self.least, self.due = min(self.least, proof.left), n_rounds + (1 << self.idle)
        # Less of it still leaves room for a better model.
        exceeds = proof.rounding > proof.asked * abs(proof.objective)
        self.at_rounding = proof.claim is Claim.AT_ROUNDING and exceeds

    @property
    def in_vain(self) -> bool:
        """Whether to go on gains nothing: only the rounding of the proof is left, or rounds are idle."""
        return self.at_rounding or self.idle >= _MOST_IN_VAIN

    def export(self) -> dict[str, Any]:
        return {key: float(value) for key, value in super().export().items()}


def told_by(proof: Proof, record: RoundRecord) -> RoundRecord:
    """A round's record with what is proved of its model."""
    within = None if proof.within is None or proof.claim in _WITHOUT else proof.within.gap
    within = None if within == math.inf else within
    gaps = (proof.gap, proof.gap_absolute) if proof.claim is not Claim.CONTRADICTION else (math.inf, math.inf)
    return replace(record, objective=proof.computed, gap=gaps[0], gap_absolute=gaps[1], gap_within=within)

"""Proofs that found less than the rounds had claimed, and when the next one is worth its passes."""

from __future__ import annotations

import math
from dataclasses import replace

from fastadmm.proof.claim import Claim, Proof
from fastadmm.solver.history import RoundRecord

#: An attempt gains something if it leaves at most this share of the gap.
_GAIN = 0.5

#: So many attempts in a row that gain nothing are the last.
_MOST_IN_VAIN = 4


#: Claims that say nothing of bounded models.
_WITHOUT = (Claim.CERTIFIED, Claim.CONTRADICTION)


class Attempts:
    """Attempts of a run to prove what its rounds claim."""

    def __init__(self) -> None:
        self.least, self.idle, self.due, self.at_rounding = math.inf, 0, 0, False

    def are_due(self, n_rounds: int) -> bool:
        """Whether a proof may be tried after this round."""
        return n_rounds >= self.due

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

    def export(self) -> dict[str, float]:
        """The state."""
        return {key: float(value) for key, value in vars(self).items()}

    def restore(self, saved: dict[str, float]) -> None:
        """Inverse of :meth:`export`."""
        self.least, self.idle, self.due = float(saved["least"]), int(saved["idle"]), int(saved["due"])
        self.at_rounding = bool(saved["at_rounding"])


def told_by(proof: Proof, record: RoundRecord) -> RoundRecord:
    """A round's record with what is proved of its model."""
    within = None if proof.within is None or proof.claim in _WITHOUT else proof.within.gap
    within = None if within == math.inf else within
    gaps = (proof.gap, proof.gap_absolute) if proof.claim is not Claim.CONTRADICTION else (math.inf, math.inf)
    return replace(record, objective=proof.computed, gap=gaps[0], gap_absolute=gaps[1], gap_within=within)

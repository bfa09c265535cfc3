"""What a proof says: the claim, its numbers, and how they compare with what was asked."""

import math
from dataclasses import astuple, dataclass
from enum import StrEnum
from typing import Any, Self

import numpy as np


class Claim(StrEnum):
    """What is proved of a model."""

    CERTIFIED = "certified"  # the gap that was asked for, among all models
    CERTIFIED_WITHIN = "certified_within"  # the same among models of bounded size
    AT_ROUNDING = "at_rounding"  # the rounding of the proof exceeds what was asked
    UNCERTIFIED = "uncertified"
    CONTRADICTION = "contradiction"  # a defect of this program or of the machine


def relative_gap(absolute: float, objective: float, bound: float) -> float:
    """Upper bound of ``(F - F*) / |F*|``, where F* is at least a positive bound; else of ``/ |F|``."""
    if absolute == 0.0:
        return 0.0
    if bound > 0.0:
        return absolute / bound
    return absolute / -objective if objective < 0.0 else math.inf


@dataclass(frozen=True)
class Within:
    """The bound among models in which no column contributes more than R of its standard deviations."""

    reach: float
    bound: float
    gap: float


@dataclass(frozen=True)
class Proof:
    """What is proved of a model's weights and intercept as they are written; numbers per mean loss.

    The gaps can be less than what objective and bound differ by: in both is what rounding leaves open of F.
    """

    claim: Claim
    asked: float  # relative gap that was to be proved; 0 for none
    computed: float  # F as it is computed
    objective: float  # F, rounded up
    bound: float  # lower bound of F at every model, rounded down; minus infinity where there is none
    gap: float  # upper bound of (F - F*) / F*
    gap_absolute: float  # upper bound of F - F*
    rounding: float  # how much of that the arithmetic of the proof may have added
    within: Within | None = None  # where nothing bounds the weights, or hardly
    dual: np.ndarray | None = None  # the dual vector, of shape (N,) or (C N,), summed scaling
    reason: str = ""  # what contradicts what

    @property
    def settled(self) -> bool:
        """Whether no other dual vector is needed."""
        return self.claim in (Claim.CERTIFIED, Claim.CERTIFIED_WITHIN, Claim.CONTRADICTION)

    def above(self, floor: float) -> "Proof":
        """This proof with another lower bound, if that is higher: that of the loss, whatever predicts."""
        if self.reason or not floor > self.bound:
            return self
        left = max(self.objective - floor, 0.0)
        numbers = self.objective, floor, relative_gap(left, self.objective, floor), left, self.rounding
        return proof_of(self.asked, self.computed, numbers, self.within, self.dual, self.reason)

    def better(self, other: Self) -> Self:
        """Of two proofs of one model the one that says more; a contradiction outweighs both."""
        return max(self, other, key=lambda proof: (proof.claim is Claim.CONTRADICTION, -proof.left))

    @property
    def left(self) -> float:
        """The gap that is left, per mean loss, among all models or bounded ones."""
        within = -math.inf if self.within is None else self.within.bound
        return min(self.gap_absolute, self.objective - within)


def proof_of(
    asked: float,
    computed: float,
    numbers: tuple[float, float, float, float, float],
    within: Within | None,
    dual: np.ndarray | None,
    reason: str,
) -> Proof:
    """A proof with the claim that its numbers make."""
    objective, bound, gap, left, rounding = map(float, numbers)
    if not math.isfinite(objective):
        objective, bound, gap, left = math.inf, -math.inf, math.inf, math.inf
    if reason:
        claim = Claim.CONTRADICTION
    elif gap <= asked:
        claim = Claim.CERTIFIED
    elif within is not None and within.gap <= asked:
        claim = Claim.CERTIFIED_WITHIN
    elif asked > 0.0 and left - rounding <= asked * max(abs(objective) - rounding, 0.0):
        claim = Claim.AT_ROUNDING
    else:
        claim = Claim.UNCERTIFIED
    return Proof(claim, asked, float(computed), objective, bound, gap, left, rounding, within, dual, reason)


_NUMBERS = ("asked", "computed", "objective", "bound", "gap", "gap_absolute", "rounding")


def exported(proof: Proof) -> dict[str, Any]:
    """Claim, reason, numbers and the dual vector, for a run that another process ends."""
    within = proof.within
    return {
        "claim": str(proof.claim),
        "reason": proof.reason,
        "numbers": np.array([getattr(proof, key) for key in _NUMBERS]),
        **({} if within is None else {"within": np.array(astuple(within))}),
        **({} if proof.dual is None else {"dual": proof.dual}),
    }


def restored(saved: dict[str, Any]) -> Proof:
    """Inverse of :func:`exported`."""
    numbers = dict(zip(_NUMBERS, map(float, saved["numbers"]), strict=True))
    within = Within(*map(float, saved["within"])) if "within" in saved else None
    dual, reason = saved.get("dual"), str(saved["reason"])
    return Proof(Claim(saved["claim"]), **numbers, within=within, dual=dual, reason=reason)

"""What a fit claims, in one form whatever it comes from."""

import math
from dataclasses import dataclass
from typing import Any

from prove.draws import Fit
from prove.exact import Exact, Point
from prove.references import reach_of_data

__all__ = ["Stated", "stated"]


@dataclass(frozen=True)
class Stated:
    """A model and what is claimed of it.

    Of bounded models nothing is claimed where ``within_bound`` is minus infinity; ``reach`` is the largest
    size of each column's weight among them.
    """

    fit: Fit
    point: Point
    claim: str
    objective: float = math.inf
    bound: float = -math.inf
    gap: float = math.inf
    gap_absolute: float = math.inf
    within_bound: float = -math.inf
    within_gap: float = math.inf
    reach: list[Any] | None = None


def stated(proof: Any, fit: Fit, point: Point, exact: Exact) -> Stated:
    """The claims of the prover; a run that it says nothing of diverged."""
    if proof is None:
        return Stated(fit, point, "unproved")
    numbers = (proof.objective, proof.bound, proof.gap, proof.gap_absolute)
    within: tuple[Any, ...] = ()
    if proof.within is not None:
        within = proof.within.bound, proof.within.gap, reach_of_data(exact, proof.within.reach)
    return Stated(fit, point, str(proof.claim), *numbers, *within)

"""What a fit claims, in one form whatever it comes from."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from fastadmm.solver.history import Status
from mpmath import mp, mpf

from prove.draws import Fit
from prove.exact import Exact, Point
from prove.references import reach_of_data

__all__ = ["Stated", "stated"]

#: What a column may contribute among bounded models, of what the heaviest does, where no proof says it.
_OF_HEAVIEST = 1000


@dataclass(frozen=True)
class Stated:
    """A model and what is claimed of it.

    Of bounded models nothing is claimed where ``within_bound`` is minus infinity; ``reach`` is the largest
    size of each column's weight among them. Where rounding is no part of a claim no digit may be wrong.
    """

    fit: Fit
    point: Point
    claim: str
    objective: float
    bound: float
    gap: float
    gap_absolute: float
    within_bound: float = -math.inf
    within_gap: float = math.inf
    reach: list[Any] | None = None
    rounded: bool = True
    notes: list[str] = field(default_factory=list)


def stated(result: Any, fit: Fit, exact: Exact) -> Stated:
    """The claims of a result."""
    point = Point.of_model(result.weights, result.intercept)
    proof = getattr(result, "proof", None)
    if proof is not None:
        return proved(proof, fit, point, exact)
    if hasattr(result, "proof"):  # a run that proves nothing: it diverged
        return Stated(fit, point, "unproved", math.inf, -math.inf, math.inf, math.inf)
    return _from_record(result, fit, point, exact)


def proved(proof: Any, fit: Fit, point: Point, exact: Exact) -> Stated:
    """The claims of the prover."""
    within, notes = proof.within, []
    reach = None
    if within is not None:
        reach = reach_of_data(exact, getattr(within, "reach", None))
    return Stated(
        fit, point, str(proof.claim), float(proof.objective), float(proof.bound), float(proof.gap),
        float(proof.gap_absolute), *_of_bounded(within), reach, True, notes,
    )  # fmt: skip


def _of_bounded(within: Any) -> tuple[float, float]:
    return (-math.inf, math.inf) if within is None else (float(within.bound), float(within.gap))


def _from_record(result: Any, fit: Fit, point: Point, exact: Exact) -> Stated:
    """What a run without a proof says in its last record; rounding is not part of that."""
    record = result.record
    converged = result.status is Status.CONVERGED
    claim = "uncertified"
    if converged:
        claim = "certified" if record.gap_within is None else "certified_within"
    objective = float(record.objective)
    bound = objective - record.gap_absolute if math.isfinite(record.gap_absolute) else -math.inf
    if record.gap_within is None:
        return Stated(fit, point, claim, objective, bound, record.gap, record.gap_absolute, rounded=False)
    return Stated(
        fit, point, claim, objective, bound, record.gap, record.gap_absolute,
        objective / (1.0 + record.gap_within), record.gap_within, _reach_of_answer(exact, point), False,
    )  # fmt: skip


def _reach_of_answer(exact: Exact, point: Point) -> list[Any]:
    """1000 times what the heaviest column contributes: weight times root mean square."""
    sizes = []
    for ints, exponent in exact.columns:
        mean = mpf(int(np.sum(ints * ints))) / exact.n
        sizes.append(mp.sqrt(mp.ldexp(mean, 2 * exponent)))
    heaviest = max(abs(v) * s for x in point.x for v, s in zip(x, sizes))
    return [_OF_HEAVIEST * heaviest / s * (1 - mpf(10) ** -9) if s else mp.inf for s in sizes]

r"""The best point of the segment from the model to the proposal, regularisers known at their kinks.

Along it every regulariser is a norm that parties have evaluated at its
kinks, so that it is linear between, plus a square that inner products give.
The sum with the loss is convex in the position: golden section finds its least.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fastadmm.coordinator.proximal.hull import HullPoint
from fastadmm.coordinator.proximal.parts import lifted
from fastadmm.engine.engine import Engine
from fastadmm.problem.problem import Problem

__all__ = ["SegmentPenalty", "best_position"]

Array = np.ndarray

_RATIO = (math.sqrt(5.0) - 1.0) / 2.0
_STEPS = 40


@dataclass(frozen=True)
class SegmentPenalty:
    """One party's regulariser along the segment.

    Attributes
    ----------
    positions, norms : ndarray of shape (n_kinks + 1,)
        Kinks, from 0, and the norm there.
    square : tuple of float
        Squared norm of the weights as a polynomial: constant, linear, quadratic coefficient.
    first, second : float
        Factors of the norm and of half the square.
    """

    positions: Array
    norms: Array
    square: tuple[float, float, float]
    first: float
    second: float

    def value(self, t: float) -> float:
        """The regulariser at a position."""
        a, b, c = self.square
        norm = float(np.interp(t, self.positions, self.norms))
        return self.first * norm + 0.5 * self.second * (a + t * (b + t * c))


def best_position(
    problem: Problem, model: HullPoint, proposal: HullPoint, penalties: list[SegmentPenalty], engine: Engine
) -> float:
    """Position of least objective, at most where the first penalty ends.

    Parameters
    ----------
    problem : Problem
    model, proposal : HullPoint
        Positions 0 and 1.
    penalties : list of SegmentPenalty
        Of all parties.
    engine : Engine

    Returns
    -------
    float
        0 where nothing is better than the model.
    """
    end = min(float(penalty.positions[-1]) for penalty in penalties)
    n = problem.n_samples
    base = problem.offset + lifted(model.intercept, n) + model.total
    along = proposal.total - model.total + lifted(proposal.intercept - model.intercept, n)
    scratch = np.empty_like(base)

    def value(t: float) -> float:
        loss = problem.loss.evaluate(base + t * along, problem.y, problem.weight, scratch, engine)
        total = loss + sum(penalty.value(t) for penalty in penalties)
        return total if math.isfinite(total) else math.inf

    if not end > 0.0:
        return 0.0
    low, high = 0.0, end
    inner, outer = end - _RATIO * end, _RATIO * end
    at_inner, at_outer = value(inner), value(outer)
    for _ in range(_STEPS):
        if at_inner <= at_outer:
            high, outer, at_outer = outer, inner, at_inner
            inner = high - _RATIO * (high - low)
            at_inner = value(inner)
        else:
            low, inner, at_inner = inner, outer, at_outer
            outer = low + _RATIO * (high - low)
            at_outer = value(outer)
    best = min((value(0.0), 0.0), (value(end), end), (at_inner, inner), (at_outer, outer))
    return best[1]

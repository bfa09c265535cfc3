"""The hull of the parties' points in coefficients of directions, with the Hessian that all searches share.

What :func:`fastadmm.coordinator.proximal.hull.minimise_over_hull` minimises, for one predictor per sample: no
message of a point is formed, and a step is one pass over the messages of directions.
"""

from __future__ import annotations

import math

import numpy as np

from fastadmm.coordinator.proximal.chord_newton import Passes, Place
from fastadmm.coordinator.proximal.hull import (
    MAX_MOVE,
    RIDGES,
    ROUNDING,
    WORK,
    HullPoint,
    bases_of,
    differences,
)
from fastadmm.coordinator.proximal.weights_program import solve_weights_program

__all__ = ["minimise_over_shared_hull"]

Array = np.ndarray

_MAX_STEPS = 10

#: A step keeps half of what its slope promises where the Hessian is right; from here on it is not.
_RIGHT = 0.4


def minimise_over_shared_hull(
    passes: Passes,
    rows: Array,
    linear: Array,
    square: Array,
    owner: Array,
    start: Array,
    known: HullPoint,
    intercept: float,
    tolerance: float,
) -> tuple[HullPoint, float]:
    """Newton's method from weights of points; never returns a point with a larger value of the model.

    Parameters
    ----------
    passes : Passes
    rows : ndarray of shape (P, K)
        The points in coefficients of directions.
    linear : ndarray of shape (P,)
    square : ndarray of shape (P, P)
        Of the regularisers' model at weights of points, as in
        :class:`fastadmm.coordinator.proximal.hull.HullModel`.
    owner : ndarray of int, shape (P,)
        Party of each point; the weights of a party sum to one.
    start : ndarray of shape (P,)
        Weights.
    known : HullPoint
        Whose sum of messages is known, in coefficients of directions.
    intercept : float
        At the start.
    tolerance : float
        Stop when a step promises less than this. Summed scaling.

    Returns
    -------
    HullPoint
        In coefficients of directions.
    float
        The value of the model.
    """
    lead, k = passes.lead, len(owner)
    base = bases_of(start, owner)
    apart = rows - rows[base]
    group, lower = np.append(owner, [-1] * lead), np.append(np.zeros(k), [-math.inf] * lead)
    limit = int(min(3 * k + 10, max(20.0, WORK / k**3)))

    def value(place: Place, c: Array) -> float:
        found = place.loss + float(linear @ c) + 0.5 * float(c @ square @ c)
        return found if math.isfinite(found) else math.inf

    c, here = start, passes.begin(known, start @ rows - known.coefficients, intercept)
    fresh, current = passes.prepare(here), value(here, c)
    for _ in range(_MAX_STEPS):
        own = linear + square @ c
        slope = np.append(apart @ here.products + own - own[base], here.rises)
        hessian = passes.system(apart.T, last=True)
        hessian[:k, :k] += differences(square, base)
        for ridge in RIDGES:
            step = solve_weights_program(
                hessian, slope, np.append(c, np.full(lead, here.intercept)), lower, group, limit, ridge
            )
            size = float(np.abs(step[:k]).max(initial=0.0))
            if size <= MAX_MOVE:
                break
        if not math.isfinite(size):
            break
        if size > MAX_MOVE:
            step *= MAX_MOVE / size
        decrease = -float(slope @ step)
        if not decrease > 0.0:
            break
        move, rise = step[:k] @ apart, float(step[k:].sum())
        trial, to = passes.step(here, move, rise), c + step[:k]
        following = value(trial, to)
        if decrease <= ROUNDING * abs(current) and following <= current * (1.0 + ROUNDING):
            here, c, current = trial, to, following  # the value cannot tell any more, the gradient can
            break
        if not following <= current - 1e-4 * decrease:
            if not fresh:
                fresh = passes.refresh(here)
                continue
            ahead = float(linear @ step[:k]) + float(c @ square @ step[:k])
            length = passes.best_length(here, trial, ahead, float(step[:k] @ square @ step[:k]))
            trial = passes.step(here, length * move, length * rise)
            to = c + length * step[:k]
            following = value(trial, to)
        if not following < current:
            break
        right = current - following >= _RIGHT * decrease
        (here, c, current), fresh = (trial, to, following), False
        if 0.5 * decrease <= tolerance:
            break
        if not right:
            fresh = passes.refresh(here)
    found = c @ rows
    return HullPoint(found, here.intercept, passes.shared.combined(found)), current

r"""Minimise the objective over combinations of the parties' points, from messages and scalars alone.

Party m's points :math:`p_k` have messages :math:`v_k = D_m p_k`. For weights
:math:`c \ge 0` that sum to one over a party, convexity of :math:`\Omega` gives

.. math:: \lambda W R_m\Bigl(\sum_k c_k p_k\Bigr) \le \sum_k c_k\, \lambda W \alpha\, \Omega(p_k)
          + \tfrac{\lambda W \beta}2 \sum_{jk} c_j c_k \langle p_j, p_k\rangle,

so that the loss plus the right side is an upper bound of F that the
coordinator can minimise (simplicial decomposition). It is exact at every point
itself, and where points share the signs of their weights. Newton's method; each step
is a small quadratic program.

Points are coefficients of directions, and the Hessian is the one that all searches share: no message of a
point is formed, and a step is one pass over the messages of directions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastadmm.coordinator.proximal.chord_newton import RIDGE, Passes, Place
from fastadmm.coordinator.proximal.parts import HullPoint

Array = np.ndarray

_MAX_STEPS = 10

#: Multiplications that the systems of one step may take; cut short, it is a descent direction still.
_WORK = 2e8

#: Decreases below this share of the value are lost in its rounding.
_ROUNDING = 1e-13

#: Most that a weight moves in a step beyond the hull, where nothing bounds it.
_MAX_MOVE = 30.0

#: A step that promises less than this share of what was gained is not taken.
_LEFT = 1e-2

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
    intercept: Any,
    tolerance: float,
    before: float,
) -> tuple[HullPoint, float, Array]:
    """Newton's method from weights of points; never returns a point with a larger value of the model.

    Returns: the point, the value of the model there, and the weights of points, of shape (P,).
    Shapes: rows (P, K); linear, owner, start (P,); square (P, P); intercept (C,).
    Scaling: tolerance summed scaling.
    """
    search = _Search(passes, rows, linear, square, owner, start)
    (here, fresh), least = search.begin(start, known, intercept), 0.0
    for _ in range(_MAX_STEPS):
        step, decrease = search.step(here.place, here.c)
        if not 0.5 * decrease > least:
            break
        trial = search.advance(here, step)
        if decrease <= _ROUNDING * abs(here.value) and trial.value <= here.value * (1.0 + _ROUNDING):
            here = trial  # the value cannot tell any more, the gradient can
            break
        if not trial.value <= here.value - 1e-4 * decrease:
            if not fresh:
                fresh = passes.refresh(here.place)
                continue
            step *= search.best_length(here, trial)
            trial = search.advance(here, step)
        if not trial.value < here.value:
            break
        right = here.value - trial.value >= _RIGHT * decrease
        here, fresh = trial, False
        if passes.expands:
            least = max(tolerance, _LEFT * (before - here.value))
        if 0.5 * decrease <= max(tolerance, least):
            break
        if not right:
            fresh = passes.refresh(here.place)
    c, place = here.c @ rows, here.place
    return passes.kept(c, place if place.known else passes.there(c, place.intercept)), here.value, here.c


@dataclass
class _Point:
    """Weights of points, the place there, and the value of the model."""

    c: Array
    place: Place
    value: float


class _Search:
    """One hull; ``start`` says which point of each party the others are taken from."""

    def __init__(
        self, passes: Passes, rows: Array, linear: Array, square: Array, owner: Array, start: Array
    ) -> None:
        self.passes, self.rows, self.linear, self.square = passes, rows, linear, square
        lead, k = passes.lead, len(owner)
        self.k, self.base = k, _bases_of(start, owner)
        self.apart = rows - rows[self.base]
        self.group = np.append(owner, np.full(lead, -1))
        self.lower = np.append(np.zeros(k), np.full(lead, -math.inf))
        self.limit = int(min(3 * k + 10, max(20.0, _WORK / k**3)))

    def begin(self, c: Array, known: HullPoint, intercept: Any) -> tuple[_Point, bool]:
        """The start, and whether the Hessian is that of this point."""
        place = self.passes.at(known)
        place = self._there(c, place, c @ self.rows - known.coefficients, intercept - place.intercept)
        return self.at(place, c), self.passes.prepare(place)

    def _there(self, c: Array, place: Place, move: Array, rise: Any) -> Place:
        """The place of weights of points, ``move`` and ``rise`` from another."""
        passes = self.passes
        if passes.quadratic or not (np.any(rise) or move.any()):
            return passes.step(place, move, rise)
        return passes.there(c @ self.rows, place.intercept + rise)

    def advance(self, here: _Point, step: Array) -> _Point:
        """The point a step in weights and intercept further."""
        c, move = here.c + step[: self.k], step[: self.k] @ self.apart
        return self.at(self._there(c, here.place, move, self.passes.rise_of(step[self.k :])), c)

    def at(self, place: Place, c: Array) -> _Point:
        """A point, its place known."""
        found = place.loss + float(self.linear @ c) + 0.5 * float(c @ self.square @ c)
        return _Point(c, place, found if math.isfinite(found) else math.inf)

    def step(self, place: Place, c: Array) -> tuple[Array, float]:
        """Newton's step in weights and intercept, and what its slope promises; that is NaN for none."""
        from fastadmm.kernels.weights_program import weights_program

        k, base, lead = self.k, self.base, self.passes.lead
        own = self.linear + self.square @ c
        slope = np.append(self.apart @ place.products + own - own[base], place.rises)
        hessian = self.passes.system(self.apart.T, last=True)
        rows = self.square - self.square[base]  # of points' differences to their bases
        hessian[:k, :k] += rows - rows[:, base]
        point = np.append(c, np.ravel(place.intercept)[:lead])
        step = np.zeros(len(slope))
        weights_program(hessian, slope, point, self.lower, self.group, self.limit, RIDGE, step)
        size = float(np.abs(step[:k]).max(initial=0.0))
        if size > _MAX_MOVE:
            step *= _MAX_MOVE / size
        return step, -float(slope @ step) if math.isfinite(size) else math.nan

    def best_length(self, here: _Point, trial: _Point) -> float:
        """Length between 0 and 1 of least value."""
        step = trial.c - here.c
        ahead = float(self.linear @ step) + float(here.c @ self.square @ step)
        return self.passes.best_length(here.place, trial.place, ahead, float(step @ self.square @ step))


def _bases_of(c: Array, owner: Array) -> Array:
    """For each point the one of its party with the largest weight.

    Weights of a party sum to one, so that only differences of points count. They are taken before
    products are, because those of points that lie close together differ in their last digits only.

    Shapes: c, owner (K,).
    """
    base = np.empty(len(owner), dtype=np.int64)
    for m in np.unique(owner):
        mine = np.flatnonzero(owner == m)
        base[mine] = mine[np.argmax(c[mine])]
    return base

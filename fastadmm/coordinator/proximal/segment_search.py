r"""The best point of the segment from the model to the proposal; regularisers are known at their kinks.

Along it every regulariser is a norm that parties have evaluated at its
kinks, so that it is linear between, plus a square that inner products give.
The sum with the loss is convex in the position. Its minimiser is found inside a bracket: a parabola stands
for the loss, from the change of its slope between the last two positions, while the regularisers keep their
kinks. So a minimiser at a kink is found as fast as any other, with a few evaluations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fastadmm.coordinator.proximal.parts import HullPoint, difference
from fastadmm.engine.engine import Engine
from fastadmm.method.certificate import inner
from fastadmm.method.class_certificate import shifted
from fastadmm.problem.problem import Problem

Array = np.ndarray

#: Positions closer than this share of the segment are one: norms there differ by rounding, and so do ends.
_SAME = 1e-9

#: A bracket of so many such lengths is closed.
_CLOSE = 1.5

_MAX_STEPS = 80


@dataclass(frozen=True)
class SegmentPenalty:
    """One party's regulariser along the segment. Shapes: positions, norms (n_kinks + 1,)."""

    positions: Array  # of shape (n_kinks + 1,): kinks, from 0, and the norm there
    norms: Array  # of shape (n_kinks + 1,): kinks, from 0, and the norm there
    square: tuple[float, float, float]
    first: float  # factors of the norm and of half the square
    second: float  # factors of the norm and of half the square


class _Pieces:
    """The sum of all regularisers: its slope between kinks, and what that rises by. Shapes: ends (n + 1,)."""

    def __init__(self, penalties: list[SegmentPenalty], end: float) -> None:
        at = np.unique(np.concatenate([p.positions for p in penalties]))
        at = at[at < end * (1.0 - _SAME)]
        apart = np.append(True, np.diff(at) > _SAME * end)
        self.ends = np.append(at[apart], end)
        norms = np.zeros(len(self.ends))
        self._linear = self._rise = 0.0
        for p in penalties:
            norms += p.first * np.interp(self.ends, p.positions, p.norms)
            self._linear += 0.5 * p.second * p.square[1]
            self._rise += p.second * p.square[2]
        self._slopes = np.maximum.accumulate(np.diff(norms) / np.diff(self.ends))

    def slopes(self, t: float) -> tuple[float, float]:
        """To the left and to the right of a position; infinite beyond the ends."""
        own = np.concatenate([[-math.inf], self._slopes, [math.inf]])
        left, right = (int(np.searchsorted(self.ends, t, side)) for side in ("left", "right"))
        smooth = self._linear + self._rise * t
        return float(own[left]) + smooth, float(own[right]) + smooth

    def best(self, t: float, slope: float, rise: float) -> float:
        """Least of the sum with a parabola of given slope at a position, and rise of the slope."""
        rise, before = rise + self._rise, slope - rise * t + self._linear
        after = before + rise * self.ends[1:] + self._slopes
        piece = int(np.argmax(after >= 0.0)) if after[-1] >= 0.0 else len(after) - 1
        low, high = float(self.ends[piece]), float(self.ends[piece + 1])
        if not rise > 0.0:
            return low if after[piece] >= 0.0 else high
        return min(max(-(before + float(self._slopes[piece])) / rise, low), high)


def _slopes(
    problem: Problem,
    model: HullPoint,
    proposal: HullPoint,
    engine: Engine,
    known: tuple[Array | None, Array | None],
) -> Callable[[float], float]:
    """Slope of the loss at a position; infinite where it overflows. Gradients at 0 and 1 may be known."""
    n, loss, y, weight = problem.n_samples, problem.loss, problem.y, problem.weight
    along, gradient = difference(problem, proposal, model, engine), np.empty_like(model.total)
    if problem.n_outputs == 1:
        total, z, messages = np.empty(n), np.empty(n), along[np.newaxis]
        begin = model.total, problem, model.intercept, total, z, gradient

        def fresh(t: float) -> float:
            return float(loss.advance(messages, np.array([t]), *begin, engine)[1][0])

    else:
        base = shifted(problem.offset, model.intercept) + model.total

        def fresh(t: float) -> float:
            loss.evaluate(base + t * along, y, weight, gradient, engine)
            return inner(gradient, along, engine, problem.n_outputs)

    def slope(t: float) -> float:
        given = known[0] if t == 0.0 else known[1] if t == 1.0 else None
        found = fresh(t) if given is None else inner(given, along, engine, problem.n_outputs)
        return found if math.isfinite(found) else math.inf

    return slope


def best_position(
    problem: Problem,
    model: HullPoint,
    proposal: HullPoint,
    penalties: list[SegmentPenalty],
    engine: Engine,
    known: tuple[Array | None, Array | None] = (None, None),
) -> float:
    """Position of least objective, at most where the first penalty ends.

    Returns: 0 where nothing is better than the model.
    Shapes: each of known (N,).
    """
    end = min(float(penalty.positions[-1]) for penalty in penalties)
    if not end > 0.0:
        return 0.0
    slope = _slopes(problem, model, proposal, engine, known)
    pieces = _Pieces(penalties, end)
    t, here = end, slope(end)
    if here + pieces.slopes(end)[0] <= 0.0:
        return end
    low, high, before, there = 0.0, end, 0.0, slope(0.0)
    if there + pieces.slopes(0.0)[1] >= 0.0:
        return 0.0
    widths = [math.inf, math.inf]
    for _ in range(_MAX_STEPS):
        rise = (here - there) / (t - before)
        following = pieces.best(t, here, rise) if math.isfinite(rise) else math.nan
        if not low < following < high or high - low > 0.5 * widths[-2]:
            following = 0.5 * (low + high)
        widths.append(high - low)
        # Where one side is far steeper a secant hardly moves: the bracket alone says what is known.
        if abs(following - t) < _SAME * end and following not in pieces.ends:
            following = t + math.copysign(_SAME * end, following - t)
        before, there = t, here
        t, here = following, slope(following)
        left, right = pieces.slopes(t)
        if here + right < 0.0:
            low = t
        elif here + left > 0.0:
            high = t
        else:
            return t
        if high - low <= _CLOSE * _SAME * end:
            return t
    return t

"""x-updates by coordinate descent on the Gram matrix, for kinks and bounds; independent of N."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.engine.singular import descent_solver
from fastadmm.parties.xupdate.base import PenalisedUpdate
from fastadmm.parties.xupdate.face_step import FACTORISES

#: Violation of the optimality conditions that is left, relative to the problem's scale.
_TOLERANCE = 1e-12

#: Passes over the columns before nearly collinear ones are helped along.
_MAX_PASSES = 100

#: Attempts of Newton's method; an answer that is cut short is still feasible, and certified as it is.
_MAX_NEWTON = 30

#: Attempts that may take weights beyond their kinks, and the shares of a Newton step that they try. Where
#: that does not end, weights are held one by one.
_LONG_STEPS, _LENGTHS = 6, (1.0, 0.25, 0.0625, 0.015625)

#: Weights over which a Newton step takes some milliseconds at most.
_SMALL_FACE = 512

#: Cubes of their numbers of weights that Newton steps of one answer may sum up to: about a second. A start
#: with many weights off their kinks may need hundreds of steps, of which each lets go of a few.
_MOST_WORK = 3e10


class GramDescent(PenalisedUpdate):
    r"""Cyclic coordinate descent with passes over the moving weights, for sums over columns.

    Where it is slow, because columns are nearly collinear, Newton steps over the
    weights off their kinks and bounds take it along. A step solves exactly, or leaves weights that would
    pass their kink or bound there; they are then held, and the next step is over the others. Shorter ones,
    down to the first kink, are tried where that is not lower. The passes after may let go of weights again,
    so every attempt may take twice as many steps as the last. Where far more weights are free than there
    are rows, as on wide data at first, the answer is as far as the passes lead.

    Shapes: block (N, d).
    """

    name: ClassVar[str] = "coordinate"

    def prepare(self, engine: Engine) -> None:
        self._gram = np.ascontiguousarray(self.block.gram(engine))

    def minimise(self, right: np.ndarray, mu: float, start: np.ndarray, engine: Engine) -> np.ndarray:
        return self.minimise_around(np.zeros_like(start), -right, mu, start, engine)

    def minimise_around(
        self, point: np.ndarray, slope: np.ndarray, mu: float, start: np.ndarray, engine: Engine
    ) -> np.ndarray:
        first, second = (mu * share for share in self.regularizer.shares)
        scale = first, second, *self.constraint.bounds
        return minimise_on_gram(self._gram, slope, point, scale, start, self.block.shape[0])


def minimise_on_gram(
    gram: np.ndarray,
    slope: np.ndarray,
    origin: np.ndarray,
    scale: tuple[float, float, float, float],
    start: np.ndarray,
    n_samples: int,
    tolerance: float = _TOLERANCE,
) -> np.ndarray:
    r"""Minimise :math:`\tfrac12 (x - o)^\top G (x - o) + \langle s, x\rangle + h(x)` as :class:`GramDescent`.

    Shapes: gram (d, d); slope, origin, start, the result (d,).
    """
    from fastadmm.kernels.gram_descent import gram_descent

    first, _, low, high = scale
    # Over more weights than rows the Gram matrix is singular, and a step leads nowhere in particular.
    # Where many such steps would take long, as far as the passes led is an answer; the next begins there.
    most = max(n_samples, _SMALL_FACE)
    x, gradient, work = start.copy(), np.empty_like(start), 0.0
    for attempt in range(_MAX_NEWTON):
        if gram_descent(gram, slope, origin, *scale, x, gradient, tolerance, _MAX_PASSES):
            break
        free = np.flatnonzero(((x != 0.0) | (first == 0.0)) & (x > low) & (x < high))
        if len(free) > most or work > _MOST_WORK:
            break
        lengths = _LENGTHS if attempt < _LONG_STEPS else ()
        for _ in range(2 ** max(0, attempt - _LONG_STEPS)):
            if len(free) == 0 or work > _MOST_WORK:
                break
            work += float(len(free)) ** 3
            free = _newton(gram, x, free, gradient, scale, lengths)
    return x


def _newton(
    gram: np.ndarray,
    x: np.ndarray,
    free: np.ndarray,
    gradient: np.ndarray,
    scale: tuple[float, float, float, float],
    lengths: tuple[float, ...],
) -> np.ndarray:
    """One step over the free weights, or as much of it as goes down; those that are left to go on with."""
    first, second, low, high = scale
    point, nothing = x[free], free[:0]
    matrix, rows = gram[np.ix_(free, free)], gram[free]  # rows lie together, and the matrix is symmetric
    slope = gradient[free] + first * np.sign(point) + second * point
    matrix[np.diag_indices(len(free))] += second
    step = -descent_solver(matrix, FACTORISES * len(free))(slope)
    below = np.where((point > 0.0) & (first > 0.0), max(low, 0.0), low)
    above = np.where((point < 0.0) & (first > 0.0), min(high, 0.0), high)
    room = np.full_like(step, np.inf)
    np.divide(above - point, step, out=room, where=step > 0.0)
    np.divide(below - point, step, out=room, where=step < 0.0)
    first_kink = float(room.min())
    # The last is where the first weight is held: a singular matrix's step is nothing but a direction.
    for length in (*lengths, min(1.0, first_kink)):
        moved = np.clip(point + length * step, below, above)
        at = room <= length
        moved[at] = np.where(step[at] > 0.0, above[at], below[at])
        move = moved - point
        change = move @ rows
        # No weight changes its sign: on the way the penalty is its tangent and the square.
        if float(slope @ move) + 0.5 * (float(change[free] @ move) + second * float(move @ move)) < 0.0:
            x[free] = moved
            gradient += change
            return free[~at] if at.any() else nothing
    return nothing

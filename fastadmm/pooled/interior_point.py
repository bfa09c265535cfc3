r"""Kinks in the loss: Mehrotra's interior point method over the columns that pull.

With :math:`\ell(z) = \max_{u \in [a, b]} u e(z) - \tfrac\gamma2 u^2` and
:math:`\kappa |x| = \max_{|v| \le \kappa} v x` one looks for a saddle over three boxes: slopes u of the rows,
slopes v of the kinks at zero, and weights x with their bounds,

.. math:: \min_x \max_{u, v}\; \langle u, e(D x + b)\rangle - \tfrac\gamma2 \|u\|^2
          + \langle v, x\rangle + \tfrac{l_2}2 \|x\|^2 .

At the optimum about as many rows are at a kink as weights are off theirs, so a method that goes from kink to
kink takes long. This one stays away from all kinks until its end, and takes some twenty steps. Each solves
one system :math:`D^\top H D + E` with diagonals H and E; u, always inside its box, proves the gap.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs

from fastadmm.blocks.block import FeatureBlock
from fastadmm.blocks.side_by_side import Columns
from fastadmm.engine.engine import Engine
from fastadmm.method.bent_rows import Lines
from fastadmm.method.certificate import primal_value
from fastadmm.method.penalised_bound import DualShare, bound_from_shares
from fastadmm.pooled import cost
from fastadmm.pooled.goal import Goal, Point, Proved, better
from fastadmm.problem.penalty import PartyPenalty
from fastadmm.problem.problem import Problem

Array = np.ndarray

_MAX_STEPS = 80

#: A step goes this share of the way to the next end.
_INSIDE = 0.995

#: Further steps for weights that are at their kinks exactly; steps in a row that prove no more, the last.
_MORE, _MOST_IDLE = 4, 20

#: Columns of the first system, where a norm holds the others at zero.
_FIRST = 256

#: Steps, about; what each costs beside its system, in products, and in nanoseconds.
_STEPS, _PASSES_OF_STEP, _STEP = 17.0, 8.0, 2.5e5

#: Relative gap among some columns, while many others are to join: more than this share of them.
_ROUGH, _MANY = 1e-2, 0.1

#: Columns that pull nearly as much as the norm holds may be next.
_NEARLY = 0.95

#: Times that columns join; share of the wanted gap that the last system leaves.
_MOST_PASSES, _SHARE_OF_WANTED = 30, 0.5


class InteriorPoint:
    """Losses with clamped slopes and penalties that are one sum over weights; the last way without kinks."""

    name = "interior point"

    def takes(self, goal: Goal) -> bool:
        """Whether the problem is one for this."""
        problem = goal.problem
        if problem.n_outputs > 1 or problem.loss.bends(problem.y) is None:
            return False
        if not (goal.in_memory and problem.traits.a_sum):
            return False
        low, high = goal.penalty.constraint.bounds
        return low < high and (goal.penalty.coefficients[0] > 0.0 or cost.gram_fits(goal))

    def cost(self, goal: Goal) -> float:
        """Systems of the columns that will have weights."""
        if goal.problem.loss.smooth:
            return math.inf
        d = sum(goal.widths)
        share = min(1.0, 2.0 * _FIRST / d) if goal.penalty.coefficients[0] > 0.0 else 1.0
        return _STEPS * (share**2 * cost.gram(goal) + _PASSES_OF_STEP * cost.product(goal) + _STEP)

    def minimise(self, goal: Goal, point: Point, wanted: float, otherwise: float) -> Point | None:
        """Systems of more and more columns, until what is left out proves nothing more."""
        slope, numbers = goal.images(point.dual), np.zeros(0, dtype=np.int64)
        best: Proved | None = None
        columns, rough = None, True
        for _ in range(_MOST_PASSES):
            before = len(numbers)
            numbers = _next_columns(goal, numbers, slope, point.weights)
            joined = len(numbers) - before
            if not (joined or rough):
                break
            rough = len(numbers) < len(slope) and joined > _MANY * len(numbers)
            accuracy = max(_ROUGH, wanted) if rough else _SHARE_OF_WANTED * wanted
            if len(numbers) < len(slope):
                columns = columns or Columns(goal.problem.blocks, goal.engine)
            rows = goal.rows() if columns is None else columns.some(numbers)
            found = find_saddle(goal.problem, goal.penalty, rows, accuracy, goal.engine)
            del rows  # before those of the next system are made
            if found is None:
                break
            slope = goal.images(found.dual)
            x = np.zeros(len(slope))
            x[numbers] = found.weights
            best = better(best, replace(found, weights=x, lower=goal.lower(found.dual, slope)))
            if best.value - best.lower <= wanted * best.lower:
                break
        return None if best is None else goal.at(best.weights, best.intercept, best.dual)


def _next_columns(goal: Goal, numbers: Array, slope: Array, weights: Array) -> Array:
    """Numbers of columns, ascending, with those that pull most among the others.

    Shapes: slope and weights (d,).
    """
    first, pull, d = goal.penalty.coefficients[0], goal.penalty.pull(slope), len(slope)
    if len(numbers) == 0:
        if first == 0.0 or d <= _FIRST:
            return np.arange(d)
        pull = np.maximum(pull - first, 0.0)
        return np.union1d(np.argsort(-pull, kind="stable")[:_FIRST], np.flatnonzero(weights))
    pull = np.maximum(pull - _NEARLY * first, 0.0)
    pull[numbers] = 0.0
    more = np.flatnonzero(pull > 0.0)
    more = more[np.argsort(-pull[more], kind="stable")[: max(len(numbers), _FIRST)]]
    return np.union1d(numbers, more)


#: Of a box, what a step changes: p and the multipliers of its ends.
Change = tuple[Array, Array, Array]


class _Box:
    """Numbers p between two ends, each with its multiplier, where :math:`e - c p` plus these is to vanish.

    Shapes: place, low, high, soft, size, balance (n,).
    """

    def __init__(self, place: Array, low: Array, high: Array, soft: Any, size: Any, balance: Any) -> None:
        self.place, self.low, self.high, self.soft = place, low, high, soft
        self.ends = np.isfinite(low), np.isfinite(high)
        self.live = low < high  # a row without weight has no room, and nothing to say
        # Updated in every step: computed from the ends they would soon be mere rounding.
        self.down = np.where(self.ends[0] & self.live, place - low, 1.0)
        self.up = np.where(self.ends[1] & self.live, high - place, 1.0)
        self.below, self.above = (
            np.where(end & self.live, np.maximum(sign * balance, 0.0) + size, 0.0)
            for sign, end in zip((-1.0, 1.0), self.ends)
        )

    def measure(self, e: Array) -> None:
        """Take in e."""
        self.residual = e - self.soft * self.place + self.below - self.above
        self.stiff = self.soft + self.below / self.down + self.above / self.up

    def bend(self) -> Array:
        """What p changes with e: 1 over the stiffness; 0 without room."""
        with np.errstate(divide="ignore"):
            return np.where(self.live, 1.0 / self.stiff, 0.0)

    def pairs(self, change: Change | None = None, inner: float = 0.0, outer: float = 0.0) -> Iterable[Any]:
        """Multipliers and the distances that they belong to, after so much of a step."""
        if change is None:
            return (self.below, self.down), (self.above, self.up)
        move, below, above = change
        return (
            (self.below + outer * below, self.down + inner * move * self.ends[0]),
            (self.above + outer * above, self.up - inner * move * self.ends[1]),
        )

    def aim(self, product: float, step: Change | None) -> None:
        """Let a product of multipliers and distances be the target, beside what a step would make of it."""
        own = [-multiplier * distance for multiplier, distance in self.pairs()]
        if step is not None:
            own = [product + own[0] - step[0] * step[1], product + own[1] + step[0] * step[2]]
        self.targets = [np.where(end & self.live, a, 0.0) for end, a in zip(self.ends, own)]
        self.right = self.residual + self.targets[0] / self.down - self.targets[1] / self.up

    def moved(self, move: Array) -> Change:
        """A change of p, with those of its multipliers."""
        below = (self.targets[0] - self.below * move) / self.down
        above = (self.targets[1] + self.above * move) / self.up
        return move, below, above

    def farthest(self, change: Change) -> tuple[float, float]:
        """Largest shares that a step takes of distances, and of multipliers."""

        def share(step: Array, place: Array, counts: Array) -> float:
            found = np.divide(step, place, out=np.zeros(len(step)), where=counts)
            return float(found.max(initial=0.0))

        (move, below, above), (low, high) = change, self.ends
        inner = share(-move, self.down, low & self.live), share(move, self.up, high & self.live)
        outer = share(-below, self.below, self.below > 0.0), share(-above, self.above, self.above > 0.0)
        return max(inner), max(outer)

    def go(self, change: Change, inner: float, outer: float) -> None:
        """Take a step: so far of p, and of the multipliers."""
        (self.below, self.down), (self.above, self.up) = self.pairs(change, inner, outer)
        self.place = np.minimum(np.maximum(self.place + inner * change[0], self.low), self.high)


class _Program:
    """The saddle of one problem over some columns."""

    def __init__(self, problem: Problem, penalty: PartyPenalty, rows: FeatureBlock, engine: Engine) -> None:
        self.problem, self.penalty, self.rows, self.engine = problem, penalty, rows, engine
        n, d = rows.shape
        lines, ends = Lines.of(problem, engine), problem.loss.bends(problem.y)
        assert ends is not None
        # Of each row where its slope is zero, or its kink; the stretch of z for a unit of slope; its ends.
        bent, counts = lines.rise > 0.0, problem.weight > 0.0
        soft = np.divide(1.0, lines.rise, out=np.zeros(n), where=bent)
        self.knots = np.where(bent, lines.origin - soft * np.where(bent, lines.slope, 0.0), ends[0])
        low, high = (np.where(counts, end, 0.0) for end in (lines.least, lines.most))
        self.b = float(primal_value(problem, np.zeros(n), 0.0, engine).intercept)
        self.z = engine.plus(problem.offset, np.zeros(n), self.b)
        e = self.z - self.knots
        spread = engine.total_and_size(e)[1] / n or 1.0
        room = np.divide(spread, soft, out=np.zeros(n), where=bent)  # only of these an end may be missing
        least = np.where(np.isfinite(low), low, high - room)
        most = np.where(np.isfinite(high), high, low + room)
        self.u = _Box(0.5 * (least + most), low, high, soft, spread, e)
        size = np.sqrt(rows.column_squares(engine) / n)
        size[size == 0.0] = 1.0
        first, second = penalty.coefficients
        bottom, top = (np.full(d, end) for end in penalty.constraint.bounds)
        self.kinked = first > 0.0 and bool(bottom[0] < 0.0 < top[0])
        self.linear = 0.0 if self.kinked else first * (1.0 if bottom[0] >= 0.0 else -1.0)
        reach = spread / (size * math.sqrt(d))
        room = np.minimum(reach, 0.25 * (top - bottom))
        x = np.clip(0.0, bottom + room, top - room)
        pull = rows.transposed_product(self.u.place, engine)
        self.x = _Box(x, bottom, top, second, float(np.abs(pull).mean()) or 1.0, 0.0)
        kinks = np.full(d, first if self.kinked else 0.0)
        self.v = _Box(np.zeros(d), -kinks, kinks, 0.0, reach, x)
        self.z = self.z + rows.product(x, engine)
        self.straight = second == 0.0 and not problem.loss.smooth  # primal and dual steps may differ

    def measure(self) -> float:
        """Residuals of the three boxes; the mean product of multipliers and distances."""
        self.slope = self.rows.transposed_product(self.u.place, self.engine)
        self.u.measure(self.z - self.knots)
        self.v.measure(self.x.place)
        self.x.measure(-(self.slope + self.v.place + self.linear))
        self.excess = float(self.engine.total(self.u.place)) if self.problem.fit_intercept else 0.0
        self.product = self._product(*(box.pairs() for box in (self.u, self.v, self.x)))
        ends = sum(int(end.sum()) for box in (self.u, self.x) for end in box.ends)
        return self.product / (ends + 2 * self.kinked * len(self.slope))

    def _product(self, *pairs: Iterable[tuple[Array, Array]]) -> float:
        return sum(self.engine.dot(a, b) for own in pairs for a, b in own)

    def proved(self) -> tuple[Array, float]:
        """A dual vector, and what it proves for these columns."""
        u, slope = self.u.place, self.slope
        if self.excess != 0.0:
            room = np.minimum(self.u.down, self.u.up) * self.u.live
            u = u - room * (self.excess / float(self.engine.total(room)))
            slope = self.rows.transposed_product(u, self.engine)
        share = DualShare.proved(self.penalty, -slope)
        return u, bound_from_shares(self.problem, u, [share], self.engine)

    def value(self) -> float:
        """The objective."""
        problem, z = self.problem, self.z
        loss = problem.loss.evaluate(z, problem.y, problem.weight, np.empty(len(z)), self.engine)
        return loss + self.penalty.value(self.x.place)

    def factorise(self) -> bool:
        """Prepare the steps from here; whether that is possible."""
        engine, rows = self.engine, self.rows
        self.h, self.g = self.u.bend(), self.v.bend()
        matrix, stiff = rows.gram(engine, self.h), self.x.stiff + self.g
        diagonal = matrix.reshape(-1)[:: len(matrix) + 1]
        self.bends = diagonal.copy()
        diagonal += stiff
        self.root = np.sqrt(np.maximum(diagonal, 1e-300))
        matrix /= self.root
        matrix /= self.root[:, np.newaxis]
        self.factor, failed = dpotrf(matrix.T, lower=True, overwrite_a=True, clean=False)
        if failed:
            return False
        if self.problem.fit_intercept:
            self.cross = rows.transposed_product(self.h, engine)
            self.along = self._solve(self.cross)
            # As a sum of squares: where columns are far from zero, the difference would be rounding.
            left = 1.0 - rows.product(self.along, engine)
            self.rest = engine.dot(self.h, left * left) + float(stiff @ (self.along * self.along))
            return self.rest > 0.0
        return True

    def _solve(self, right: Array) -> Array:
        solved: Array = dpotrs(self.factor, right / self.root, lower=True)[0]
        return solved / self.root

    def step(self, product: float, ahead: Any = (None, None, None)) -> tuple[Any, float, Array]:
        """Newton's step to a product of all pairs: changes of the boxes, of the intercept and of z."""
        engine, rows = self.engine, self.rows
        for box, own in zip((self.u, self.v, self.x), ahead):
            box.aim(product, own)
        bent, rise = self.h * self.u.right, 0.0
        dx = self._solve(self.x.right - rows.transposed_product(bent, engine) - self.g * self.v.right)
        if self.problem.fit_intercept:
            rise = (-self.excess - float(engine.total(bent)) - float(self.cross @ dx)) / self.rest
            dx = dx - rise * self.along
        dz = rows.product(dx, engine) + rise
        changes = self.u.moved(self.h * (dz + self.u.right)), self.v.moved(self.g * (dx + self.v.right))
        return (*changes, self.x.moved(dx)), rise, dz

    def lengths(self, changes: Any) -> tuple[float, float]:
        """How far weights, and slopes, may go along a step."""
        u, v, x = (box.farthest(own) for box, own in zip((self.u, self.v, self.x), changes))
        primal, dual = max(1.0, u[1], v[1], x[0]), max(1.0, u[0], v[0], x[1])
        if not self.straight:
            primal = dual = max(primal, dual)
        return 1.0 / primal, 1.0 / dual

    def _ways(self, changes: Any, primal: float, dual: float) -> list[tuple[_Box, Any, float, float]]:
        u, v, x = changes
        return [(self.u, u, dual, primal), (self.v, v, dual, primal), (self.x, x, primal, dual)]

    def go(self, mean: float) -> bool:
        """Predict, correct, and take the step; whether there is one."""
        changes, *_ = self.step(0.0)
        ways = self._ways(changes, *self.lengths(changes))
        left = self._product(*(box.pairs(*way) for box, *way in ways))
        found, rise, dz = self.step((left / self.product) ** 3 * mean, changes)
        primal, dual = (_INSIDE * length for length in self.lengths(found))
        if not (math.isfinite(primal) and math.isfinite(dual) and primal > 0.0):
            return False
        for box, *way in self._ways(found, primal, dual):
            box.go(*way)
        self.b, self.z = self.b + primal * rise, self.z + primal * dz
        return True

    def at_kinks(self) -> Array:
        """Weights that would stay at a kink or bound, set to it."""
        x = self.x.place.copy()
        if self.kinked:
            x[np.abs(x) * self.bends < np.minimum(self.v.down, self.v.up)] = 0.0
        for end, at, (multiplier, distance) in zip(self.x.ends, (self.x.low, self.x.high), self.x.pairs()):
            meets = end & (distance * self.bends < multiplier)
            x[meets] = at[meets]
        return x


def find_saddle(
    problem: Problem, penalty: PartyPenalty, rows: FeatureBlock, wanted: float, engine: Engine
) -> Proved | None:
    """Minimise over the weights of some columns.

    Returns: of these columns; None where nothing finite was found.
    Shapes: rows (N, d).
    """
    program, more, idle = _Program(problem, penalty, rows, engine), 0, 0
    best: Proved | None = None
    for _ in range(_MAX_STEPS):
        engine.check()
        mean = program.measure()
        gradient, lower = program.proved()
        value = program.value()
        if not (math.isfinite(value) and math.isfinite(mean)):
            break
        after = better(best, Proved(program.x.place, program.b, gradient, value, lower))
        same = best is not None and (after.value, after.lower) == (best.value, best.lower)
        best, idle = after, idle + 1 if same else 0
        if not program.factorise() or idle == _MOST_IDLE:
            break
        if best.value - best.lower <= wanted * best.lower:
            exact = program.at_kinks()
            primal = primal_value(problem, rows.product(exact, engine), program.b, engine)
            found = primal.loss + penalty.value(exact)
            if found - best.lower <= wanted * best.lower:
                return replace(best, weights=exact, intercept=float(primal.intercept), value=found)
            more += 1
        if more > _MORE or not program.go(mean):
            break
    return best

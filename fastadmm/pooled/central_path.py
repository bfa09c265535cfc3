r"""The best weights of all columns by an interior point method, where other searches have stalled.

With logarithms of factor :math:`\mu` in place of kinks and ends
(:mod:`fastadmm.pooled.barrier`) the objective is smooth. Its minimiser moves along the central
path as :math:`\mu` falls; Newton's method follows it, and the gradient there proves the gap. Steps do not
depend on the scale of columns, on how nearly collinear they are, nor on how many kinks lie between start and
end: some hundred small systems at most.
"""

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.linalg
from scipy.linalg.lapack import dpotrf, dpotrs, dtrtrs

from fastadmm.parties.xupdate.face_step import scaled_solver
from fastadmm.pooled.barrier import ClassRows, PenaltyBarrier, PredictorRows, Square
from fastadmm.pooled.goal import Goal, Point, Proved

Array = np.ndarray

#: Newton steps at one factor, and of all together.
_STEPS, _TOGETHER = 40, 300

#: What the factor is multiplied by, and where Newton's method had it easy; how near to the path is enough.
_SMALLER, _MUCH_SMALLER, _EASY, _NEAR = 0.2, 0.1, 5, 0.1

#: Share of the way to the boundary that a step may go; decrease of a step, as a share of what it promises.
_INSIDE, _ARMIJO, _SHORTEST = 0.99, 1e-4, 1e-10

#: Lost in the rounding of a value.
_ROUNDING = 1e-14

#: Of whole steps of Newton's method one promises at most this share of what the last did.
_FALLS = 0.99

#: Least pivot of a scaled system whose digits are good for a step.
_SOUND = 1e-5

#: Pivots of columns that are others' but for rounding; steps to a fitted dual vector.
_SAME_COLUMN, _FITS = 1e-10, 3

#: So many factors after the last that proved more, or lowered the value by this share, one gives up.
_STILL, _SAME = 5, 1e-8

#: Rows times classes and weights at most, and operations of a Newton step.
_MOST_ROWS, _MOST_WEIGHTS, _MOST_WORK = 1 << 14, 2048, 1 << 33

#: A gap this small against the objective is rounding; share of the wanted gap that is aimed at.
_NOTHING, _SHARE_OF_WANTED = 1e-13, 0.5

#: Last factor, over the first.
_LAST = 1e-18


def follow_central_path(goal: Goal, wanted: float, smallest: float, least: float) -> Proved | None:
    """Minimise over all weights.

    Returns: None where a set has no inside.
    Scaling: smallest, least summed scaling.
    """
    path = _Path(goal)
    if not path.penalty.has_inside:
        return None
    end = path.follow(wanted, smallest, least)
    if goal.problem.n_outputs == 1:
        return end
    mean = float(end.intercept.mean())  # of classes they sum to zero
    return replace(end, weights=end.weights.reshape(path.shape), intercept=end.intercept - mean)


@dataclass
class _Point:
    """A point inside, with what its logarithms make of loss and penalties."""

    x: Array
    intercept: Any
    z: Array
    loss: tuple[float, Array, Array]
    penalty: tuple[float, Array, Array, list[Square]]

    @property
    def value(self) -> float:
        return self.loss[0] + self.penalty[0]


class _Path:
    def __init__(self, goal: Goal) -> None:
        problem, engine = goal.problem, goal.engine
        values = np.hstack([block.columns(np.arange(block.shape[1]), engine) for block in problem.blocks])
        classes = problem.n_outputs
        self.goal, self.problem, self.engine, self.d = goal, problem, engine, classes * values.shape[1]
        self.shape = (classes, -1) if classes > 1 else (-1,)
        self.rows = (ClassRows if classes > 1 else PredictorRows)(problem, values, engine)
        #: Of each party and class.
        self.penalties, widths = list(problem.penalties) * classes, goal.widths * classes
        size = np.tile(np.sqrt((values * values).mean(axis=0)), classes)
        size[size == 0.0] = 1.0
        self.size, self.penalty = size, PenaltyBarrier(self.penalties, widths, size)
        self.n_logarithms = max(1, self.rows.n_logarithms + self.penalty.n_logarithms)
        self.cuts = [slice(a, b) for a, b in pairwise(np.cumsum([0, *widths]).tolist())]
        self.n_steps, self.ahead = 0, np.zeros(problem.message_size)

    def follow(self, wanted: float, smallest: float, least: float) -> Proved:
        x, b = self.penalty.inside(0.1 / (self.size * math.sqrt(self.d))), self.rows.none
        best = Proved(x, b, np.empty(0), self.exact(x, b), least)
        mu = first = best.value / self.n_logarithms if best.value > 0.0 else 1.0
        n_still, goes_on = 0, True
        while goes_on and self.n_steps < _TOGETHER and mu > _LAST * first and n_still < _STILL:
            x, b, taken, goes_on = self.centred(x, b, mu)
            before, best = best, self.measured(best, x, b, mu)
            better = best.lower > before.lower or best.value < before.value * (1.0 - _SAME)
            better = better or best.within > before.within
            n_still = 0 if better else n_still + 1
            if best.value - best.bound <= wanted * best.bound or best.value - best.lower <= smallest:
                break
            mu *= _MUCH_SMALLER if taken <= _EASY else _SMALLER
        return best

    def predictors(self, x: Array, b: Any) -> Array:
        """Of all rows."""
        return self.problem.offset + self.rows.moved(x, b)

    def exact(self, x: Array, b: Any) -> float:
        """The objective itself."""
        problem, z = self.problem, self.predictors(x, b)
        value = problem.loss.evaluate(z, problem.y, problem.weight, np.empty(len(z)), self.engine)
        return value + sum(p.value(x[cut]) for p, cut in zip(self.penalties, self.cuts))

    def at(self, x: Array, b: Any, z: Array, mu: float) -> _Point:
        """A point inside."""
        return _Point(x, b, z, self.rows.at(z, mu), self.penalty.at(x, mu))

    def measured(self, best: Proved, x: Array, b: Any, mu: float) -> Proved:
        """What is best, with a point of the path."""
        goal = self.goal
        _, u, h = self.rows.at(self.predictors(x, b), mu)
        stiff = self.rows.stiff(h) + self.penalty.ridge
        for point in (x, self.penalty.on_ends(x, mu, stiff)):
            value = self.exact(point, b)
            if value <= best.value:
                best = replace(best, weights=point, intercept=b, value=value)
        near = math.sqrt(mu * max(best.value / self.n_logarithms, mu))
        inside, fitted = -math.inf, self._fitted(self.ahead, h, *self.penalty.free(x, mu, near))
        for dual in (self.rows.balanced(u, h), self.ahead, fitted):
            images = self.rows.slopes(dual).reshape(self.shape)
            within = goal.within(dual, images, best.weights.reshape(self.shape))
            lower = goal.lower(dual, images)
            if lower > best.lower or within > inside or not len(best.dual):
                best = replace(best, dual=dual, lower=max(lower, best.lower))
            inside = max(inside, within)
        return replace(best, within=inside)

    def _fitted(self, dual: Array, h: Array, free: Array, slope: Array) -> Array:
        """A dual vector near another whose slopes are the penalty's, where weights are free.

        Where the loss is steep predictors do not tell the gradient to so many digits. The loss's curvature
        says which rows' slopes move: not those near the ends of their domain.
        """
        rows = self.rows
        chosen = np.append(np.full(rows.lead, True), free)
        equations = rows.equations(dual, h)[0][:, chosen]
        size = np.maximum(np.sqrt((equations * equations).sum(axis=0)), 1e-300)
        _, r, order = scipy.linalg.qr(equations / size, mode="economic", pivoting=True, check_finite=False)
        pivots = np.abs(r.diagonal())
        rank = int((pivots > _SAME_COLUMN * pivots.max(initial=0.0)).sum())
        if rank == 0:
            return dual
        whole, own, r = np.zeros(len(chosen)), np.flatnonzero(chosen)[order[:rank]], r[:rank, :rank]
        for _ in range(_FITS):
            missing = np.append(rows.sums(dual), rows.slopes(dual) + slope)[own] / size[order[:rank]]
            step = dtrtrs(r, dtrtrs(r, missing, trans=1)[0])[0]
            whole[own] = -step / size[order[:rank]]
            dual = dual + rows.bent(h, rows.moved(whole[rows.lead :], rows.rise(whole[: rows.lead])))
        return rows.balanced(dual, h)

    def centred(self, x: Array, b: Any, mu: float) -> tuple[Array, Any, int, bool]:
        """Newton's method at one factor: weights, intercept, steps, and whether a smaller one may follow."""
        here = self.at(x, b, self.predictors(x, b), mu)
        before, length = math.inf, 0.0
        for taken in range(_STEPS):
            found = self.newton(here)
            if found is None:
                return here.x, here.intercept, taken, False
            rise, move, promised = found
            along = self.rows.moved(move, rise)
            # Where the loss is steep, what a step makes of the gradient has digits that predictors have not.
            _, u, h = here.loss
            self.ahead = self.rows.balanced(u + self.rows.bent(h, along), h)
            # Whole steps that promise as much as the last one did are rounding's.
            stands = length >= 1.0 and promised > _FALLS * before
            if promised <= _NEAR * mu or stands:
                return here.x, here.intercept, taken, math.isfinite(promised)
            self.n_steps += 1
            there, length = self._along(here, move, rise, along, promised, mu)
            if there is None:
                return here.x, here.intercept, taken, promised <= _ROUNDING * abs(here.value)
            here, before = there, promised
        return here.x, here.intercept, _STEPS, True

    def _along(
        self, here: _Point, move: Array, rise: Any, along: Array, promised: float, mu: float
    ) -> tuple[_Point | None, float]:
        """Where a step lowers the value enough, and its length; None where rounding leaves no such place."""
        most = _INSIDE * self.penalty.longest(here.x, move)

        def tried(length: float) -> _Point | None:
            x = here.x + length * move
            if not self.penalty.holds(x):
                return None
            return self.at(x, here.intercept + length * rise, here.z + length * along, mu)

        length, slack = min(1.0, most), _ROUNDING * abs(here.value)
        there = tried(length)
        while there is None or not there.value <= here.value - _ARMIJO * length * promised + slack:
            length *= 0.5
            if length < _SHORTEST:
                return None, length
            there = tried(length)
        # Far from the path a logarithm makes steps double the distance from its end, no more.
        while 1.0 <= length < 0.5 * most:
            farther = tried(2.0 * length)
            if farther is None or not farther.value < there.value:
                break
            there, length = farther, 2.0 * length
        return there, length

    def newton(self, here: _Point) -> tuple[Any, Array, float] | None:
        """Newton's step for intercepts and weights, and what it promises; None where rounding leaves none.

        From the normal equations, or where these lose digits from the least squares problem that they are of:
        of more columns than rows penalties alone hold some combinations, and may be far below the loss.
        """
        (_, u, h), (_, slope, bend, squares) = here.loss, here.penalty
        lead = self.rows.lead
        system, right = self.rows.normal(u, h)
        right[lead:] += slope
        own = np.zeros((len(right), len(right)))
        own[lead:, lead:][np.diag_indices(self.d)] = bend
        for at, part, factor in squares:
            own[np.ix_(lead + at, lead + at)] += factor * np.outer(part, part)
        system += own
        size = np.sqrt(np.maximum(system.diagonal(), 1e-300))
        whole, failed = dpotrf(system / np.outer(size, size))
        step: Array | None
        if not failed and whole.diagonal().min() > _SOUND:
            step = -dpotrs(whole, right / size)[0] / size
        else:
            step = self._least_squares(u, h, slope, own, size)
            if step is None or not float(right @ step) < 0.0:
                solve = scaled_solver(system)
                step = None if solve is None else -solve(right)
        if step is None or not np.isfinite(step).all():
            return None
        return self.rows.rise(step[:lead]), step[lead:], -float(right @ step)

    def _least_squares(self, u: Array, h: Array, slope: Array, own: Array, size: Array) -> Array | None:
        equations, target = self.rows.equations(u, h)
        whole, right = [equations], [target]
        for cut in self.cuts:
            at = slice(self.rows.lead + cut.start, self.rows.lead + cut.stop)
            block = own[at, at]
            scale = np.sqrt(np.maximum(block.diagonal(), (1e-16 * size[at]) ** 2))
            scaled = block / np.outer(scale, scale)
            scaled[np.diag_indices(len(scale))] = 1.0
            factor, failed = dpotrf(scaled)
            if failed:
                return None
            part = np.zeros((len(scale), len(size)))
            part[:, at] = factor * scale
            whole.append(part)
            right.append(-dtrtrs(factor, slope[cut] / scale, trans=1)[0])
        stacked, target = np.vstack(whole) / size, np.concatenate(right)
        # From the largest row on: then every row keeps its own digits.
        order = np.argsort(-np.abs(stacked).max(axis=1), kind="stable")
        q, r, columns = scipy.linalg.qr(stacked[order], mode="economic", pivoting=True, check_finite=False)
        if not (np.abs(r.diagonal()) > 0.0).all():
            return None
        step = np.empty(len(size))
        step[columns] = dtrtrs(r, q.T @ target[order])[0]
        return step / size


class CentralPath:
    """Any convex problem whose table is small."""

    name = "central path"

    def takes(self, goal: Goal) -> bool:
        """Whether the problem is one for this."""
        classes = goal.problem.n_outputs
        rows, weights = classes * goal.n_samples, classes * sum(goal.widths)
        few = rows <= _MOST_ROWS and weights <= _MOST_WEIGHTS and (rows + weights) * weights**2 <= _MOST_WORK
        return few

    def cost(self, goal: Goal) -> float:
        """More than any other: it is for what others leave."""
        return math.inf

    def minimise(self, goal: Goal, point: Point, wanted: float, otherwise: float) -> Point | None:
        """Follow the path; None where a set has no inside."""
        least = point.lower if math.isfinite(point.lower) else 0.0
        aims = _SHARE_OF_WANTED * wanted, _NOTHING * abs(point.value), least
        with np.errstate(all="ignore"):
            end = follow_central_path(goal, *aims)
        if end is None:
            return None
        dual = np.ravel(end.dual)
        return goal.at(end.weights, end.intercept, dual if dual.size else None)

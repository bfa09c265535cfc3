r"""The best weights of all columns by an interior point method, where other searches have stalled.

With logarithms of factor :math:`\mu` in place of kinks and ends (:mod:`fastadmm.coordinator.proximal.barrier`)
the objective bends everywhere. Its least point moves with :math:`\mu` along the central path; Newton's method
follows it, and the gradient on it proves the gap. Steps do not depend on the scale of columns, on how nearly
collinear they are, nor on how many kinks lie between start and end: some hundred small systems at most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from scipy.linalg.lapack import dpotrf, dpotrs, dtrtrs

from fastadmm.coordinator.penalised_bound import DualShare, bound_from_shares
from fastadmm.coordinator.proximal.barrier import LossBarrier, PenaltyBarrier, Square
from fastadmm.engine.engine import Engine
from fastadmm.parties.xupdate.face_step import scaled_solver
from fastadmm.problem.penalty import PartyPenalty
from fastadmm.problem.problem import Problem

__all__ = ["PathEnd", "follow_central_path"]

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

#: So many factors after the last that proved more, or lowered the value by this share, one gives up.
_STILL, _SAME = 5, 1e-8

#: Last factor, over the first.
_LAST = 1e-18


@dataclass(frozen=True)
class PathEnd:
    """What was found.

    Attributes
    ----------
    weights : ndarray of shape (d,)
        Of all parties, side by side.
    intercept : float
    gradient : ndarray of shape (N,)
        What proves most of all that were seen; empty where nothing was.
    value, lower : float
        The objective, and what the gradient proves; summed scaling.
    """

    weights: Array
    intercept: float
    gradient: Array
    value: float
    lower: float


def follow_central_path(
    problem: Problem,
    penalties: Sequence[PartyPenalty],
    values: Array,
    widths: Sequence[int],
    wanted: float,
    smallest: float,
    least: float,
    engine: Engine,
) -> PathEnd | None:
    """Minimise over all weights.

    Parameters
    ----------
    problem : Problem
        Convex, with one predictor per sample.
    penalties : sequence of PartyPenalty
        One of each party.
    values : ndarray of shape (N, d)
        The columns of all parties.
    widths : sequence of int
        How many columns are whose.
    wanted : float
        Relative gap to end at.
    smallest, least : float
        Gap that is rounding, and what the objective is at least; summed scaling.
    engine : Engine

    Returns
    -------
    PathEnd or None
        None where a set has no inside.
    """
    path = _Path(problem, penalties, values, widths, engine)
    if not path.penalty.has_inside:
        return None
    return path.follow(wanted, smallest, least)


class _Path:
    def __init__(
        self,
        problem: Problem,
        penalties: Sequence[PartyPenalty],
        values: Array,
        widths: Sequence[int],
        engine: Engine,
    ) -> None:
        self.problem, self.penalties, self.engine = problem, penalties, engine
        self.values, self.d = values, values.shape[1]
        size = np.sqrt((values * values).mean(axis=0))
        size[size == 0.0] = 1.0
        self.loss, self.penalty = LossBarrier(problem, engine), PenaltyBarrier(penalties, widths, size)
        self.size = size
        ends = np.cumsum([0, *widths])
        self.cuts = [slice(a, b) for a, b in zip(ends[:-1], ends[1:])]
        self.n_steps, self.ahead = 0, np.zeros(len(values))

    def follow(self, wanted: float, smallest: float, least: float) -> PathEnd:
        x, b = self.penalty.inside(0.1 / (self.size * math.sqrt(self.d))), 0.0
        best = PathEnd(x, b, np.empty(0), self.exact(x, b), least)
        n_logarithms = max(1, self.loss.n_logarithms + self.penalty.n_logarithms)
        mu = first = best.value / n_logarithms if best.value > 0.0 else 1.0
        n_still = 0
        while self.n_steps < _TOGETHER and mu > _LAST * first and n_still < _STILL:
            x, b, taken, goes_on = self.centred(x, b, mu)
            before, best = best, self.measured(best, x, b, mu)
            better = best.lower > before.lower or best.value < before.value * (1.0 - _SAME)
            n_still = 0 if better else n_still + 1
            gap = best.value - best.lower
            if gap <= wanted * best.lower or gap <= smallest or not goes_on:
                break
            mu *= _MUCH_SMALLER if taken <= _EASY else _SMALLER
        return best

    def exact(self, x: Array, b: float) -> float:
        """The objective itself."""
        problem = self.problem
        z = problem.offset + self.values @ x + b
        value = problem.loss.evaluate(z, problem.y, problem.weight, np.empty(len(z)), self.engine)
        return value + sum(p.value(x[cut]) for p, cut in zip(self.penalties, self.cuts))

    def measured(self, best: PathEnd, x: Array, b: float, mu: float) -> PathEnd:
        """What is best, with a point of the path."""
        problem = self.problem
        _, u, h = self.loss.at(problem.offset + self.values @ x + b, mu)
        stiff = ((self.values * self.values) * h[:, None]).sum(axis=0) + self.penalty.ridge
        for point in (x, self.penalty.on_ends(x, mu, stiff)):
            value = self.exact(point, b)
            if value <= best.value:
                best = PathEnd(point, b, best.gradient, value, best.lower)
        if problem.fit_intercept:  # its sum is to vanish to the last digits
            u = u - h * (float(u.sum()) / float(h.sum()))
        for dual in (u, self.ahead):
            slope = self.values.T @ dual
            shares = [_share(p, slope[cut]) for p, cut in zip(self.penalties, self.cuts)]
            lower = bound_from_shares(problem, dual, shares, self.engine)
            if lower > best.lower or not len(best.gradient):
                best = PathEnd(best.weights, best.intercept, dual, best.value, max(lower, best.lower))
        return best

    def centred(self, x: Array, b: float, mu: float) -> tuple[Array, float, int, bool]:
        """Newton's method at one factor: weights, intercept, steps, and whether it ended."""
        lead = int(self.problem.fit_intercept)
        z = self.problem.offset + self.values @ x + b
        here = self.loss.at(z, mu), self.penalty.at(x, mu)
        before, length = math.inf, 0.0
        for taken in range(_STEPS):
            (loss, u, h), (own, slope, bend, squares) = here
            whole = np.append(np.full(lead, u.sum()), self.values.T @ u + slope)
            step = self.newton(u, h, slope, bend, squares)
            if step is None:
                return x, b, taken, False
            promised = -float(whole @ step)
            along = self.values @ step[lead:] + step[:lead].sum()
            # Where the loss is steep, what a step makes of the gradient has digits that predictors have not.
            self.ahead = u + h * along
            if lead:
                self.ahead -= h * (float(self.ahead.sum()) / float(h.sum()))
            if not (promised > 0.0 and math.isfinite(promised)):
                return x, b, taken, math.isfinite(promised)
            # Whole steps that promise as much as the last one did are rounding's.
            if promised <= _NEAR * mu or (length >= 1.0 and promised > _FALLS * before):
                return x, b, taken, True
            self.n_steps += 1
            rise, move = float(step[:lead].sum()), step[lead:]
            most, value = _INSIDE * self.penalty.longest(x, move), loss + own
            length = min(1.0, most)

            def tried(length: float) -> tuple[Array, Array, Any, float]:
                trial, image = x + length * move, z + length * along
                if not self.penalty.holds(trial):
                    return trial, image, here, math.inf
                there = self.loss.at(image, mu), self.penalty.at(trial, mu)
                return trial, image, there, there[0][0] + there[1][0]

            found = tried(length)
            while not found[3] <= value - _ARMIJO * length * promised + _ROUNDING * abs(value):
                length *= 0.5
                if length < _SHORTEST:
                    return x, b, taken, promised <= _ROUNDING * abs(value)
                found = tried(length)
            # Far from the path a logarithm makes steps double the distance from its end, no more.
            while 1.0 <= length < 0.5 * most and (farther := tried(2.0 * length))[3] < found[3]:
                length, found = 2.0 * length, farther
            x, z, here, _ = found
            b += length * rise
            before = promised
        return x, b, _STEPS, True

    def newton(self, u: Array, h: Array, slope: Array, bend: Array, squares: Sequence[Square]) -> Array | None:
        """Newton's step for intercept, if there is one, and weights; None where rounding leaves none.

        From the normal equations, or where these lose digits from the least squares problem that they are of:
        of more columns than rows penalties alone hold some combinations, and may be far below the loss.
        """
        lead, values = int(self.problem.fit_intercept), self.values
        if lead:
            values = np.column_stack([np.ones(len(values)), values])
        right = values.T @ u
        right[lead:] += slope
        own = np.zeros((len(right), len(right)))
        own[lead:, lead:][np.diag_indices(self.d)] = bend
        for at, part, factor in squares:
            own[np.ix_(lead + at, lead + at)] += factor * np.outer(part, part)
        system = values.T @ (values * h[:, None]) + own
        size = np.sqrt(np.maximum(system.diagonal(), 1e-300))
        factor, failed = dpotrf(system / np.outer(size, size))
        if not failed and factor.diagonal().min() > _SOUND:
            return -dpotrs(factor, right / size)[0] / size
        step = self._least_squares(values, u, h, slope, own, size, lead)
        if step is None or not float(right @ step) < 0.0:
            solve = scaled_solver(system)
            step = None if solve is None else -solve(right)
        return step

    def _least_squares(
        self, values: Array, u: Array, h: Array, slope: Array, own: Array, size: Array, lead: int
    ) -> Array | None:
        rows = h > 1e-300
        root = np.sqrt(h[rows])
        whole, right = [values[rows] * root[:, None]], [-u[rows] / root]
        for cut in self.cuts:
            at = slice(lead + cut.start, lead + cut.stop)
            block = own[at, at]
            scale = np.sqrt(np.maximum(block.diagonal(), (1e-16 * size[at]) ** 2))
            scaled = block / np.outer(scale, scale)
            scaled[np.diag_indices(len(scale))] = 1.0
            factor, failed = dpotrf(scaled)  # upper
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


def _share(penalty: PartyPenalty, slope: Array) -> DualShare:
    """What a block gradient proves."""
    scale = penalty.largest_scale(-slope)
    value = penalty.conjugate(-scale * slope) if scale > 0.0 else 0.0
    return DualShare(scale, value, penalty.conjugate(np.zeros_like(slope)), penalty.free_scale(-slope))

r"""The best weights of a few columns: Newton's method in the predictors, on the dual of proximal steps.

To minimise :math:`\ell(B x) + h(x)` over the weights of the columns B, each outer step minimises it plus
:math:`\tfrac12\|x - x_k\|^2_{1/\sigma}`: the proximal point method, which on the dual problem is the
augmented Lagrangian. Its minimiser is the p of the predictor z with

.. math:: z = B\, p(z), \qquad
          p(z) = \operatorname{prox}_{\sigma h}\bigl(x_k - \sigma B^\top \nabla\ell(z)\bigr),

N equations, however many columns there are. They are solved by semismooth Newton steps (Li, Sun and Toh
2018): p changes on its *face* only, whose columns are A, so that a step is one system as large as the face,

.. math:: (B_A^\top H B_A + \nabla^2 h_A + \sigma^{-1}) w = B_A^\top H (z - B p), \qquad
          dz = B_A w - (z - B p).

The steps descend the dual :math:`\Phi(u) = \ell^*(u) + \max_x \{-\langle B^\top u, x\rangle - h(x) -
\tfrac12\|x - x_k\|^2_{1/\sigma}\}` at :math:`u = \nabla\ell(z)`. Weights leave and enter the face in every
step: none has to stop at a kink, which makes a search over faces take as many steps as there are weights.

Rows are few here, all in one leaf of the engine's tree: sums over them are single products.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import scipy.linalg

from fastadmm.coordinator.certificate import penalty_unit, primal_value
from fastadmm.coordinator.penalised_bound import DualShare, bound_from_shares
from fastadmm.coordinator.smoothing import Smoothing
from fastadmm.engine.engine import Engine
from fastadmm.problem.penalty import PartyPenalty
from fastadmm.problem.problem import Problem

__all__ = ["Columns", "Optimum", "minimise_over_columns"]

Array = np.ndarray

#: Outer steps at most; Newton steps of each, and of all together.
_OUTER, _NEWTON, _TOGETHER = 40, 40, 200

#: First length of proximal steps, over that of a gradient step; what it grows by where Newton's method has
#: it easy, which is in at most so many steps; and its growth at most.
_LONG, _LONGER, _EASY, _LONGEST = 10.0, 4.0, 8, 1e8

#: What it is divided by where Newton's method does not end.
_SHORTER = 10.0

#: Newton's method ends at this share of the proximal step's length, over the outer step's number squared.
_SHARE = 0.01

#: Decrease of a step, as a share of what its slope promises, and its least length.
_ARMIJO, _SHORTEST = 1e-4, 1e-6

#: What a new centre of the smoothing multiplies its width by.
_NARROWER = 0.5

#: Margin from both ends of the interval on which a loss has curvature, as a share of its length.
_INSIDE = 1e-3

#: Of the dual's value, lost in its rounding.
_ROUNDING = 1e-14


@dataclass
class Columns:
    """Some columns of a party, and its weights.

    Shapes: numbers (k,); values (N, k); weights (d,).
    """

    penalty: PartyPenalty  # of the whole party, in whose set zero lies
    numbers: Array  # of shape (k,): which columns, increasing
    values: Array  # of shape (N, k)
    weights: Array  # of shape (d,): zero in all other columns

    def whole(self, v: Array) -> Array:
        """v of shape (k,) among all columns."""
        x = np.zeros(len(self.weights))
        x[self.numbers] = v
        return x

    def prox(self, v: Array, step: Array) -> Array:
        """Of h; v, steps and result of shape (k,), steps all the same where h is no sum over columns."""
        penalty = self.penalty
        if penalty.regularizer.separable:
            steps = np.ones(len(self.weights))
            steps[self.numbers] = step
            return penalty.prox(self.whole(v), steps)[self.numbers]
        return penalty.prox(self.whole(v), float(step[0]) if len(step) else 1.0)[self.numbers]

    def share(self, u: Array) -> DualShare:
        """What a gradient of shape (N,) proves with these columns alone."""
        return DualShare.proved(self.penalty, -self.whole(self.values.T @ u))

    def face(self, v: Array) -> tuple[Array, Array]:
        """Places of the weights that are not held, of shape (n,), and h's curvature in them, (n, n)."""
        penalty, x = self.penalty, self.whole(v)
        free = np.flatnonzero(~penalty.held(x)[self.numbers])
        first, second = penalty.coefficients
        bend = second * np.eye(len(free))
        if first > 0.0 and len(free) and not penalty.regularizer.separable:
            units = np.zeros((len(free), len(x)))
            units[np.arange(len(free)), self.numbers[free]] = 1.0
            bend += first * penalty.regularizer.bending(x, units)[1]
        return free, bend


@dataclass(frozen=True)
class Optimum:
    """What was found besides the weights.

    Shapes: gradient (N,).
    """

    intercept: float
    gradient: Array  # of shape (N,)
    length: float  # of the last proximal step
    solved: bool  # whether the goal was reached


@dataclass
class _Joined:
    """All parties' columns side by side, the intercept's last."""

    problem: Problem
    parties: Sequence[Columns]
    engine: Engine
    values: Array = field(init=False)
    cuts: list[slice] = field(init=False)

    def __post_init__(self) -> None:
        n, own = self.problem.n_samples, [party.values for party in self.parties]
        if self.problem.fit_intercept:
            own.append(np.ones((n, 1)))
        self.values = np.hstack(own)
        ends = np.cumsum([0, *(len(party.numbers) for party in self.parties)]).tolist()
        self.cuts = [slice(a, b) for a, b in pairwise(ends)]

    @property
    def last(self) -> int:
        """How many columns are the parties'."""
        return self.cuts[-1].stop

    def steps(self) -> Array:
        """Relative lengths of proximal steps: by the columns' sizes, of all together where h joins them."""
        squares = np.maximum((self.values * self.values).mean(axis=0), 1e-300)
        for party, cut in zip(self.parties, self.cuts):
            if not party.penalty.regularizer.separable and cut.stop > cut.start:
                squares[cut] = squares[cut].mean()
        return np.asarray(1.0 / squares)

    def penalty(self, x: Array) -> float:
        """h(x)."""
        return sum(p.penalty.value(p.whole(x[cut])) for p, cut in zip(self.parties, self.cuts))

    def prox(self, v: Array, step: Array) -> Array:
        """Of h, which leaves the intercept as it is."""
        found = v.copy()
        for party, cut in zip(self.parties, self.cuts):
            found[cut] = party.prox(v[cut], step[cut])
        return found

    def face(self, x: Array) -> tuple[Array, Array]:
        """The face that a point lies on, with the intercept as one more free weight."""
        places, bends = [], []
        for party, cut in zip(self.parties, self.cuts):
            free, bend = party.face(x[cut])
            places.append(cut.start + free)
            bends.append(bend)
        if self.problem.fit_intercept:
            places.append(np.array([self.last]))
            bends.append(np.zeros((1, 1)))
        return np.concatenate(places), scipy.linalg.block_diag(*bends)

    def loss(self, z: Array) -> tuple[float, Array]:
        """Value and gradient at z beside the offset."""
        problem, u = self.problem, np.empty(len(z))
        return problem.loss.evaluate(problem.offset + z, problem.y, problem.weight, u, self.engine), u

    def curvature(self, z: Array) -> Array:
        """Of the loss there."""
        problem, h = self.problem, np.empty(len(z))
        return problem.loss.curvature(problem.offset + z, problem.y, problem.weight, h, self.engine)

    def towards(self, z: Array, image: Array) -> tuple[Array, Array]:
        """The predictors of the same gradient nearest to others, and the curvature from there to them.

        On a flat piece of the loss, a sample's gradient only tells that its predictor is on that piece.
        """
        problem = self.problem
        bends = problem.loss.bends(problem.y)
        if bends is None:
            return z, self.curvature(z)
        low, high = (end - problem.offset for end in bends)
        below, above = z <= low, z >= high
        near = np.where(below, np.minimum(image, low), np.where(above, np.maximum(image, high), z))
        stays = below & (image <= low) | above & (image >= high)
        margin = _INSIDE * (high - low)
        inside = np.where(below | above, np.clip(image, low + margin, high - margin), z)
        return near, np.where(stays, 0.0, self.curvature(inside))


def minimise_over_columns(
    problem: Problem,
    smoothing: Smoothing | None,
    parties: Sequence[Columns],
    intercept: float,
    goal: float,
    length: float,
    engine: Engine,
) -> Optimum:
    """Move the weights of all parties to the best ones in their columns.

    Scaling: goal summed scaling.
    """
    whole = _Joined(problem if smoothing is None else smoothing.smoothed(), parties, engine)
    k, relative = whole.last, whole.steps()
    x = np.concatenate([party.weights[party.numbers] for party in parties])
    if problem.fit_intercept:
        x = np.append(x, intercept)
    usual = float(whole.curvature(whole.values @ x).mean()) if smoothing is None else 1.0 / smoothing.width
    if not 0.0 < usual < math.inf:  # every sample on a flat piece of its loss
        usual = penalty_unit(problem, engine)
    first = _LONG / (usual * problem.n_samples)
    length, lower = length or first, -math.inf
    best, proving = (_value(problem, whole, x), x), np.empty(0)
    taken = 0
    for outer in range(_OUTER):
        if taken >= _TOGETHER:
            break
        found, n_steps = _proximal_step(whole, x, length * relative, outer)
        taken += n_steps
        if n_steps == _NEWTON:  # too long a step, as far as rounding or flat pieces of the loss let one see
            length /= _SHORTER
            continue
        x = found
        total, start = whole.values[:, :k] @ x[:k], float(x[-1]) if problem.fit_intercept else 0.0
        smooth = primal_value(whole.problem, total, start, engine)
        if problem.fit_intercept:
            x[-1] = smooth.intercept
        value = (smooth.loss + whole.penalty(x)) if smoothing is None else _value(problem, whole, x)
        if value < best[0]:
            best = value, x.copy()
        shares = [party.share(smooth.gradient) for party in parties]
        bound = bound_from_shares(problem, smooth.gradient, shares, engine)
        if bound > lower or not len(proving):
            lower, proving = bound, smooth.gradient
        gap = best[0] - lower
        if gap <= goal:
            break
        if smoothing is not None:
            z = problem.offset + total + smooth.intercept
            if smoothing.excess(z, smooth.gradient, gap) > 1.0:
                smoothing.move(smooth.gradient, _NARROWER)
                whole.problem = smoothing.smoothed()
        if n_steps <= _EASY:
            length = min(_LONGER * length, _LONGEST * first)
    x = best[1]
    for party, cut in zip(parties, whole.cuts):
        party.weights = party.whole(x[cut])
    intercept = float(x[-1]) if problem.fit_intercept else 0.0
    return Optimum(intercept, proving, length, best[0] - lower <= goal)


def _value(problem: Problem, whole: _Joined, x: Array) -> float:
    """The objective with the loss itself."""
    z, u = problem.offset + whole.values @ x, np.empty(problem.n_samples)
    return problem.loss.evaluate(z, problem.y, problem.weight, u, whole.engine) + whole.penalty(x)


def _proximal_step(whole: _Joined, start: Array, step: Array, outer: int) -> tuple[Array, int]:
    """The minimiser with the squared distance to the start added, and how many Newton steps it took."""
    b = whole.values

    def dual(z: Array) -> tuple[float, Array, Array]:
        loss, u = whole.loss(z)
        slope = b.T @ u
        p = whole.prox(start - step * slope, step)
        away = p - start
        value = float(u @ z) - loss - float(slope @ p) - whole.penalty(p) - 0.5 * float(away @ (away / step))
        return value, u, p

    z = b @ start
    value, u, p = dual(z)
    for n in range(_NEWTON):
        image = b @ p
        z, h = whole.towards(z, image)
        rest, away = z - image, p - start
        # How far the two predictors are apart, in the loss's own measure; not negative.
        distance = float((u - whole.loss(image)[1]) @ rest)
        if distance <= _SHARE * float(away @ (away / step)) / (1 + outer) ** 2:
            return p, n
        free, system = whole.face(p)
        part = b[:, free]
        weighted = part * h[:, None]
        system += part.T @ weighted
        system[np.diag_indices(len(free))] += 1.0 / step[free]
        try:
            factor = scipy.linalg.cho_factor(system, overwrite_a=True, check_finite=False)
        except (np.linalg.LinAlgError, ValueError):
            return p, _NEWTON
        w = scipy.linalg.cho_solve(factor, weighted.T @ rest, check_finite=False)
        move, t = part @ w - rest, 1.0
        while True:
            following = dual(z + t * move)
            promised = float(rest @ (following[1] - u))
            if following[0] <= value + _ARMIJO * promised + _ROUNDING * abs(value):
                break
            t *= 0.5
            if t < _SHORTEST:
                return p, _NEWTON
        z, (value, u, p) = z + t * move, following
    return p, _NEWTON

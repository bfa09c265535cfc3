r"""Loss and penalties with logarithms in place of their kinks and ends.

A sum of maxima over intervals, which losses with clamped slopes are, becomes

.. math:: \max_u\; u e - \tfrac\gamma2 u^2 + \mu \log(u - a) + \mu \log(b - u),

whose maximiser lies inside :math:`(a, b)`; a norm becomes
:math:`\min_t \kappa t - \mu \log(t^2 - \|x\|^2)`, a bound :math:`-\mu \log(x - l)` and a ball
:math:`-\mu \log(R^2 - \|x\|^2)`. All of these are smooth, and Newton's steps on them do not depend on the
scale of columns (Nesterov and Nemirovskii 1994). At the minimiser the gap is at most :math:`\mu` times the
number of logarithms.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.method.bent_rows import Lines
from fastadmm.method.class_certificate import balancing, multinomial_of
from fastadmm.problem.penalty import PartyPenalty
from fastadmm.problem.problem import Problem
from fastadmm.problem.regularizers import GroupLasso

Array = np.ndarray

#: Some weights, v and c of a part :math:`c\,v v^\top` of a Hessian.
Square = tuple[Array, Array, float]

#: Contributions to predictors that cost as much as a logarithm's factor, where nothing else does.
_FAR = 100.0

#: Steps of Newton's method for the maximisers, from where the nearer end alone would have them.
_STEPS = 30

#: A row that bends less than this adds no equation.
_BENT = 1e-300


class LossBarrier:
    """The loss of all rows."""

    def __init__(self, problem: Problem, engine: Engine) -> None:
        self.problem, self.engine = problem, engine
        self.lines: tuple[Array, Array, Array, Array] | None = None
        ends = problem.loss.bends(problem.y)
        self.n_logarithms = 0
        if ends is None:
            return
        with np.errstate(invalid="ignore", divide="ignore"):
            lines = Lines.of(problem, engine)
            kink = ends[0] == ends[1]
            soft = np.where(kink, 0.0, 1.0 / lines.rise)
            zero = np.where(kink, ends[0], lines.origin - soft * lines.slope)
        counts = problem.weight > 0.0
        soft, zero = np.where(counts, soft, 0.0), np.where(counts, zero, 0.0)
        self.counts = counts
        self.lines = zero[counts], soft[counts], lines.least[counts], lines.most[counts]
        self.n_logarithms = int(np.isfinite(self.lines[2]).sum() + np.isfinite(self.lines[3]).sum())

    def at(self, z: Array, mu: float) -> tuple[float, Array, Array]:
        """Value, gradient and curvature at predictors of shape (N,)."""
        problem, engine = self.problem, self.engine
        g, h = np.zeros(len(z)), np.zeros(len(z))
        if self.lines is None:
            value = problem.loss.evaluate(z, problem.y, problem.weight, g, engine)
            return value, g, problem.loss.curvature(z, problem.y, problem.weight, h, engine)
        value, g[self.counts], h[self.counts] = _clamped(z[self.counts], *self.lines, mu)
        return value, g, h


def _clamped(
    z: Array, zero: Array, soft: Array, low: Array, high: Array, mu: float
) -> tuple[float, Array, Array]:
    """Of samples whose slopes are clamped to ``low`` and ``high``."""
    e = z - zero
    with np.errstate(invalid="ignore"):
        middle = np.where(np.isfinite(low) & np.isfinite(high), 0.5 * (low + high), 0.0)
    # The end that is nearer, with signs so that it is the lower one: p is the distance from it.
    flip = ~np.isfinite(low) | (np.isfinite(high) & (e - soft * middle > 0.0))
    near, far = np.where(flip, -high, low), np.where(flip, -low, high)
    lead, width = np.where(flip, -e, e) - soft * near, far - near
    p = _positive_root(soft, lead, mu)
    finite = np.isfinite(width)
    # Where both ends are finite the root lies in the half next to ``near``.
    p = np.where(finite, np.minimum(p, 0.5 * width), p)
    bottom, top = np.zeros(len(p)), np.where(finite, 0.5 * width, p)
    for _ in range(_STEPS):
        rest = np.where(finite, width - p, 1.0)
        pull = np.where(finite, mu / rest, 0.0)
        value = lead - soft * p + mu / p - pull
        bottom, top = np.where(value > 0.0, p, bottom), np.where(value > 0.0, top, p)
        slope = soft + mu / p**2 + np.where(finite, mu / rest**2, 0.0)
        # In 1 / p the steep term is straight.
        following = p / (1.0 - value / (slope * p))
        inside = (following >= bottom) & (following <= top)
        following = np.where(inside, following, 0.5 * (bottom + top))
        moved = np.abs(following - p) > 1e-15 * p
        p = np.where(moved, following, p)
        if not moved.any():
            break
    rest = np.where(finite, width - p, 1.0)
    u = near + p
    value = np.where(flip, -e, e) * u - 0.5 * soft * u * u + mu * np.log(p)
    value += np.where(finite, mu * np.log(rest), 0.0)
    h = 1.0 / (soft + mu / p**2 + np.where(finite, mu / rest**2, 0.0))
    return float(value.sum()), np.where(flip, -u, u), h


def _positive_root(soft: Array, lead: Array, mu: float) -> Array:
    r"""Positive p with :math:`\gamma p^2 - e p - \mu = 0`."""
    root = np.sqrt(lead * lead + 4.0 * soft * mu)
    with np.errstate(divide="ignore", invalid="ignore"):
        below = 2.0 * mu / (root - lead)
        above = (lead + root) / (2.0 * soft)
    return np.where(lead > 0.0, np.where(soft > 0.0, above, math.inf), np.where(root > lead, below, math.inf))


class PredictorRows(LossBarrier):
    """Rows with one predictor: predictors of all weights, the loss there, and Newton's equations.

    Shapes: values (N, d); none (C,).
    """

    none: Any = 0.0  # of shape (C,): an intercept of zero

    def __init__(self, problem: Problem, values: Array, engine: Engine) -> None:
        super().__init__(problem, engine)
        self.values, self.lead = values, int(problem.fit_intercept)
        #: With ones for an intercept first.
        self.whole = np.column_stack([np.ones(len(values)), values]) if self.lead else values

    def moved(self, step: Array, rise: Any) -> Array:
        """What a step of all weights, and one of the intercept, make of predictors."""
        moved: Array = self.values @ step + rise
        return moved

    def slopes(self, u: Array) -> Array:
        """In all weights, of a gradient."""
        slopes: Array = self.values.T @ u
        return slopes

    def sums(self, u: Array) -> Array:
        """In all intercepts."""
        return np.full(self.lead, u.sum())

    def bent(self, h: Array, along: Array) -> Array:
        """What a curvature makes of a gradient along a step of predictors."""
        return h * along

    def stiff(self, h: Array) -> Array:
        """Diagonal of the Hessian."""
        stiff: Array = ((self.values * self.values) * h[:, None]).sum(axis=0)
        return stiff

    def balanced(self, u: Array, h: Array) -> Array:
        """With an intercept the sum of a loss gradient is to vanish to the last digits."""
        return u - h * (float(u.sum()) / float(h.sum())) if self.lead else u

    def rise(self, step: Array) -> Any:
        """Of the intercept, in a step of shape (lead,)."""
        return float(step.sum())

    def normal(self, u: Array, h: Array) -> tuple[Array, Array]:
        """Hessian and slope in intercepts and weights."""
        whole = self.whole
        return whole.T @ (whole * h[:, None]), whole.T @ u

    def equations(self, u: Array, h: Array) -> tuple[Array, Array]:
        """Rows and right-hand side of the least squares problem that these are the normal equations of."""
        rows = h > _BENT
        root = np.sqrt(h[rows])
        return self.whole[rows] * root[:, None], -u[rows] / root


class ClassRows(PredictorRows):
    r"""Rows with a predictor for each of C classes: all weights stand class by class.

    The loss bends by :math:`s\,(\mathrm{diag}(p) - p p^\top)`, the squares of
    :math:`\sqrt{s p_c}\,(v_c - \langle p, v\rangle)`: C equations for each row, in which
    :math:`1 - p_c` is the sum of the others' probabilities, so that a class that is nearly sure keeps its
    digits. Curvatures are probabilities, of shape (C, N). Intercepts may all move alike: the last stays.
    """

    def __init__(self, problem: Problem, values: Array, engine: Engine) -> None:
        self.problem, self.values, self.engine = problem, values, engine
        self.loss, self.classes = multinomial_of(problem), problem.n_outputs
        self.none, self.n_logarithms = np.zeros(self.classes), 0
        self.whole, each = np.column_stack([np.ones(len(values)), values]), values.shape[1] + 1
        weights = np.arange(self.classes * each).reshape(self.classes, each)
        self.lead = self.classes - 1 if problem.fit_intercept else 0
        #: Where intercepts and weights are in blocks of every class's intercept and weights.
        self.order = np.append(weights[: self.lead, 0], weights[:, 1:].ravel())

    def moved(self, step: Array, rise: Any) -> Array:
        return (step.reshape(self.classes, -1) @ self.values.T + rise[:, None]).ravel()

    def at(self, z: Array, mu: float) -> tuple[float, Array, Array]:
        problem, g = self.problem, np.empty_like(z)
        given = problem.y, problem.weight
        value = self.loss.evaluate(z, *given, g, self.engine)
        return value, g, self.loss.probabilities(z, *given, self.engine)

    def slopes(self, u: Array) -> Array:
        slopes: Array = (u.reshape(self.classes, -1) @ self.values).ravel()
        return slopes

    def sums(self, u: Array) -> Array:
        sums: Array = u.reshape(self.classes, -1).sum(axis=1)[: self.lead]
        return sums

    def bent(self, h: Array, along: Array) -> Array:
        direction = np.ascontiguousarray(along.reshape(self.classes, -1))
        return self.loss.action(h, self.problem.weight, direction, self.engine).ravel()

    def _others(self, h: Array) -> Array:
        """1 - p, of shape (C, N)."""
        others: Array = (1.0 - np.eye(self.classes)) @ h
        return others

    def stiff(self, h: Array) -> Array:
        stiff: Array = (self.problem.weight * h * self._others(h)) @ (self.values * self.values)
        return stiff.ravel()

    def balanced(self, u: Array, h: Array) -> Array:
        if not self.lead:
            return u
        weighted, excess = self.problem.weight * h, u.reshape(self.classes, -1).sum(axis=1)
        sums = -weighted @ h.T
        np.fill_diagonal(sums, (weighted * self._others(h)).sum(axis=1))
        return u - self.bent(h, np.repeat(balancing(sums, excess), len(self.values)))

    def rise(self, step: Array) -> Any:
        return np.append(step, np.zeros(self.classes - len(step)))

    def normal(self, u: Array, h: Array) -> tuple[Array, Array]:
        classes, each = self.classes, self.whole.shape[1]
        weighted, others = self.problem.weight * h, self._others(h)
        system = np.empty((classes * each, classes * each))
        for c in range(classes):
            for k in range(c + 1):
                bend = weighted[c] * (others[c] if c == k else -h[k])
                block = self.whole.T @ (self.whole * bend[:, None])
                system[c * each :, k * each :][:each, :each] = block
                system[k * each :, c * each :][:each, :each] = block.T
        right = (u.reshape(classes, -1) @ self.whole).ravel()
        return system[np.ix_(self.order, self.order)], right[self.order]

    def equations(self, u: Array, h: Array) -> tuple[Array, Array]:
        weighted, others = self.problem.weight * h, self._others(h)
        found, right = [], []
        for c, own in enumerate(u.reshape(self.classes, -1)):
            rows = weighted[c] > _BENT
            root = np.sqrt(weighted[c, rows])
            factors = -h[:, rows]
            factors[c] = others[c, rows]
            parts = (factors * root)[:, :, None] * self.whole[rows]
            found.append(np.concatenate(list(parts), axis=1)[:, self.order])
            right.append(-own[rows] / root)
        return np.vstack(found), np.concatenate(right)


class PenaltyBarrier:
    """Penalties and sets of all blocks, over all weights side by side. Shapes: size (d,)."""

    def __init__(self, penalties: Sequence[PartyPenalty], widths: Sequence[int], size: Array) -> None:
        d, self.unit = sum(widths), 1.0 / size
        # Weights that nothing keeps from going on and on with the logarithms.
        self.hold = np.zeros(d)
        self.norm, self.ridge, self.linear = np.zeros(d), np.zeros(d), np.zeros(d)
        self.low, self.high = np.full(d, -math.inf), np.full(d, math.inf)
        self.groups: list[tuple[Array, float]] = []
        self.balls: list[tuple[Array, float]] = []
        begin = 0
        for penalty, width in zip(penalties, widths, strict=True):
            own, begin = np.arange(begin, begin + width), begin + width
            (first, second), (low, high) = penalty.coefficients, penalty.constraint.bounds
            self.ridge[own], self.low[own], self.high[own] = second, low, high
            if math.isfinite(penalty.constraint.radius):
                self.balls.append((own, penalty.constraint.radius))
            elif first == second == 0.0 and not math.isfinite(high - low):
                self.hold[own] = (size[own] / _FAR) ** 2
            if first > 0.0 and penalty.regularizer.separable:
                inside = low < 0.0 < high
                (self.norm if inside else self.linear)[own] = first if inside or low >= 0.0 else -first
            elif first > 0.0:
                regularizer = penalty.regularizer
                assert isinstance(regularizer, GroupLasso)
                self.groups += [
                    (own[g], first * float(f)) for g, f in zip(regularizer.members, regularizer.factors)
                ]
        self.kinked = np.flatnonzero(self.norm)
        self.bounded = [np.flatnonzero(np.isfinite(end)) for end in (self.low, self.high)]
        self.n_logarithms = 2 * len(self.kinked) + sum(map(len, self.bounded))
        self.n_logarithms += 2 * len(self.groups) + len(self.balls)

    @property
    def has_inside(self) -> bool:
        """Whether every weight has room."""
        return bool((self.low < self.high).all())

    def inside(self, size: Array) -> Array:
        """A point inside all sets, near zero: at most so far from bounds, of shape (d,)."""
        room = np.minimum(size, 0.25 * (self.high - self.low))
        x = np.clip(0.0, self.low + room, self.high - room)
        for own, radius in self.balls:
            x[own] *= min(1.0, 0.5 * radius / max(float(np.linalg.norm(x[own])), 1e-300))
        return x

    def longest(self, x: Array, step: Array) -> float:
        """How far a step may go from a point inside; may be infinite."""
        length = math.inf
        for end, sign, own in zip((self.low, self.high), (-1.0, 1.0), self.bounded):
            towards = sign * step[own]
            if (near := towards > 0.0).any():
                length = min(length, float((sign * (end[own] - x[own])[near] / towards[near]).min()))
        for own, radius in self.balls:
            a, b, left = step[own] @ step[own], x[own] @ step[own], radius**2 - x[own] @ x[own]
            if a > 0.0:
                root = math.sqrt(max(float(b * b + a * left), 0.0))
                length = min(length, float(left / (b + root) if b > 0.0 else (root - b) / a))
        return length

    def holds(self, x: Array) -> bool:
        """Whether a point is inside all sets."""
        balls = all(float(x[own] @ x[own]) < radius**2 for own, radius in self.balls)
        return balls and bool(((x > self.low) & (x < self.high)).all())

    def at(self, x: Array, mu: float) -> tuple[float, Array, Array, list[Square]]:
        """Of a point inside value, gradient and Hessian: a diagonal, and squares."""
        bend = self.ridge + mu * self.hold
        value = float(self.linear @ x) + 0.5 * float((bend * x) @ x)
        slope = self.linear + bend * x
        squares: list[Square] = []
        for end, sign, own in zip((self.low, self.high), (-1.0, 1.0), self.bounded):
            room = sign * (end[own] - x[own])
            value -= mu * float(np.log(room).sum())
            slope[own] += sign * mu / room
            bend[own] += mu / room**2
        norm, own = self.norm[self.kinked], x[self.kinked]
        root = np.sqrt(mu * mu + (norm * own) ** 2)
        t = (mu + root) / norm
        value += float((norm * t - mu * np.log(2.0 * mu * t / norm)).sum())
        slope[self.kinked] += norm * own / t
        bend[self.kinked] += norm * mu / (t * root)
        for group, factor in self.groups:
            part = x[group]
            square = float(part @ part)
            size = math.sqrt(mu * mu + factor * factor * square)
            height = (mu + size) / factor
            value += factor * height - mu * math.log(2.0 * mu * height / factor)
            slope[group] += (factor / height) * part
            bend[group] += factor / height
            squares.append((group, part, -(factor**2) / (height * height * size)))
        for ball, radius in self.balls:
            part = x[ball]
            left = radius**2 - float(part @ part)
            value -= mu * math.log(left)
            slope[ball] += (2.0 * mu / left) * part
            bend[ball] += 2.0 * mu / left
            squares.append((ball, part, 4.0 * mu / left**2))
        return value, slope, bend, squares

    def on_ends(self, x: Array, mu: float, stiff: Array) -> Array:
        """The weights that logarithms alone keep from a kink or bound set to it; ``stiff`` of shape (d,)."""
        found = x.copy()
        for end, sign, own in zip((self.low, self.high), (-1.0, 1.0), self.bounded):
            room = sign * (end[own] - x[own])
            at = own[room * room * stiff[own] < mu]
            found[at] = end[at]
        norm, own = self.norm[self.kinked], x[self.kinked]
        root = np.sqrt(mu * mu + (norm * own) ** 2)
        slack = norm * mu * (mu + norm * np.abs(own) + root) / ((mu + root) * (root + norm * np.abs(own)))
        found[self.kinked[np.abs(own) * stiff[self.kinked] < slack]] = 0.0
        for group, factor in self.groups:
            size = float(np.linalg.norm(x[group]))
            whole = math.sqrt(mu * mu + (factor * size) ** 2)
            slack_of = factor * mu * (mu + factor * size + whole) / ((mu + whole) * (whole + factor * size))
            if size * float(stiff[group].max()) < slack_of:
                found[group] = 0.0
        return found

    def free(self, x: Array, mu: float, near: float) -> tuple[Array, Array]:
        """Which weights of the path are off their kinks and ends, and the penalty's slope there.

        What a weight at a kink adds to the penalty falls with the factor, and what one at an end keeps of the
        objective does not: ``near`` lies between. A ball pulls as its logarithm does.
        """
        free = np.ones(len(x), dtype=bool)
        for end, sign, own in zip((self.low, self.high), (-1.0, 1.0), self.bounded):
            room = sign * (end[own] - x[own])
            free[own] &= mu * np.minimum(self.high - self.low, self.unit)[own] <= near * room
        free[self.kinked] &= self.norm[self.kinked] * np.abs(x[self.kinked]) > near
        slope = self.linear + self.ridge * x + self.norm * np.sign(x)
        for group, factor in self.groups:
            size = float(np.linalg.norm(x[group]))
            free[group] &= factor * size > near
            slope[group] += (factor / max(size, 1e-300)) * x[group]
        for ball, radius in self.balls:
            slope[ball] += (2.0 * mu / (radius**2 - float(x[ball] @ x[ball]))) * x[ball]
        return free, slope

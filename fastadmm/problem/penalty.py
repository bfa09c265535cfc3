r"""Regulariser and set of one party together: :math:`h = \lambda W R + \mathrm{ind}_X`.

Its proximal operator and its conjugate are closed formulas where the set is
all space, the non-negative orthant or a ball (:math:`\Omega`, orthant and
radial terms compose), and where both parts are sums over columns.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastadmm.errors import ConfigError
from fastadmm.problem.constraints import AllSpace, Box, Constraint, NonNegative, Simplex
from fastadmm.problem.loss import Loss
from fastadmm.problem.regularizers import GroupLasso, LogSum, Regularizer, SquaredL2

Array = np.ndarray

#: A scaled dual point stays inside the feasible set by this much, for rounding.
_MARGIN = 1e-14

#: Pieces of a way along which the norm is smooth but not linear.
_PIECES = 8


def check_compatible(regularizer: Regularizer, constraint: Constraint, loss: Loss | None = None) -> None:
    """Refuse combinations without a proximal operator or a guarantee; all others are allowed."""
    if not regularizer.convex and loss is not None and loss.vector:
        raise ConfigError(
            f"regularizer: {regularizer.name} is not convex, and no descent is available with {loss.name}; "
            "choose a convex regularizer"
        )
    if not regularizer.convex and loss is not None and loss.gradient_lipschitz is None:
        raise ConfigError(
            f"regularizer: {regularizer.name} is not convex, and {loss.name} has no Lipschitz constant "
            "of its gradient, without which no penalty guarantees descent; choose another of the two"
        )
    if not regularizer.separable and isinstance(constraint, Box):
        raise ConfigError(
            f"constraint: {regularizer.name} in a box has no proximal operator here; "
            "choose nonnegative, ball:RADIUS or all, or a regularizer that is a sum over columns"
        )
    sums = regularizer.separable and regularizer.convex  # on a simplex the l1 norm is a constant
    if constraint.coupled and not (sums and (isinstance(constraint, Simplex) or not regularizer.shares[0])):
        others = "l2, none, l1 or elastic_net" if isinstance(constraint, Simplex) else "l2 or none"
        kind = constraint.text.partition(":")[0]
        raise ConfigError(
            f"constraint: {regularizer.name} with {kind} has no proximal operator here; choose {others}"
        )


def is_ridge(regularizer: Regularizer, constraint: Constraint) -> bool:
    """Whether a regularizer and a constraint are squared l2 and all space."""
    return isinstance(regularizer, SquaredL2) and isinstance(constraint, AllSpace)


def is_one_sum(regularizers: Sequence[Regularizer], constraints: Sequence[Constraint]) -> bool:
    """Whether the parties' regularisers and sets are one sum over all weights, and zero is in the set."""
    alike = {(r.shares, c.bounds) for r, c in zip(regularizers, constraints)}
    around = all(
        math.isinf(c.radius) and not c.coupled and c.bounds[0] <= 0.0 <= c.bounds[1] for c in constraints
    )
    return len(alike) == 1 and around and all(own.separable for own in regularizers)


def penalty_traits(regularizers: Sequence[Regularizer], constraints: Sequence[Constraint]) -> dict[str, bool]:
    """What the parties' regularisers and sets tell of a problem's traits."""
    pairs = list(zip(regularizers, constraints))
    return {
        "ridge": all(is_ridge(own, allowed) for own, allowed in pairs),
        "convex_penalty": all(own.convex for own in regularizers),
        "a_sum": is_one_sum(regularizers, constraints),
        "coupled": any(allowed.coupled for allowed in constraints),
        "log_sum": all(isinstance(r, LogSum) and isinstance(c, AllSpace) for r, c in pairs),
    }


@dataclass(frozen=True)
class PartyPenalty:
    r""":math:`h(x) = \kappa R(x)` on X, infinite elsewhere. Scaling: strength summed scaling."""

    regularizer: Regularizer
    constraint: Constraint
    strength: float

    @property
    def is_ridge(self) -> bool:
        """Whether this is squared l2 without a set."""
        return is_ridge(self.regularizer, self.constraint)

    @property
    def coefficients(self) -> tuple[float, float]:
        r"""Factors of :math:`\Omega(x)` and :math:`\tfrac12\|x\|^2`."""
        first, second = self.regularizer.shares
        return self.strength * first, self.strength * second

    @property
    def bounds(self) -> bool:
        r"""Whether a square or a set bounds all weights: :math:`h^*` is then finite everywhere."""
        boxed = all(map(math.isfinite, self.constraint.bounds)) or isinstance(self.constraint, Simplex)
        return self.coefficients[1] > 0.0 or math.isfinite(self.constraint.radius) or boxed

    @property
    def radial(self) -> bool:
        r"""Whether h is a function of :math:`\|x\|` alone: a rotation of all columns does not change it."""
        one_group = isinstance(self.regularizer, GroupLasso) and len(self.regularizer.members) == 1
        free = self.constraint.bounds == (-math.inf, math.inf) and not self.constraint.coupled
        return free and (self.regularizer.shares[0] == 0.0 or one_group)

    def value(self, x: Array) -> float:
        r""":math:`\kappa R(x)` for x of shape (d,) in the set."""
        return self.strength * self.regularizer.value(x)

    def pull(self, slope: Array) -> Array:
        """How much each weight at zero is pulled away from it, where the set has room. Shapes: slope (d,)."""
        low, high = self.constraint.bounds
        return np.maximum(slope if low < 0.0 else 0.0, -slope if high > 0.0 else 0.0)

    def prox(self, v: Array, step: Any) -> Array:
        r"""Minimise :math:`\text{step}\cdot h(x) + \tfrac12 \|x - v\|^2`; v and result of shape (d,).

        Where h is a sum over columns, each may have a step of its own: of shape (d,) then.
        """
        if isinstance(self.constraint, Simplex):  # its l1 norm is a constant
            return self.constraint.project(v / (1.0 + step * self.coefficients[1]))
        if isinstance(self.constraint, NonNegative):
            v = self.constraint.project(v)  # before shrinking: a group shrinks by its positive part alone
        return self.constraint.project(self.regularizer.prox(v, step * self.strength))

    def gradient_map(self, x: Array, q: Array, step: float = 1.0) -> Array:
        r"""Prox-gradient map :math:`(x - \mathrm{prox}_{t h}(x - t q)) / t`: zero where q is balanced by h.

        A smooth non-convex R counts to the gradient: with :math:`\mathrm{proj}_X(x - t (q + \kappa \nabla
        R(x)))`.

        Shapes: x, q (d,).
        """
        if isinstance(self.regularizer, LogSum):
            slope = q + self.strength * self.regularizer.gradient(x)
            return (x - self.constraint.project(x - step * slope)) / step
        return (x - self.prox(x - step * q, step)) / step

    def held(self, x: Array) -> Array:
        r"""Which weights of a point of the set sit at a kink of :math:`\Omega` or at a bound.

        Shapes: x, the result (d,).
        """
        low, high = self.constraint.bounds
        held = (x == low) | (x == high)
        return held | self.regularizer.at_kink(x) if self.regularizer.shares[0] > 0.0 else held

    def crossings(self, x: Array, y: Array) -> tuple[Array, Array]:
        r"""Where each weight on the way from x to y meets a kink of :math:`\Omega` or a bound.

        Shapes: x, y, at, value (d,).
        """
        at, value = self._bounds_met(x, y)
        kink = self.regularizer.passes_zero(x, y) if self.regularizer.shares[0] > 0.0 else np.inf
        first = kink <= at
        return np.where(first, kink, at), np.where(first, 0.0, value)

    def _bounds_met(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Where each weight on the way from x to y meets a bound, infinite where none, and which it is."""
        (low, high), step = self.constraint.bounds, y - x
        with np.errstate(divide="ignore", invalid="ignore"):
            at = np.where(step > 0.0, (high - x) / step, np.where(step < 0.0, (low - x) / step, np.inf))
        return at, np.where(step > 0.0, high, low)

    def kinks_between(self, x: Array, y: Array) -> list[float]:
        r"""Places t in (0, 1] on the way x + t (y - x) that cut :math:`\Omega` into (nearly) linear pieces.

        Where the way leaves the set the list ends, at the boundary. For an
        :math:`\Omega` that is not the l1 norm they are evenly spaced.

        Shapes: x, y (d,).
        """
        room, _ = self._bounds_met(x, y)
        with np.errstate(divide="ignore", invalid="ignore"):
            crossing = -x / (y - x)
        end = min(1.0, float(room.min()), self.leaves_ball(x, y))
        if not end > 0.0:
            return []
        if not self.regularizer.separable:
            return [end * k / _PIECES for k in range(1, _PIECES + 1)]
        inside = crossing[(crossing > 0.0) & (crossing < end)] if self.regularizer.shares[0] > 0.0 else []
        return sorted({float(t) for t in inside} | {end})

    def on_the_way(self, x: Array, y: Array, at: float) -> Array:
        """The point at a place of :meth:`kinks_between`, its weights exactly on the kinks they meet."""
        step = y - x
        point = x + at * step
        if self.regularizer.separable and self.regularizer.shares[0] > 0.0:
            point[np.abs(point) <= 1e-12 * (np.abs(x) + np.abs(at * step))] = 0.0
        for bound in self.constraint.bounds:
            if math.isfinite(bound):
                near = np.abs(point - bound) <= 1e-12 * (np.abs(x) + np.abs(at * step) + abs(bound))
                point[near & (step != 0.0)] = bound
        return self.constraint.project(point)

    def leaves_ball(self, x: Array, y: Array) -> float:
        """Where the line from x, in the ball, to y leaves it; y is at 1, infinite without a ball.

        Shapes: x, y (d,).
        """
        step = y - x
        square, half = float(step @ step), float(x @ step)
        if math.isinf(self.constraint.radius) or square == 0.0:
            return math.inf
        left = max(self.constraint.radius**2 - float(x @ x), 0.0)
        return (math.sqrt(half * half + square * left) - half) / square

    def largest_scale(self, q: Array) -> float:
        r"""Largest :math:`\alpha \in [0, 1]` for which :math:`h^*(\alpha q)` is finite; q of shape (d,).

        With :math:`\kappa' = \kappa\alpha_R` the factor of :math:`\Omega`, it is
        :math:`\kappa' / \Omega^\circ(q)` where neither a square nor a
        set bounds x, and 0 without :math:`\Omega` there.
        """
        first, second = self.coefficients
        if second > 0.0 or math.isfinite(self.constraint.radius) or isinstance(self.constraint, Simplex):
            return 1.0
        low, high = self.constraint.bounds
        if first == 0.0 and not (math.isfinite(low) and math.isfinite(high)):
            return 1.0 if self._pulls_inwards(q) else 0.0
        return self._scale_within(self._unbounded(q))

    def free_scale(self, q: Array, error: Any = 0.0) -> float:
        r"""Largest :math:`\alpha \in [0, 1]` for which :math:`h^*(\alpha q')` is zero, of all q' near q.

        0 without :math:`\Omega`, and where the set leaves zero out. Where a set or a square makes
        :math:`h^*` finite everywhere, it may prove more than :math:`\alpha = 1`: what q has beyond
        :math:`\kappa'` costs there as much as weights can grow.

        Shapes: q, error (d,).
        """
        low, high = self.constraint.bounds
        if self.coefficients[0] == 0.0 or self.constraint.coupled or not low <= 0.0 <= high:
            return 0.0
        pulls = (q + error > 0.0) & (high > 0.0) | (q - error < 0.0) & (low < 0.0)
        return self._scale_within(np.where(pulls, np.abs(q) + error, 0.0))

    def _scale_within(self, q: Array) -> float:
        r"""Largest :math:`\alpha \le 1` whose :math:`\alpha q` has a dual norm of at most :math:`\kappa'`."""
        first, size = self.coefficients[0], self.regularizer.dual_norm(q)
        return 1.0 if size <= first * (1.0 - _MARGIN) else first * (1.0 - 2.0 * _MARGIN) / size

    def conjugate(self, q: Array) -> float:
        r""":math:`h^*(q) = \max_{x \in X} \langle q, x\rangle - \kappa R(x)` for q of shape (d,).

        Without a box it is :math:`\max_{0 \le t \le B} t \|s\| - \tfrac c2 t^2`
        with s the shrunk q (its positive part in the orthant); in a box a sum
        over columns. Infinite where the maximum is.
        """
        if self.constraint.coupled:
            free, left, paid, _ = self._uncoupled(np.zeros_like(q), q, 0.0)
            return free.conjugate(left) + paid
        first, second = self.coefficients
        radius = self.constraint.radius
        if isinstance(self.constraint, Box):
            return float(self._box_conjugates(q).sum())
        if second == 0.0 and math.isinf(radius):
            return 0.0 if self.regularizer.dual_norm(self._unbounded(q)) <= first else math.inf
        norm = float(np.linalg.norm(self.regularizer.shrink(self._unbounded(q), first)))
        at = min(radius, norm / second) if second > 0.0 else radius
        return at * norm - 0.5 * second * at * at

    def pushed(self, q: Array, error: Any) -> Array:
        r"""Of all vectors within an error of q the one that asks most of the weights; all of shape (d,).

        Shapes: q, error (d,).
        """
        low, high = self.constraint.bounds
        if math.isfinite(low) and not math.isfinite(high):
            return q + error
        if math.isfinite(high) and not math.isfinite(low):
            return q - error
        return np.copysign(np.abs(q) + error, q)

    def gap_at(self, x: Array, q: Array, error: Any) -> float:
        r"""Upper bound of :math:`h(x) + h^*(q') - \langle q', x\rangle` over :math:`|q'_j - q_j| \le e_j`.

        Not negative by Fenchel's inequality, and zero where x is optimal for q. Rounding of this function
        itself is included.

        Shapes: x, q, error (d,).
        """
        if self.constraint.coupled:
            free, left, paid, error = self._uncoupled(x, q, error)
            return free.gap_at(x, left, error) + max(paid, 0.0)
        if self.is_ridge:  # one square, in which nothing cancels
            held = self.strength * x
            left = np.abs(q - held) + (error + 2.0**-52 * np.abs(held))
            return float(left @ left) / (2.0 * self.strength) * (1.0 + (len(x) + 8) * 2.0**-52)
        size, value = np.abs(x), self.value(x)
        if isinstance(self.constraint, Box):
            # Convex, so the largest is at an end for each column.
            conjugate = float(np.maximum(*map(self._box_conjugates, (q - error, q + error))).sum())
        else:
            conjugate = self.conjugate(self.pushed(q, error))
        total = value + conjugate - float(q @ x) + float((error * size).sum())
        rounding = (len(x) + 16) * 2.0**-52 * (value + abs(conjugate) + float(np.abs(q) @ size))
        return max(total, 0.0) + rounding

    def gap_by_norms(self, x: Array, q: Array, error: float, scale: float) -> float:
        """As :meth:`gap_at` at a scale times q, of a radial h: with an error in the norm of q.

        Shapes: x, q (d,).
        """
        size, pull, few = float(np.linalg.norm(x)), float(np.linalg.norm(q)), (len(x) + 20) * 2.0**-52
        farthest = q * (1.0 + error / pull) if pull > 0.0 else np.full(len(x), error / math.sqrt(len(x)))
        value, conjugate = self.value(x), self.conjugate(scale * farthest)
        total = value + conjugate - scale * float(q @ x) + scale * error * size
        return max(total, 0.0) + 2.0 * few * (value + abs(conjugate) + scale * pull * size)

    def gap_within(self, x: Array, q: Array, error: Any, deviations: Array, reach: float) -> float:
        r"""As :meth:`gap_at` of a homogeneous h, among weights with :math:`|x_j| s_j \le R`.

        Infinite where x itself is none of these, and of any other h.

        Shapes: x, q, error, deviations (d,).
        """
        if self.constraint.coupled and not self.bounds:
            free, left, paid, error = self._uncoupled(x, q, error)
            return free.gap_within(x, left, error, deviations, reach) + max(paid, 0.0)
        moves, pull = deviations > 0.0, self.pushed(q, error)
        if (
            not self.homogeneous
            or (np.abs(x) * deviations > reach).any()
            or (~moves & (np.abs(pull) > 0.0)).any()
        ):
            return math.inf
        most = self.excess(np.where(moves, pull, 0.0), np.where(moves, deviations, 1.0)) * reach
        total = (self.value(x) + most) * (1.0 + (len(x) + 20) * 2.0**-52) - float(q @ x)
        return max(total, 0.0) + float((error * np.abs(x)).sum())

    @property
    def homogeneous(self) -> bool:
        r"""Whether :math:`h(tx) = t\, h(x)` for all :math:`t > 0`: a norm, or nothing, on a cone.

        :math:`h^*` is then zero or infinite.
        """
        low, high = self.constraint.bounds
        endless = math.isinf(self.constraint.radius) and {low, high} <= {0.0, -math.inf, math.inf}
        return endless and not self.constraint.coupled and self.coefficients[1] == 0.0

    def excess(self, q: Array, scale: Array) -> float:
        r"""Of a homogeneous h, a bound of :math:`\langle q, x\rangle - h(x)` where :math:`s_j |x_j| \le 1`.

        What shrinking leaves of q: :math:`\Omega` pays for the rest.

        Shapes: q, scale (d,).
        """
        left = self.regularizer.shrink(self._unbounded(q), self.coefficients[0])
        return float((np.abs(left) / scale).sum())

    def _uncoupled(self, x: Array, q: Array, error: Any) -> tuple["PartyPenalty", Array, float, Any]:
        r"""The penalty without the equations A x = a of its set, and q less what multipliers of these take.

        For every :math:`\nu`, :math:`h^*(q) \le \langle\nu, a\rangle + g^*(q - A^\top\nu)` with g as h
        without the equations; the best multipliers make the two equal. Also what the multipliers pay,
        :math:`\langle\nu, a - A x\rangle`, rounding where x meets the equations, and the error with that of
        the subtraction.

        Shapes: x, q, the left of q, error (d,).
        """
        (first, second), allowed = self.coefficients, self.constraint
        rows, values = allowed.equations(len(q))
        if isinstance(allowed, Simplex):
            top = float((q + error).max())
            if second > 0.0:
                away = second * allowed.threshold((q - top) / second) + top - first
            else:  # nothing may be left above the l1 norm's share
                away = top - first + 32.0 * 2.0**-52 * float(np.abs(q).max() + np.abs(error).max() + first)
            multipliers = np.array([away])
        else:  # orthonormal rows
            multipliers = rows @ q - second * values
        sizes, few = np.abs(multipliers), (len(q) + 8) * 2.0**-52
        error = error + (len(values) + 4) * 2.0**-52 * (np.abs(q) + np.abs(rows.T) @ sizes)
        paid = float(multipliers @ (values - rows @ x))
        paid += few * float(sizes @ (np.abs(values) + np.abs(rows) @ np.abs(x)))
        without = NonNegative() if isinstance(allowed, Simplex) else AllSpace()
        return replace(self, constraint=without), q - rows.T @ multipliers, paid, error

    def _pulls_inwards(self, q: Array) -> bool:
        """Whether no weight is pulled in a direction without end; rounding counts as a pull, zero not."""
        low, high = self.constraint.bounds
        slack = _MARGIN * float(np.abs(q).max(initial=0.0))
        upwards, downwards = math.isinf(high) & (q > -slack), math.isinf(low) & (q < slack)
        return not ((upwards | downwards) & (q != 0.0)).any()

    def _unbounded(self, q: Array) -> Array:
        """The part of q that pulls a weight in a direction without end."""
        low, high = self.constraint.bounds
        if math.isfinite(low):
            q = np.maximum(q, 0.0)
        return np.minimum(q, 0.0) if math.isfinite(high) else q

    def _box_conjugates(self, q: Array) -> Array:
        """The conjugate's terms of each column; one that is infinite makes all so."""
        (low, high), (first, second) = self.constraint.bounds, self.coefficients
        if second == 0.0 and np.abs(self._unbounded(q)).max() > first:
            return np.full_like(q, math.inf)
        if second > 0.0:
            x = np.clip(self.regularizer.shrink(q, first) / second, low, high)
            return q * x - first * np.abs(x) - 0.5 * second * x * x
        # Piecewise linear: the best of the ends and the kink.
        nearest = min(max(0.0, low), high)
        ends = [np.full_like(q, end) for end in (nearest, low, high) if math.isfinite(end)]
        return np.max([q * x - first * np.abs(x) for x in ends], axis=0)

r"""Minimise the true objective over the span of all messages so far.

.. math:: \min_{c, b}\; \sum_i s_i\, \ell\bigl(o_i + b + (V^\top c)_i\bigr) + \frac{\lambda W}{2} \|c\|^2

Rows of V are messages :math:`D_m d` of orthonormal directions d, so the
regulariser of the weights is that of the coefficients. The method is Newton's, with a
Hessian that is kept as long as its steps contract (the *chord* method, with BFGS
corrections): each step is then one pass over V instead of K. Contraction is measured
at every step. If a step does not decrease the objective enough even with the Hessian of
its own point (losses with flat pieces, exponentials), a line search along it finds the
root of the derivative.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.engine.singular import factorised
from fastadmm.method.certificate import Known
from fastadmm.method.line_length import best_length
from fastadmm.method.span_hessian import SpanHessian
from fastadmm.problem.loss import Loss
from fastadmm.problem.problem import Problem

_MAX_STEPS = 60

#: A chord step may leave at most this share of the possible gain; else the Hessian is computed anew.
_CONTRACTION = 0.1

#: With so few messages a new Hessian at every point costs no more than a pass.
_FEW_MESSAGES = 10


@dataclass
class SpanPoint:
    """A point of the span.

    Shapes: coefficients (K,) or (C, K); intercept (C,); total, gradient (N,) or (C N,); products (K,).
    """

    coefficients: np.ndarray  # of shape (K,) or (C, K)
    intercept: Any  # of several classes of shape (C,)
    total: np.ndarray  # of shape (N,) or (C N,): the sum of all parties' messages
    loss: float = math.nan  # summed loss at the point; NaN while unknown
    gradient: np.ndarray | None = None  # of shape (N,) or (C N,)
    sums: tuple[float, float] | None = None
    products: np.ndarray | None = None  # of shape (K,): of messages and gradient; None while unknown

    @property
    def known(self) -> Known | None:
        """Loss, gradient and its sums; None while they are unknown."""
        return None if self.gradient is None or self.sums is None else (self.loss, self.gradient, self.sums)


#: Share of the objective below which a decrease is lost in its rounding, and the rounding itself.
_FLAT, _ROUNDING = 1e-13, 1e-15

#: Share below which it may be lost: sums of columns of very different sizes are less exact.
_HIDDEN = 1e-9

#: If the slopes decide, at most this share of the derivative along a step may be left at its end.
_LEFT = 0.9

#: After so many steps in a row that do not improve the proved gap, Newton's method ends.
_MOST_IDLE = 3


@dataclass(frozen=True)
class SomeRows:
    """What the span needs of a problem, for some of its rows. Shapes: y, weight, offset (n,)."""

    n_outputs: ClassVar[int] = 1  # 1
    loss: Loss
    y: np.ndarray  # of shape (n,)
    weight: np.ndarray  # of shape (n,)
    offset: np.ndarray  # of shape (n,)
    regularization: float  # of the whole problem
    total_weight: float  # of the whole problem
    fit_intercept: bool

    @classmethod
    def of(
        cls, problem: Problem | SomeRows, rows: np.ndarray, engine: Engine, heavier: float = 1.0
    ) -> SomeRows:
        """The rows with these numbers, of shape (n,), and their weights times ``heavier``.

        ``engine`` is that of the chosen rows.
        """
        from fastadmm.kernels.vectors import chosen

        found = np.empty((3, len(rows)))
        vectors, factors = (problem.y, problem.weight, problem.offset), np.array([1.0, heavier, 1.0])
        engine.over_rows(chosen, engine.leaves(len(rows)), vectors, rows, factors, found)
        y, weight, offset = found
        whole = problem.regularization, problem.total_weight, problem.fit_intercept
        return cls(problem.loss, y, weight, offset, *whole)


@dataclass
class Here:
    """A point with what a pass over V at it gives. Shapes: slope (K,), (K + 1,) or such rows by class."""

    point: SpanPoint
    slope: np.ndarray  # in intercept (first, if there is one) and coefficients
    value: float  # the objective


def minimise_over_span(
    problem: Problem | SomeRows,
    messages: np.ndarray,
    point: SpanPoint,
    tolerance: float,
    engine: Engine,
    hessian: SpanHessian | None = None,
    tilt: np.ndarray | None = None,
) -> SpanPoint:
    """Newton's method from a point; never returns a worse one.

    Shapes: messages (K, N); tilt (K,) or (K + 1,).
    Scaling: tolerance, tilt summed scaling.
    """
    if hessian is None:
        hessian = SpanHessian(problem.fit_intercept)
    span = Span(problem, messages, engine, tilt)
    fresh = hessian.reference is None or len(messages) <= _FEW_MESSAGES
    if point.gradient is None or not math.isfinite(point.loss):
        point = span.evaluated(point)
    # The pass that brings the Hessian up to date gives the slope, too.
    products = (
        span.renew(hessian, point, point.gradient)
        if fresh
        else hessian.extend(messages, cast(np.ndarray, point.gradient), engine)
    )
    here = span.here(point, products)
    solve = Secant(span.solver(hessian))
    solved: np.ndarray | None = None  # for the slope here
    best = Best(span, here, _MOST_IDLE)
    for _ in range(_MAX_STEPS):
        step = -(solve(here.slope) if solved is None else solved)
        solved = None
        decrease = -float(here.slope @ step)
        if not (math.isfinite(decrease) and decrease > 0.0):
            break
        trial = span.advance(here, step)
        if not is_lower(span, here, trial, step):
            if not fresh:
                span.renew(hessian, here.point)
                solve, fresh = Secant(span.solver(hessian)), True
                continue
            if decrease <= _FLAT * abs(here.value):
                break
            step = step * span.best_length(here, step, trial)
            trial = span.advance(here, step)
            if not trial.value < here.value:
                break
        solve.learn(step, trial.slope - here.slope)
        here, fresh = trial, False
        if best.take(here, decrease, tolerance):
            break
        if decrease <= _FLAT * abs(here.value):
            continue
        solved = solve(here.slope)
        if not float(here.slope @ solved) <= _CONTRACTION * decrease:
            solved = None
            span.renew(hessian, here.point)
            solve, fresh = Secant(span.solver(hessian)), True
    return best.here.point


def is_lower(span: Any, here: Any, trial: Any, step: np.ndarray) -> bool:
    """Whether a step decreases the objective; where rounding may hide that, the slopes decide."""
    decrease, value = -float(np.vdot(here.slope, step)), abs(here.value)
    if decrease > _FLAT * value and trial.value <= here.value - 1e-4 * decrease:
        return True
    if decrease > _HIDDEN * value or trial.value > here.value + _HIDDEN * value:
        return False
    # A convex function rises at most by its derivative at the end times the step, whatever rounding does.
    if abs(float(np.vdot(trial.slope, step))) <= _LEFT * decrease:
        return True
    proves_more = span.gap_share(trial) <= 0.25 * span.gap_share(here)
    return proves_more and trial.value <= here.value + _ROUNDING * value


class Best:
    """The point with the smallest proved gap, among points whose objectives differ only by rounding.

    Single steps may increase the proved gap before later ones decrease it.
    """

    def __init__(self, span: Any, here: Any, most_idle: int) -> None:
        self.span, self.here, self.most_idle, self.idle = span, here, most_idle, 0

    def take(self, here: Any, decrease: float, tolerance: float) -> bool:
        """Take in a point and the decrease that its step promised; whether it is the last."""
        share = self.span.gap_share(here)
        self.idle += 1
        if decrease > _HIDDEN * abs(here.value) or share < self.span.gap_share(self.here):
            self.here, self.idle = here, 0
        return share <= tolerance or self.idle >= self.most_idle


class Span:
    """Passes over the messages of one problem."""

    def __init__(
        self,
        problem: Problem | SomeRows,
        messages: np.ndarray,
        engine: Engine,
        tilt: np.ndarray | None = None,
    ) -> None:
        self.problem, self.messages, self.engine = problem, messages, engine
        self.lead = int(problem.fit_intercept)
        if tilt is not None and len(tilt) == len(messages):
            tilt = np.append(np.zeros(self.lead), tilt)
        self.tilt = tilt
        self.scale = problem.regularization

    def evaluated(self, point: SpanPoint) -> SpanPoint:
        """The point with loss and gradient."""
        problem, n = self.problem, len(point.total)
        z, gradient = self.engine.vector(n), self.engine.vector(n)
        here = problem, point.total, point.intercept, z, gradient, self.engine
        (sums,) = self.engine.together(problem.loss.measure_parts(*here))
        loss, total, size = sums.tolist()
        return SpanPoint(point.coefficients, point.intercept, point.total, loss, gradient, (total, size))

    def curvature(self, point: SpanPoint, root: np.ndarray | None = None) -> np.ndarray:
        """Weighted second derivatives of the loss, not to be written to.

        Their square roots go to ``root``, of shape (N,).
        """
        problem, n = self.problem, len(point.total)
        if root is None and problem.loss.name == "squared":
            return problem.weight
        h, there = self.engine.vector(n), (problem, point.total, point.intercept)
        problem.loss.curvature_parts(*there, h, self.engine, root)  # nobody asks for its sum
        return h

    def renew(self, hessian: SpanHessian, point: SpanPoint, gradient: np.ndarray | None = None) -> np.ndarray:
        """Compute the Hessian at the point, and products of the messages with a gradient of shape (N,)."""
        root = self.engine.vector(len(point.total))
        h = self.curvature(point, root)
        return hessian.refresh(self.messages, h, self.engine, gradient, root)

    def here(self, point: SpanPoint, products: np.ndarray) -> Here:
        """A point with its loss and gradient, whose products with the messages have shape (K,)."""
        assert point.gradient is not None
        point.products = products
        slope = np.empty(self.lead + len(products))
        slope[self.lead :] = products + self.scale * point.coefficients
        if self.lead:
            slope[0] = (point.sums or self.engine.total_and_size(point.gradient))[0]
        if self.tilt is not None:
            slope += self.tilt
        return Here(point, slope, self.value_at(point))

    def value_at(self, point: SpanPoint) -> float:
        """The objective at a point with its loss."""
        value = point.loss + 0.5 * self.scale * float(point.coefficients @ point.coefficients)
        if self.tilt is None:
            return value
        return value + float(self.tilt @ np.append(np.full(self.lead, point.intercept), point.coefficients))

    def solver(self, hessian: SpanHessian) -> Callable[[np.ndarray], np.ndarray]:
        """The inverse of the Hessian of loss and regulariser, as a function of a slope."""
        full = hessian.matrix.copy(order="C")
        full.reshape(-1)[:: len(full) + 1][self.lead :] += self.scale
        if self.lead:
            # Saturated losses have no curvature left.
            flat = not full[0, 0] > 0.0
            full[0, 0] += (1.0 if flat else 1e-14) * self.problem.total_weight
        return span_solver(full)

    def gap_share(self, here: Here) -> float:
        """The coefficients' share of the duality gap."""
        slope = here.slope[self.lead :]
        return float(slope @ slope) / (2.0 * self.scale)

    def advance(self, here: Here, step: np.ndarray) -> Here:
        """The point at the end of a step, in one pass over the messages."""
        problem, old, lead, messages = self.problem, here.point, self.lead, self.messages
        intercept = old.intercept + (float(step[0]) if lead else 0.0)
        move, n = step[lead:], len(old.total)
        total, z, gradient = (self.engine.vector(n) for _ in range(3))
        loss, products, sums = problem.loss.advance(
            messages, move, old.total, problem, intercept, total, z, gradient, self.engine
        )
        point = SpanPoint(old.coefficients + move, intercept, total, loss, gradient, sums)
        return self.here(point, products)

    def best_length(self, here: Here, step: np.ndarray, trial: Here) -> float:
        """Step length, between 0 and 1, that minimises the objective; length 1 leads to ``trial``."""
        problem, point, engine = self.problem, here.point, self.engine
        c, change = point.coefficients, step[self.lead :]
        start = engine.plus(problem.offset, point.total, point.intercept)
        move = engine.combine(change, self.messages)
        if self.lead:
            move += step[0]
        linear, square = self.scale * float(c @ change), self.scale * float(change @ change)
        if self.tilt is not None:
            linear += float(self.tilt @ step)
        end = float(trial.slope @ step)
        end = end if math.isfinite(end) else math.inf
        # Some rows have what it reads of a problem.
        return best_length(cast(Problem, problem), start, move, linear, square, engine, end)


class Secant:
    """Inverse of a Hessian with BFGS corrections from the steps taken with it (two-loop recursion)."""

    def __init__(self, solve: Callable[[np.ndarray], np.ndarray]) -> None:
        self.solve = solve
        self.pairs: list[tuple[np.ndarray, np.ndarray, float]] = []

    def learn(self, step: np.ndarray, change: np.ndarray) -> None:
        """Take in a step and the change of the slope along it."""
        product = float(step @ change)
        if product > 0.0:
            self.pairs.append((step, change, product))

    def __call__(self, slope: np.ndarray) -> np.ndarray:
        q, shares = slope.copy(), []
        for step, change, product in reversed(self.pairs):
            shares.append(float(step @ q) / product)
            q -= shares[-1] * change
        r = self.solve(q)
        for (step, change, product), share in zip(self.pairs, reversed(shares)):
            r += (share - float(change @ r) / product) * step
        return r


def span_solver(hessian: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Solver of a system that is positive definite up to rounding and scale."""
    return factorised(hessian, np.sqrt(hessian.diagonal()), 0.0)

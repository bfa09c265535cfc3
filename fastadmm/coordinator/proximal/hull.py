r"""Minimise the objective over combinations of the parties' points, from messages and scalars alone.

Party m's points :math:`p_k` have messages :math:`v_k = D_m p_k`. For weights
:math:`c \ge 0` that sum to one over a party, convexity of :math:`\Omega` gives

.. math:: \lambda W R_m\Bigl(\sum_k c_k p_k\Bigr) \le \sum_k c_k\, \lambda W \alpha\, \Omega(p_k)
          + \tfrac{\lambda W \beta}2 \sum_{jk} c_j c_k \langle p_j, p_k\rangle,

so that the loss plus the right side is an upper bound of F that the
coordinator can minimise (simplicial decomposition). It is exact at every point
itself, and where points share the signs of their weights. Newton's method; each step
is a small quadratic program.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastadmm.coordinator.line_length import SHALLOW, best_length
from fastadmm.coordinator.proximal.class_newton import class_newton_system, class_slope
from fastadmm.coordinator.proximal.parts import lifted
from fastadmm.coordinator.proximal.weights_program import solve_weights_program
from fastadmm.engine.engine import Engine
from fastadmm.problem.problem import Problem

__all__ = [
    "MAX_MOVE",
    "RIDGES",
    "ROUNDING",
    "WORK",
    "HullModel",
    "HullPoint",
    "bases_of",
    "differences",
    "loss_system",
    "minimise_over_hull",
    "newton_system",
    "rise_of",
]

Array = np.ndarray

_MAX_STEPS = 5

#: Multiplications that the systems of one step may take; cut short, it is a descent direction still.
WORK = 2e8

#: Decreases below this share of the value are lost in its rounding.
ROUNDING = 1e-13

#: Of a step beyond the hull: weights move at most this much, for nothing bounds them.
MAX_MOVE = 30.0

#: Shares of the diagonal added to a step's system in turn, until its weights stay within that.
RIDGES = (1e-13, 1e-9)


@dataclass
class HullPoint:
    """A combination of points.

    Attributes
    ----------
    coefficients : ndarray of shape (K,)
    intercept : float or ndarray of shape (C,)
    total : ndarray of shape (N,) or (C N,)
        ``coefficients @ messages``, class by class.
    """

    coefficients: Array
    intercept: Any
    total: Array


@dataclass(frozen=True)
class HullModel:
    """What is minimised besides the loss, ``linear @ c + c @ square @ c / 2``, and over which weights.

    Attributes
    ----------
    messages : ndarray of shape (K, N)
    linear : ndarray of shape (K,)
    square : ndarray of shape (K, K)
        Positive semidefinite.
    lower : ndarray of shape (K,)
        0, or minus infinity where a weight may be negative.
    owner : ndarray of int, shape (K,)
        Party of each point; the weights of a party sum to one.
    classes : ndarray of int, shape (K,), or None
        Of each point's message, where there are several.
    """

    messages: Array
    linear: Array
    square: Array
    lower: Array
    owner: Array
    classes: Array | None = None

    def penalty(self, c: Array) -> float:
        """The model of the regularisers at coefficients of shape (K,)."""
        return float(self.linear @ c) + 0.5 * float(c @ self.square @ c)


def minimise_over_hull(
    problem: Problem, model: HullModel, point: HullPoint, tolerance: float, engine: Engine
) -> HullPoint:
    """Newton's method from a point; never returns one with a larger value of the model.

    Parameters
    ----------
    problem : Problem
        Whose loss is used.
    model : HullModel
    point : HullPoint
        Start, feasible; its ``total`` must belong to its coefficients.
    tolerance : float
        Stop when a step promises less than this. Summed scaling.
    engine : Engine
    """
    loss, y, weight = problem.loss, problem.y, problem.weight
    k, n = len(model.owner), problem.n_samples
    extra = problem.n_outputs if problem.fit_intercept else 0
    gradient = np.empty(problem.message_size)
    limit = int(min(3 * k + 10, max(20.0, WORK / k**3)))
    owner = np.append(model.owner, np.full(extra, -1))
    lower = np.append(model.lower, np.full(extra, -math.inf))
    c, b, total = point.coefficients, point.intercept, point.total
    base = bases_of(c, model.owner)

    def value(total: Array, c: Array, b: Any) -> float:
        z = problem.offset + lifted(b, n) + total
        return loss.evaluate(z, y, weight, gradient, engine) + model.penalty(c)

    current, secant = value(total, c, b), None
    for _ in range(_MAX_STEPS):
        if secant is not None:
            assert model.classes is not None
            slope = class_slope(problem, model.messages, model.classes, base, gradient, engine)
        else:
            z = problem.offset + lifted(b, n) + total
            slope, hessian = loss_system(problem, model.messages, model.classes, base, gradient, z, engine)
            hessian[:k, :k] += differences(model.square, base)
            if extra:
                # Saturated losses have no curvature left; keep the system definite.
                flat = not hessian[-1, -1] > 0.0
                hessian[-1, -1] += (1.0 if flat else 1e-14) * problem.total_weight
        own = model.linear + model.square @ c
        slope[:k] += own - own[base]
        if secant is not None:
            _correct(hessian, secant[0], slope - secant[1])
        for ridge in RIDGES:
            step = solve_weights_program(
                hessian, slope, np.append(c, np.ravel(b)[:extra]), lower, owner, limit, ridge
            )
            size = float(np.abs(step[:k]).max(initial=0.0))
            if size <= MAX_MOVE:
                break
        if not math.isfinite(size):
            break
        if size > MAX_MOVE:
            step *= MAX_MOVE / size
        decrease = -float(slope @ step)
        if not decrease > 0.0:
            break
        move, rise = _move(problem, model, base, step[:k], engine), rise_of(step, k)
        trial = total + move, c + step[:k], b + rise
        following = value(*trial)
        at_rounding = decrease <= ROUNDING * abs(current) and following <= current * (1.0 + ROUNDING)
        if at_rounding:
            total, c, b = trial  # the value cannot tell any more, the gradient can
            break
        if not following <= current - 1e-4 * decrease:
            length = _line_minimiser(problem, model, (total, c, b), (move, step[:k], rise), decrease, engine)
            step *= length
            trial = total + length * move, c + step[:k], b + length * rise
            following = value(*trial)
        if not following < current:
            break
        (total, c, b), current = trial, following
        # Of several classes a Hessian costs as much as dozens of slopes.
        secant = None if model.classes is None else (step, slope)
        if 0.5 * decrease <= tolerance:
            break
    return HullPoint(c, b, total)


def _correct(hessian: Array, step: Array, change: Array) -> None:
    """Correct a Hessian by the change of the slope along a step (BFGS)."""
    before = hessian @ step
    bent, shown = float(step @ before), float(step @ change)
    if bent > 0.0 and shown > 0.0:
        hessian += np.outer(change, change / shown) - np.outer(before, before / bent)


def _line_minimiser(
    problem: Problem,
    model: HullModel,
    start: tuple[Array, Array, Any],
    direction: tuple[Array, Array, Any],
    decrease: float,
    engine: Engine,
) -> float:
    """Length between 0 and 1 of least objective along a direction of descent, by ``decrease`` at first."""
    (total, c, b), (move, step, rise) = start, direction
    n = problem.n_samples
    base, along = problem.offset + lifted(b, n) + total, move + lifted(rise, n)
    linear = float(model.linear @ step) + float(c @ model.square @ step)
    square = float(step @ model.square @ step)
    enough = 0.0 if model.classes is None else SHALLOW * decrease
    return best_length(problem, base, along, linear, square, engine, enough=enough)


def bases_of(c: Array, owner: Array) -> Array:
    """For each point the one of its party with the largest weight.

    Weights of a party sum to one, so that only differences of points count. They are taken before
    products are, because those of points that lie close together differ in their last digits only.

    Parameters
    ----------
    c : ndarray of shape (K,)
    owner : ndarray of int, shape (K,)
    """
    base = np.empty(len(owner), dtype=np.int64)
    for m in np.unique(owner):
        mine = np.flatnonzero(owner == m)
        base[mine] = mine[np.argmax(c[mine])]
    return base


def differences(square: Array, base: Array) -> Array:
    """A quadratic form of points, of shape (K, K), as that of their differences to their bases."""
    rows = square - square[base]
    return rows - rows[:, base]


def _move(problem: Problem, model: HullModel, base: Array, step: Array, engine: Engine) -> Array:
    """``step @ messages`` for steps that sum to zero over a party."""
    messages, n_classes = model.messages, problem.n_outputs

    total = np.empty((n_classes, messages.shape[1]))

    def piece(rows: tuple[int, int]) -> None:
        part = messages[:, rows[0] : rows[1]]
        part = part - part[base]
        for k, own in enumerate(total):
            mine = slice(None) if model.classes is None else np.flatnonzero(model.classes == k)
            own[rows[0] : rows[1]] = step[mine] @ part[mine]

    engine.by_leaf(piece, engine.leaves(messages.shape[1]), light=True)
    return total.ravel()


def rise_of(step: Array, k: int) -> Any:
    """What a step of k coefficients and intercepts adds to these: a number, or an array of shape (C,)."""
    return float(step[k:].sum()) if len(step) <= k + 1 else step[k:]


def loss_system(
    problem: Problem,
    messages: Array,
    classes: Array | None,
    base: Array | None,
    gradient: Array,
    z: Array,
    engine: Engine,
) -> tuple[Array, Array]:
    """The loss's part of Newton's system at z, in coefficients and intercepts.

    Parameters
    ----------
    problem : Problem
    messages, base, gradient
        As of :func:`newton_system`.
    classes : ndarray of int, shape (K,), or None
        Of each message, where there are several.
    z : ndarray of shape (N,) or (C N,)
    engine : Engine
    """
    if classes is not None:
        return class_newton_system(problem, messages, classes, base, gradient, z, engine)
    curvature = np.empty(len(z))
    problem.loss.curvature(z, problem.y, problem.weight, curvature, engine)
    return newton_system(messages, base, gradient, curvature, int(problem.fit_intercept), engine)


def newton_system(
    messages: Array, base: Array | None, gradient: Array, curvature: Array, extra: int, engine: Engine
) -> tuple[Array, Array]:
    """Gradient and Hessian of the loss in the coefficients of messages (and, last, the intercept).

    Parameters
    ----------
    messages : ndarray of shape (K, N)
    base : ndarray of int, shape (K,), or None
        Messages that are taken from them first.
    gradient, curvature : ndarray of shape (N,)
        Of the loss.
    extra : int
        1 with an intercept, else 0.
    engine : Engine

    Returns
    -------
    slope : ndarray of shape (K + extra,)
    hessian : ndarray of shape (K + extra, K + extra)
    """
    k = len(messages)

    def piece(rows: tuple[int, int]) -> tuple[Array, Array]:
        part, g, h = (a[..., rows[0] : rows[1]] for a in (messages, gradient, curvature))
        if base is not None:
            part = part - part[base]
        slope, hessian = np.empty(k + extra), np.empty((k + extra, k + extra))
        slope[:k] = (part * g).sum(axis=1)  # BLAS takes another order of one row by its address
        curved = np.flatnonzero(h)
        if 2 * len(curved) <= len(h):  # a loss with flat pieces bends at few samples
            part, h = part[:, curved], h[curved]
        weighted = part * h
        hessian[:k, :k] = weighted @ part.T
        if extra:
            slope[k], hessian[k, k] = g.sum(), h.sum()
            hessian[k, :k] = hessian[:k, k] = weighted.sum(axis=1)
        return slope, hessian

    slope, hessian = engine.sums(piece, engine.leaves(messages.shape[1]), light=True, size=(k + extra) ** 2)
    return slope, 0.5 * (hessian + hessian.T)

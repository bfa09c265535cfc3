r"""Minimise the true objective over the span of all messages so far.

.. math:: \min_{c, b}\; \sum_i s_i\, \ell\bigl(o_i + b + (V^\top c)_i\bigr) + \frac{\lambda W}{2} \|c\|^2

Rows of V are messages :math:`D_m d` of orthonormal directions d, so the
regulariser of the weights is that of the coefficients. Newton's method; the
system has one row per message. Where the full step does not decrease the
objective enough (losses with flat pieces, exponentials), the minimiser along
its direction is found instead, by the root of the derivative.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from fastadmm.coordinator.root import increasing_root
from fastadmm.engine import Engine, row_ranges
from fastadmm.problem import Problem

__all__ = ["SpanPoint", "descent_step", "minimise_over_span", "span_system"]

_MAX_STEPS = 30


@dataclass
class SpanPoint:
    """A point of the span.

    Attributes
    ----------
    coefficients : ndarray of shape (K,)
    intercept : float
    total : ndarray of shape (N,)
        ``V.T @ coefficients``, the sum of all parties' messages.
    """

    coefficients: np.ndarray
    intercept: float
    total: np.ndarray


def minimise_over_span(
    problem: Problem, messages: np.ndarray, point: SpanPoint, tolerance: float, engine: Engine
) -> SpanPoint:
    """Newton's method from a point; never returns a worse one.

    Parameters
    ----------
    problem : Problem
    messages : ndarray of shape (K, N)
        V.
    point : SpanPoint
        Start; its ``total`` must belong to its coefficients.
    tolerance : float
        Stop when half the squared Newton decrement, a bound on what is left
        to gain up to higher order, is at most this. Summed scaling.
    engine : Engine

    Returns
    -------
    SpanPoint
    """
    loss, y, weight, scale = problem.loss, problem.y, problem.weight, problem.regularization
    gradient, curvature = np.empty(len(y)), np.empty(len(y))

    def value(total: np.ndarray, c: np.ndarray, b: float) -> float:
        loss_value = loss.evaluate(problem.offset + b + total, y, weight, gradient, engine)
        return loss_value + 0.5 * scale * float(c @ c)

    c, b, total = point.coefficients, point.intercept, point.total
    current = value(total, c, b)
    for _ in range(_MAX_STEPS):
        loss.curvature(problem.offset + b + total, y, weight, curvature, engine)
        slope, hessian = span_system(messages, gradient, curvature, problem.fit_intercept, engine)
        slope[: len(c)] += scale * c
        hessian[np.arange(len(c)), np.arange(len(c))] += scale
        if problem.fit_intercept:
            # Saturated losses have no curvature left; keep the system positive definite.
            flat = not hessian[-1, -1] > 0.0
            hessian[-1, -1] += (1.0 if flat else 1e-14) * problem.total_weight
        step = descent_step(hessian, slope)
        decrease = -float(slope @ step)
        if not (math.isfinite(decrease) and decrease > 0.0):
            break
        move = step[: len(c)] @ messages
        rise = step[-1] if problem.fit_intercept else 0.0
        trial = total + move, c + step[: len(c)], b + rise
        following = value(*trial)
        if not following <= current - 1e-4 * decrease:
            direction = _Line(problem, total, c, b, move, step[: len(c)], rise, gradient, curvature, engine)
            length = direction.minimiser()
            trial = total + length * move, c + length * step[: len(c)], b + length * rise
            following = value(*trial)
        if not following < current:
            break
        (total, c, b), current = trial, following
        if 0.5 * decrease <= tolerance:
            break
    return SpanPoint(c, b, total)


def descent_step(hessian: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """Newton step of a system that is positive definite up to rounding and scale."""
    size = np.sqrt(np.diag(hessian))
    scaled = hessian / np.outer(size, size)
    diagonal = np.diag_indices(len(slope))
    ridge = 0.0
    while ridge < 1.0:
        scaled[diagonal] = 1.0 + ridge
        try:
            factor = scipy.linalg.cho_factor(scaled, check_finite=False)
        except scipy.linalg.LinAlgError:
            ridge = max(1e-14, 100.0 * ridge)
        else:
            return -scipy.linalg.cho_solve(factor, slope / size, check_finite=False) / size
    return -slope / np.diag(hessian)


class _Line:
    """The objective along a direction of descent: a convex function of the length."""

    def __init__(
        self,
        problem: Problem,
        total: np.ndarray,
        c: np.ndarray,
        b: float,
        move: np.ndarray,
        step: np.ndarray,
        rise: float,
        gradient: np.ndarray,
        curvature: np.ndarray,
        engine: Engine,
    ) -> None:
        self.problem, self.engine = problem, engine
        self.start, self.move = problem.offset + b + total, move + rise
        self.linear = problem.regularization * float(c @ step)
        self.square = problem.regularization * float(step @ step)
        self.gradient, self.curvature = gradient, curvature

    def derivatives(self, length: float) -> tuple[float, float]:
        """First and second derivative at a length."""
        problem, z = self.problem, self.start + length * self.move
        problem.loss.evaluate(z, problem.y, problem.weight, self.gradient, self.engine)
        problem.loss.curvature(z, problem.y, problem.weight, self.curvature, self.engine)
        first = float(self.gradient @ self.move) + self.linear + length * self.square
        second = float(self.curvature @ (self.move * self.move)) + self.square
        # Overflow, or infinity minus infinity: too far.
        return (first, second) if math.isfinite(first) else (math.inf, 0.0)

    def minimiser(self) -> float:
        """Length of least objective, between 0 and 1."""
        high = 1.0
        while self.derivatives(high)[0] > 0.0 and self.derivatives(0.1 * high)[0] > 0.0 and high > 1e-30:
            high *= 0.1
        return min(max(increasing_root(self.derivatives, 0.5 * high, 1e-6 * high), 0.0), high)


def span_system(
    messages: np.ndarray, gradient: np.ndarray, curvature: np.ndarray, intercept: bool, engine: Engine
) -> tuple[np.ndarray, np.ndarray]:
    """Gradient and Hessian of the loss in the coefficients (and, last, the intercept)."""
    k = len(messages)
    size = k + 1 if intercept else k

    def piece(rows: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        part = messages[:, rows[0] : rows[1]]
        g, h = gradient[rows[0] : rows[1]], curvature[rows[0] : rows[1]]
        slope, hessian = np.empty(size), np.empty((size, size))
        slope[:k] = part @ g
        weighted = part * h
        hessian[:k, :k] = weighted @ part.T
        if intercept:
            slope[k] = g.sum()
            hessian[k, :k] = hessian[:k, k] = weighted.sum(axis=1)
            hessian[k, k] = h.sum()
        return slope, hessian

    parts = engine.map(piece, row_ranges(messages.shape[1]))
    slope, hessian = parts[0]
    for more_slope, more_hessian in parts[1:]:
        slope += more_slope
        hessian += more_hessian
    return slope, 0.5 * (hessian + hessian.T)

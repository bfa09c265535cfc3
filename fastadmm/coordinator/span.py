r"""Minimise the true objective over the span of all messages so far.

.. math:: \min_{c, b}\; \sum_i s_i\, \ell\bigl(o_i + b + (V^\top c)_i\bigr) + \frac{\lambda W}{2} \|c\|^2

Rows of V are messages :math:`D_m d` of orthonormal directions d, so the
regulariser of the weights is that of the coefficients. Newton's method with
backtracking; the system has one row per message.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from fastadmm.engine import Engine, row_ranges
from fastadmm.problem import Problem

__all__ = ["SpanPoint", "minimise_over_span"]

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
        slope, hessian = _system(messages, gradient, curvature, problem.fit_intercept, engine)
        slope[: len(c)] += scale * c
        hessian[np.arange(len(c)), np.arange(len(c))] += scale
        if problem.fit_intercept:
            # Saturated losses have no curvature left; keep the system positive definite.
            hessian[-1, -1] += 1e-14 * problem.total_weight
        step = -scipy.linalg.solve(hessian, slope, assume_a="pos", check_finite=False)
        decrease = -float(slope @ step)
        if not decrease > 0.0:
            break
        move = step[: len(c)] @ messages
        length = 1.0
        while True:
            shift = length * step[-1] if problem.fit_intercept else 0.0
            trial_c, trial_b, trial = c + length * step[: len(c)], b + shift, total + length * move
            following = value(trial, trial_c, trial_b)
            if following <= current - 1e-4 * length * decrease or length < 1e-8:
                break
            length *= 0.5
        if not following < current:
            break
        c, b, total, current = trial_c, trial_b, trial, following
        if 0.5 * decrease <= tolerance:
            break
    return SpanPoint(c, b, total)


def _system(
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

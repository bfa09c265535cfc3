r"""The certificate of a multinomial model: that of :mod:`fastadmm.method.certificate` for C scalars.

The dual point :math:`g = s (p - e_y)` is a matrix of C numbers per sample. It
sums to zero over the classes of each sample by construction and, with
intercepts, over the samples of each class once these are minimised out.

The intercepts are minimised out exactly, by Newton on C scalars. Adding a constant to all of them changes
nothing; they are kept with sum zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.method.certificate import (
    MAX_STEPS,
    PrimalValue,
    make_feasible,
    primal_value,
    sums_to_zero,
)
from fastadmm.problem.multinomial import Multinomial
from fastadmm.problem.problem import Problem

Array = np.ndarray

#: Largest last step, relative to ``1 + max |b|``.
_LAST_STEP = 1e-14

#: Longest step at first, in units of log-odds.
_FIRST_REACH = 4.0

#: Share of a Hessian's trace that its entries are off by.
_ROUNDING = 4.0 * float(np.finfo(float).eps)


def class_root(function: Callable[[Array], tuple[Array, Array]], start: Array) -> Array:
    r"""Find where the gradient of a convex function of C intercepts vanishes.

    Newton's method on vectors of sum zero with Levenberg's damping
    :math:`\|g\|_\infty / R`, which holds a step to the reach R where the
    function is flat and vanishes with the gradient, so that convergence stays
    quadratic. The reach is halved where the slope along the step has turned to
    more than a tenth of what it was (the function is convex, so its minimum
    along the step has been passed), and doubled where a quarter of it is left.

    Shapes: start, the result (C,).
    """
    point = start - start.mean()
    gradient, hessian = function(point)
    reach = _FIRST_REACH
    for _ in range(MAX_STEPS):
        step = _damped_step(gradient, hessian, reach)
        slope = float(gradient @ step)
        size = float(np.abs(step).max())
        if not (math.isfinite(slope) and slope < 0.0) or size <= _LAST_STEP * (1.0 + np.abs(point).max()):
            break
        trial = point + step
        trial_gradient, trial_hessian = function(trial)
        after = float(trial_gradient @ step)
        if not after <= -0.1 * slope:
            reach = 0.5 * min(reach, size)
            if reach < 1e-12:
                break
            continue
        if size <= 1e-6 and not np.abs(trial_gradient).sum() < np.abs(gradient).sum():
            break  # rounding decides from here on
        point, gradient, hessian = trial, trial_gradient, trial_hessian
        if after <= 0.25 * slope:
            reach *= 2.0
    function(point)
    return point


def _damped_step(gradient: Array, hessian: Array, reach: float) -> Array:
    """Newton step among vectors of sum zero, no longer than about the reach."""
    classes = len(gradient)
    gradient = gradient - gradient.mean()
    steepest = float(np.abs(gradient).max())
    if not (math.isfinite(steepest) and steepest > 0.0 and np.isfinite(hessian).all()):
        return np.zeros(classes)
    # Classes that nearly no row is in have no curvature left: no less than its rounding.
    size = float(np.trace(hessian))
    damping = max(steepest / reach, _ROUNDING * size)
    # On constants the Hessian vanishes: any positive value there will do.
    full = hessian + (size + damping) / classes**2
    full[np.diag_indices(classes)] += damping
    step = -np.linalg.solve(full, gradient)
    return step - step.mean()


#: A gradient is repaired while no probability changes by more than this share, in so many steps.
_REPAIRABLE, _STEPS = 0.1, 4


def multinomial_of(problem: Problem) -> Multinomial:
    """The problem's loss, which must be multinomial."""
    assert isinstance(problem.loss, Multinomial)
    return problem.loss


def shifted(base: Array, intercept: Any) -> Array:
    """Predictors of shape (N,) or (C N,) with the intercept added, or those of shape (C,) class by class."""
    if np.ndim(intercept) == 0:
        return base + intercept
    return (base.reshape(len(intercept), -1) + intercept[:, np.newaxis]).ravel()


def hessian_sums(likely: Array, weight: Array, engine: Engine) -> Array:
    r"""Hessian in the intercepts, :math:`\sum_i s_i (\mathrm{diag}(p_i) - p_i p_i^\top)`, of shape (C, C).

    Shapes: likely (C, N); weight (N,).
    """
    ((products,),) = engine.together(_hessian_parts(likely, weight, engine))
    return _hessian_of(products)


def _hessian_parts(likely: Array, weight: Array, engine: Engine) -> list[Any]:
    """What :func:`hessian_sums` adds up, for :meth:`Engine.together`: products of the probabilities."""

    def piece(rows: tuple[int, int]) -> tuple[Array]:
        own = likely[:, slice(*rows)]
        return ((own * weight[slice(*rows)]) @ own.T,)

    return engine.parts(piece, engine.leaves(len(weight)))


def _hessian_of(products: Array) -> Array:
    hessian: Array = -0.5 * (products + products.T)
    # 1 - p is the sum of the others: without its rounding, where a class has next to no doubt left.
    np.fill_diagonal(hessian, 0.0)
    np.fill_diagonal(hessian, -hessian.sum(axis=1))
    return hessian


def balancing(hessian: Array, excess: Array) -> Array:
    """The change of the intercepts that takes an excess of the classes' sums away.

    Shapes: hessian (C, C); excess, the result (C,).
    """
    # By the classes' own sizes: one that hardly any row is in doubt about must balance as well.
    size = np.sqrt(np.maximum(np.diag(hessian), np.finfo(float).tiny))
    change: Array = np.linalg.lstsq(hessian / np.outer(size, size), excess / size, rcond=None)[0]
    return change / size


def best_primal(problem: Problem, total: Array, intercept: Any, engine: Engine) -> PrimalValue:
    """The loss at a sum of messages, of shape (N,) or (C N,), with the best intercept or intercepts."""
    if not problem.loss.vector:
        return primal_value(problem, total, intercept, engine)
    start = np.broadcast_to(np.asarray(intercept, dtype=np.float64), (problem.n_outputs,))
    return class_primal_value(problem, total, start, engine)


def primal_at(
    problem: Problem, total: Array, intercept: Any, engine: Engine, loss: float = math.nan
) -> PrimalValue:
    """The loss at an intercept as it is, to the same bits as when that was saved; what is known of it counts.

    Shapes: total (N,) or (C N,); intercept (C,).
    """
    gradient, z = np.empty(problem.message_size), shifted(problem.offset + total, intercept)
    found = problem.loss.evaluate(z, problem.y, problem.weight, gradient, engine)
    value = loss if math.isfinite(loss) else found  # the same sum, perhaps added up in another order
    repair: Any = make_class_feasible if problem.loss.vector else make_feasible
    # Without convexity no gradient proves anything, and none is repaired.
    feasible = problem.convex and repair(problem, z, gradient, (value, intercept), engine)
    return PrimalValue(value, gradient, intercept, feasible)


def class_primal_value(problem: Problem, total: Array, intercept: Array, engine: Engine) -> PrimalValue:
    """Evaluate the loss at a sum of messages, with the intercepts minimised out.

    Shapes: total (C N,); intercept (C,).
    """
    loss, y, weight = multinomial_of(problem), problem.y, problem.weight
    gradient = np.empty_like(total)
    base = problem.offset + total
    value = math.nan

    def evaluate(b: Array) -> tuple[Array, Array]:
        nonlocal value
        z = shifted(base, b)
        parts = loss.value_parts(z, y, weight, gradient, engine)
        likely = loss.probabilities(z, y, weight, engine)
        value, (sums, _), (products,) = engine.together(
            parts, engine.size_parts(gradient.reshape(len(b), -1)), _hessian_parts(likely, weight, engine)
        )
        return sums, _hessian_of(products)

    if problem.fit_intercept:
        intercept = class_root(evaluate, intercept)
    else:
        intercept = np.zeros(problem.n_outputs)
        value = loss.evaluate(base, y, weight, gradient, engine)
    feasible = make_class_feasible(problem, shifted(base, intercept), gradient, (value, intercept), engine)
    return PrimalValue(value, gradient, intercept, feasible)


def make_class_feasible(
    problem: Problem, z: Array, gradient: Array, place: tuple[float, Array], engine: Engine
) -> bool:
    """Repair a gradient whose sums over samples only rounding keeps from zero.

    Shapes: z, gradient (C N,); place (C,).
    """
    classes = problem.n_outputs
    if not problem.fit_intercept or sums_to_zero(gradient, engine, classes, place):
        return True
    loss, rows = multinomial_of(problem), gradient.reshape(classes, -1)
    likely = loss.probabilities(z, problem.y, problem.weight, engine)
    hessian = hessian_sums(likely, problem.weight, engine)
    for _ in range(_STEPS):
        change = balancing(hessian, engine.total_and_size(rows)[0])
        if not np.abs(change - change.mean()).max() <= _REPAIRABLE:
            break
        direction = np.ascontiguousarray(np.broadcast_to(change[:, np.newaxis], rows.shape))
        rows -= loss.action(likely, problem.weight, direction, engine)
        if sums_to_zero(gradient, engine, classes, place):
            break
    return False


def class_curvature_about(problem: Problem, z: Array, reach: float, out: Array, engine: Engine) -> Array:
    r"""Curvature of each class by itself, averaged over how far its predictor moves.

    All classes together would change nothing. With :math:`q = p (1 - p)` the slope between :math:`z_c - r`
    and :math:`z_c + r` rises by

    .. math:: \frac{s\, q\, (1 - e^{-2r})}{e^{-r} + q\, (1 - e^{-r})^2} .

    Shapes: z, out (C N,).
    """
    h = problem.loss.curvature(z, problem.y, problem.weight, out, engine).reshape(problem.n_outputs, -1)
    less = math.exp(-reach)
    lowest = max(less, np.finfo(float).tiny)
    weight = np.where(problem.weight > 0.0, problem.weight, 1.0)
    for own in h:
        own *= (1.0 - less * less) / (2.0 * reach) / (lowest + own / weight * (1.0 - less) ** 2)
    return out

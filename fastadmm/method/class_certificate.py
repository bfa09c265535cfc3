r"""The certificate of a multinomial model: that of :mod:`fastadmm.method.certificate` for C scalars.

The dual point :math:`g = s (p - e_y)` is a matrix of C numbers per sample. It
sums to zero over the classes of each sample by construction and, with
intercepts, over the samples of each class once these are minimised out.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.method.certificate import PrimalValue, sums_to_zero
from fastadmm.method.class_root import class_root
from fastadmm.problem.multinomial import Multinomial
from fastadmm.problem.problem import Problem

__all__ = [
    "balancing",
    "class_curvature_about",
    "class_primal_value",
    "hessian_sums",
    "multinomial_of",
    "shifted",
    "update_class_z_u",
]

#: A gradient is repaired while no probability changes by more than this share, in so many steps.
_REPAIRABLE, _STEPS = 0.1, 4

Array = np.ndarray


def multinomial_of(problem: Problem) -> Multinomial:
    """The problem's loss, which must be multinomial (TypeError otherwise)."""
    if not isinstance(problem.loss, Multinomial):
        raise TypeError(f"loss {problem.loss.name!r} is not multinomial")
    return problem.loss


def shifted(base: Array, intercept: Array) -> Array:
    """Predictors of shape (C N,) with the intercepts of shape (C,) added, class by class."""
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

    return engine.parts(piece, engine.leaves(len(weight)), light=True)


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
            parts,
            engine.size_parts(gradient.reshape(len(b), -1)),
            _hessian_parts(likely, weight, engine),
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


def update_class_z_u(
    problem: Problem,
    total: Array,
    u_before: Array,
    penalty: float,
    z: Array,
    u: Array,
    intercept: Array,
    engine: Engine,
) -> Array:
    """z- and u-update of ADMM sharing with C numbers per sample.

    Returns: the intercepts; zero where none are fitted.
    Shapes: total, u_before, z, u (C N,); intercept, the result (C,).
    Scaling: penalty summed scaling.
    """
    loss, centre = multinomial_of(problem), total + u_before / penalty

    def prox(b: Array) -> tuple[Array, Array]:
        moved = shifted(problem.offset, b)
        return loss.prox_classes(centre, moved, problem.y, problem.weight, penalty, z, u, engine)

    if problem.fit_intercept:
        return class_root(prox, np.broadcast_to(intercept, (problem.n_outputs,)))
    nothing = np.zeros(problem.n_outputs)
    prox(nothing)
    return nothing

r"""Truncated Newton over the weights of all parties: Hessian-vector products, no Hessian.

A step solves :math:`(D^\top H D + \lambda W) \Delta = -s` by conjugate gradients, as accurately as the step
deserves (Dembo, Eisenstat and Steihaug 1982; for these losses Lin, Weng and Keerthi 2008). Each product reads
every row once. The preconditioner has the columns' sizes and directions of the previous system. An intercept
is eliminated: if columns have means far from zero, a weight's slope means little before the intercept's is
zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fastadmm.coordinator.subspace.preconditioner import Preconditioner
from fastadmm.coordinator.subspace.span import Best, Here, is_lower

__all__ = ["minimise_by_products"]

Array = np.ndarray

_MAX_STEPS, _MAX_HALVINGS, _MAX_PRODUCTS = 60, 40, 250

#: Steps that most problems take, each with no fewer products than the one before.
_USUAL_STEPS = 6

#: Conjugate gradients leave this share of the slope's length, over columns' sizes, in a step ...
_FORCING = 0.1

#: ... and no less of the slope than this share of what the accuracy allows.
_SHARE_OF_ACCURACY = 0.1

#: As of :mod:`fastadmm.coordinator.subspace.span`.
_FLAT, _MOST_IDLE = 1e-13, 3


def minimise_by_products(
    span: Any, point: Any, tolerance: float, accuracy: float, most: int, tried: int = 0
) -> tuple[Any, int, bool]:
    """Truncated Newton steps from a point; never returns a worse one."""
    here, products = span.at(span.evaluated(point) if point.gradient is None else point), 0
    best, hessian, reached, spent = Best(span, here, _MOST_IDLE), None, False, 0
    precondition = Preconditioner(*span.size)
    for steps in range(_MAX_STEPS):
        # The slope of the weights once the intercept is at its minimum.
        left = here.slope[span.lead :] if hessian is None else hessian.without_intercept(here.slope)
        share = float(left @ left) / (2.0 * span.scale)
        enough = max(tolerance, accuracy * (here.value - share))
        reached = share <= enough
        if reached or products >= most:
            break
        if tried and products + max(1, _USUAL_STEPS - steps) * spent > tried:
            break
        hessian = span.hessian_at(here.point)
        target = -hessian.without_intercept(here.slope)
        precondition.begin(hessian.sizes)
        stop = _SHARE_OF_ACCURACY * enough * 2.0 * span.scale
        limit = min(_MAX_PRODUCTS, tried - products) if tried else _MAX_PRODUCTS
        found, spent = _conjugate_gradients(hessian.product, precondition, target, stop, limit)
        step, products = hessian.with_intercept(found, here.slope), products + spent
        decrease = -float(here.slope @ step)
        if not decrease > 0.0:
            break
        trial = _lower(span, here, step)
        if trial is None:
            break
        here = trial
        if best.take(here, decrease, 0.0):
            break
    return best.here.point, products, reached


def _lower(span: Any, here: Here, step: Array) -> Here | None:
    """A point along a step with a lower objective; None if there is none."""
    for _ in range(_MAX_HALVINGS):
        trial = span.advance(here, step)
        if is_lower(span, here, trial, step):
            return trial
        if -float(here.slope @ step) <= _FLAT * abs(here.value):
            return None
        step = 0.5 * step
    return None


def _conjugate_gradients(
    product: Callable[[Array], Array], precondition: Preconditioner, target: Array, enough: float, most: int
) -> tuple[Array, int]:
    """Solve a positive definite system approximately.

    Shapes: target (K,).
    """
    x, residual = np.zeros(len(target)), target.copy()
    scaled, room = precondition(residual, np.empty(len(target))), np.empty(len(target))
    direction, length = scaled.copy(), float(residual @ scaled)
    first = precondition.squared_length(residual, scaled, room)
    number = 0
    while number < most:
        image, number = product(direction), number + 1
        bend = float(direction @ image)
        if not bend > 0.0:
            break
        precondition.learn(direction, image, bend)
        share = length / bend
        x += np.multiply(direction, share, out=room)
        residual -= np.multiply(image, share, out=room)
        precondition(residual, scaled)
        left = precondition.squared_length(residual, scaled, room)
        if left <= _FORCING**2 * first or float(residual @ residual) <= enough:
            break
        before, length = length, float(residual @ scaled)
        direction *= length / before
        direction += scaled
    return x, number

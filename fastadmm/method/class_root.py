r"""The C intercepts of a multinomial model: minimised out exactly, by Newton on C scalars.

Adding a constant to all of them changes nothing; they are kept with sum zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

__all__ = ["class_root"]

Array = np.ndarray

_MAX_STEPS = 200

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
    for _ in range(_MAX_STEPS):
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

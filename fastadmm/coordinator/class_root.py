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

#: Longest step at first, in units of log-odds; a nearly flat function sends Newton far beyond any root.
_FIRST_REACH = 4.0


def class_root(
    function: Callable[[Array], tuple[Array, Array]], start: Array, tolerance: float = 1e-14
) -> Array:
    r"""Find where the gradient of a convex function of C intercepts vanishes.

    Newton's method on vectors of sum zero. A step is halved while the slope
    along it has turned to more than half of what it was: the function is
    convex, so the minimum along the step has then been passed by far.

    Parameters
    ----------
    function : callable
        Returns gradient of shape (C,) and Hessian of shape (C, C) at a point;
        both are zero on constant vectors. The last call is made at the point
        that is returned, so side effects belong to it.
    start : ndarray of shape (C,)
        First guess.
    tolerance : float
        Largest last step, relative to ``1 + max |b|``.

    Returns
    -------
    ndarray of shape (C,)
        The root, of sum zero, or the best point after 200 steps.
    """
    point = start - start.mean()
    gradient, hessian = function(point)
    for _ in range(_MAX_STEPS):
        step = _newton_step(gradient, hessian)
        slope = float(gradient @ step)
        size = float(np.abs(step).max())
        if not (math.isfinite(slope) and slope < 0.0) or size <= tolerance * (1.0 + np.abs(point).max()):
            return point
        reach = _FIRST_REACH + 2.0 * float(np.abs(point - start).max())
        length = min(1.0, reach / size)
        best = float(np.abs(gradient).sum())
        while True:
            trial = point + length * step
            trial_gradient, trial_hessian = function(trial)
            if float(trial_gradient @ step) <= -0.5 * slope:
                break
            length *= 0.5
            if length < 1e-10:
                function(point)
                return point
        if size <= 1e-6 and not float(np.abs(trial_gradient).sum()) < best:
            function(point)  # rounding decides from here on
            return point
        point, gradient, hessian = trial, trial_gradient, trial_hessian
    return point


def _newton_step(gradient: Array, hessian: Array) -> Array:
    """Newton step among vectors of sum zero; zero where the function is flat."""
    classes = len(gradient)
    gradient = gradient - gradient.mean()
    scale = float(np.trace(hessian)) / classes
    if not (math.isfinite(scale) and scale > 0.0):
        return np.zeros(classes)
    # On constants the Hessian vanishes: any positive value there will do.
    full = hessian + scale / classes
    diagonal = np.diag_indices(classes)
    ridge = 0.0
    while ridge < 1.0:
        full[diagonal] += ridge * scale
        try:
            factor = np.linalg.cholesky(full)
        except np.linalg.LinAlgError:
            ridge = max(1e-15, 100.0 * ridge)
        else:
            step = -np.linalg.solve(factor.T, np.linalg.solve(factor, gradient))
            return step - step.mean()
    return -gradient / scale

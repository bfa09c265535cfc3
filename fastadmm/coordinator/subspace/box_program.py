r"""Minimise a convex quadratic over a box, with or without a sum of zero: Mehrotra's interior point method.

The dual of a problem with few rows and a loss with clamped lines as derivatives is such a program. With
curvature at few samples, Newton's method on the loss itself goes from one bend to the next and may need more
than a hundred steps; here some twenty are enough, wherever they start.
"""

from __future__ import annotations

import numpy as np

__all__ = ["minimise_over_box"]

Array = np.ndarray

_MAX_STEPS = 60

#: Share of the value that rounding hides.
_ENOUGH = 1e-12

#: A step goes this share of the way to the next bound.
_INSIDE = 0.995


def minimise_over_box(
    hessian: Array, linear: Array, low: Array, high: Array, balanced: bool, tolerance: float
) -> tuple[Array, float]:
    r"""Minimise :math:`\tfrac12 u^\top H u + c^\top u` for :math:`l \le u \le h`.

    Shapes: hessian (n, n); linear, low, high, u (n,).
    """
    u, multiplier = 0.5 * (low + high), 0.0
    size = float(np.abs(hessian @ u + linear).mean()) or 1.0
    below, above = np.full(len(u), size), np.full(len(u), size)
    for _ in range(_MAX_STEPS):
        down, up, slopes = u - low, high - u, hessian @ u + linear
        residual, product = slopes + multiplier - below + above, float(below @ down + above @ up)
        enough = max(tolerance, 0.5 * _ENOUGH * abs(float((slopes + linear) @ u)))
        if product <= enough and float(np.abs(residual) @ (high - low)) <= enough:
            break
        newton = _Newton(hessian, (down, up), (below, above), residual, float(u.sum()), balanced)
        if newton.failed:
            break
        step, _, low_step, high_step = newton.step(-below * down, -above * up)
        length = _longest((down, step), (up, -step), (below, low_step), (above, high_step))
        left = (below + length * low_step) @ (down + length * step)
        left += (above + length * high_step) @ (up - length * step)
        centre = float(left / product) ** 3 * product / (2 * len(u))
        corrected = centre - below * down - step * low_step, centre - above * up + step * high_step
        step, rise, low_step, high_step = newton.step(*corrected)
        length = _INSIDE * _longest((down, step), (up, -step), (below, low_step), (above, high_step))
        if not length > 0.0:
            break
        u, multiplier = u + length * step, multiplier + length * rise
        below, above = below + length * low_step, above + length * high_step
    return u, multiplier


class _Newton:
    """Newton steps from one point, for any targets of the products of multipliers and distances."""

    def __init__(
        self,
        hessian: Array,
        distances: tuple[Array, Array],
        multipliers: tuple[Array, Array],
        residual: Array,
        total: float,
        balanced: bool,
    ) -> None:
        from scipy.linalg.lapack import dpotrf

        self.distances, self.multipliers = distances, multipliers
        self.residual, self.total, self.balanced = residual, total, balanced
        matrix = hessian.copy()
        (down, up), (below, above) = distances, multipliers
        matrix[np.diag_indices(len(matrix))] += below / down + above / up
        self.factor, self.failed = dpotrf(matrix.T, lower=True, overwrite_a=True, clean=False)
        self.along = self._solve(np.ones(len(matrix))) if balanced and not self.failed else residual

    def _solve(self, right: Array) -> Array:
        from scipy.linalg.lapack import dpotrs

        solved: Array = dpotrs(self.factor, right, lower=True)[0]
        return solved

    def step(self, to_low: Array, to_high: Array) -> tuple[Array, float, Array, Array]:
        """Changes of u, the sum's multiplier, and the multipliers of the bounds."""
        (down, up), (below, above) = self.distances, self.multipliers
        step, rise = self._solve(to_low / down - to_high / up - self.residual), 0.0
        if self.balanced:
            rise = (float(step.sum()) + self.total) / float(self.along.sum())
            step = step - rise * self.along
        return step, rise, (to_low - below * step) / down, (to_high + above * step) / up


def _longest(*pairs: tuple[Array, Array]) -> float:
    """Longest step, up to one, that keeps positive vectors positive."""
    length = 1.0
    for place, step in pairs:
        falling = step < 0.0
        if falling.any():
            length = min(length, float((place[falling] / -step[falling]).min()))
    return length

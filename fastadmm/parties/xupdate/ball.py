r"""x-update of squared l2 in a ball: the secular equation on the eigendecomposition of the Gram matrix."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.linalg

from fastadmm.engine.engine import Engine
from fastadmm.parties.xupdate.base import PenalisedUpdate

__all__ = ["GramBall", "ball_solution", "scaled_ball_solution"]

_MAX_STEPS = 100

#: Squared column norms further apart than this: small columns would drown in the eigenvalues' rounding.
_SPREAD = 1e8


class GramBall(PenalisedUpdate):
    r"""Minimise :math:`\tfrac\mu2\|x\|^2 + \tfrac12\|D x - w\|^2` over :math:`\|x\| \le B`, also for mu = 0.

    Shapes: block (N, d).
    """

    name: ClassVar[str] = "ball"

    def prepare(self, engine: Engine) -> None:
        gram = self.block.gram(engine)
        squares = np.diag(gram).copy()
        squares[squares == 0.0] = squares.max() or 1.0
        self._size = np.sqrt(squares)
        self._scaled: np.ndarray | None = None
        if squares.max() > _SPREAD * squares.min():
            self._scaled = gram / self._size / self._size[:, None]
            return
        values, self._vectors = scipy.linalg.eigh(gram, overwrite_a=True, check_finite=False)
        # Rounding can make a zero eigenvalue slightly negative.
        self._values = np.maximum(values, 0.0)

    def minimise(self, right: np.ndarray, mu: float, start: np.ndarray, engine: Engine) -> np.ndarray:
        second = mu * self.regularizer.shares[1]
        if self._scaled is not None:
            x = scaled_ball_solution(self._scaled, self._size, second, right, self.constraint.radius)
            return self.constraint.project(x)
        right = self._vectors.T @ right
        x = self._vectors @ ball_solution(self._values + second, right, self.constraint.radius)
        return self.constraint.project(x)  # the last digit


def ball_solution(values: np.ndarray, right: np.ndarray, radius: float) -> np.ndarray:
    r"""Minimise :math:`\tfrac12 \sum_j \lambda_j x_j^2 - \langle p, x\rangle` over :math:`\|x\| \le B`.

    Outside the ball the minimiser is :math:`x_j = p_j / (\lambda_j + \nu)` with
    :math:`1 / \|x(\nu)\| = 1 / B`, an increasing concave equation: Newton inside a bracket.

    Shapes: values, right, the result (d,).
    """
    # Directions that the data do not see: their part of p is rounding.
    seen = values > len(values) * np.finfo(np.float64).eps * values.max()
    p, top = np.where(seen, right, 0.0), float(np.linalg.norm(right))
    below = np.where(seen, values, 1.0)
    x = p / below
    if np.linalg.norm(x) <= radius:
        return x
    low, high, nu = 0.0, top / radius, 0.0
    for _ in range(_MAX_STEPS):
        x = p / (below + nu)
        norm = float(np.linalg.norm(x))
        if norm > radius:
            low = nu
        else:
            high = nu
        slope = float((x * x) @ (1.0 / (below + nu)))
        following = nu + (norm / radius - 1.0) * norm * norm / slope
        if not low < following < high:
            following = 0.5 * (low + high)
        if abs(following - nu) <= 1e-15 * nu:
            break
        nu = following
    return x


def scaled_ball_solution(
    scaled: np.ndarray, size: np.ndarray, ridge: float, right: np.ndarray, radius: float
) -> np.ndarray:
    r"""Minimise :math:`\tfrac12 x^\top (G + c I) x - \langle p, x\rangle` over :math:`\|x\| \le B`.

    Columns are brought to one size first; each step of the secular equation factorises.

    Shapes: scaled (d, d); size, right, the result (d,).
    """
    diagonal, inverse = np.diag_indices(len(size)), 1.0 / size
    start = np.diag(scaled) + 1e-14 * len(size)  # collinear columns: enough to factorise

    def at(nu: float) -> tuple[np.ndarray, float]:
        """The minimiser with a multiplier, and the slope of its squared norm over -2."""
        matrix = scaled.copy()
        matrix[diagonal] = start + (ridge + nu) * inverse * inverse
        factor = scipy.linalg.cholesky(matrix, lower=True, overwrite_a=True, check_finite=False)
        x = inverse * scipy.linalg.cho_solve((factor, True), inverse * right, check_finite=False)
        half = scipy.linalg.solve_triangular(factor, inverse * x, lower=True, check_finite=False)
        return x, float(half @ half)

    x, slope = at(0.0)
    norm = float(np.linalg.norm(x))
    low, high, nu = 0.0, float(np.linalg.norm(right)) / radius, 0.0
    for _ in range(_MAX_STEPS):
        if nu == 0.0 and norm <= radius:
            break
        if norm > radius:
            low = nu
        else:
            high = nu
        following = nu + (norm / radius - 1.0) * norm * norm / slope
        if not low < following < high:
            following = 0.5 * (low + high)
        if abs(following - nu) <= 1e-15 * nu:
            break
        nu = following
        x, slope = at(nu)
        norm = float(np.linalg.norm(x))
    return x

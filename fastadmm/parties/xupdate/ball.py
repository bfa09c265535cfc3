r"""x-updates in a ball: of squared l2 by the secular equation, of norms by descent with a multiplier.

The secular equation is solved on the eigendecomposition of the Gram matrix; descent is without the ball, with
the multiplier as a ridge.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.linalg

from fastadmm.blocks.block import FeatureBlock
from fastadmm.engine.engine import Engine
from fastadmm.parties.xupdate.base import PenalisedUpdate
from fastadmm.parties.xupdate.gram_descent import GramDescent, GroupDescent
from fastadmm.parties.xupdate.proximal_gradient import GramProximalGradient
from fastadmm.problem.constraints import AllSpace, Constraint
from fastadmm.problem.regularizers import GroupLasso, Regularizer

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


#: Lengths that are the radius to this share are on the sphere.
_ON_SPHERE = 1e-13

_MAX_SECANTS = 60


class BallDescent(GramProximalGradient):
    r"""Minimise :math:`\mu R(x) + \tfrac12 \|D x - w\|^2` over :math:`\|x\| \le B`, columns of any size.

    The minimiser is that of the problem with :math:`\tfrac\nu2 \|x\|^2` instead of the ball, for the least
    :math:`\nu \ge 0` that keeps it inside: descent over columns or groups does not mind how different columns
    are, as proximal gradient does, which finishes what descent leaves.

    Shapes: block (N, d).
    """

    name: ClassVar[str] = "ball-descent"

    def __init__(self, block: FeatureBlock, regularizer: Regularizer, constraint: Constraint) -> None:
        super().__init__(block, regularizer, constraint)
        kind = GroupDescent if isinstance(regularizer, GroupLasso) else GramDescent
        self._free: GroupDescent | GramDescent = kind(block, regularizer, AllSpace())

    def prepare(self, engine: Engine) -> None:
        super().prepare(engine)
        self._free.prepare(engine)

    def minimise(self, right: np.ndarray, mu: float, start: np.ndarray, engine: Engine) -> np.ndarray:
        x = self._on_sphere(right, mu, self._free.descend(right, mu, 0.0, start))
        return super().minimise(right, mu, x, engine)

    def _on_sphere(self, right: np.ndarray, mu: float, x: np.ndarray) -> np.ndarray:
        r"""The minimiser in the ball, from that of :math:`\nu = 0`.

        :math:`1 / \|x(\nu)\|` rises, nearly along a line: secants inside a bracket.
        """
        radius, norm = self.constraint.radius, float(np.linalg.norm(x))
        low, high = 0.0, float(np.linalg.norm(right)) / radius
        below, above = 1.0 / max(norm, radius) - 1.0 / radius, np.inf
        nu = 0.0
        for _ in range(_MAX_SECANTS):
            if norm <= radius * (1.0 + _ON_SPHERE) and (nu == 0.0 or norm >= radius * (1.0 - _ON_SPHERE)):
                break
            nu = _between(low, high, below, above)
            if not low < nu < high:
                break
            x = self._free.descend(right, mu, nu, x)
            norm = float(np.linalg.norm(x))
            left = 1.0 / norm - 1.0 / radius if norm > 0.0 else np.inf
            if left < 0.0:
                low, below, above = nu, left, 0.5 * above
            else:
                high, above, below = nu, left, 0.5 * below
        return x


def _between(low: float, high: float, below: float, above: float) -> float:
    """Where the line between the ends of a bracket, negative and positive, is zero; far ends are halved."""
    if not np.isfinite(above):
        return 0.5 * high if low == 0.0 else float(np.sqrt(low * high))
    return low + (high - low) * below / (below - above)

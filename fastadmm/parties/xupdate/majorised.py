r"""x-updates for a smooth non-convex regulariser: majorise by squared l2, minimise exactly, repeat.

The log-sum R has a second derivative of at most 1, so for every point :math:`x^k`

.. math:: R(x) \le R(x^k) + \langle \nabla R(x^k), x - x^k\rangle + \tfrac12 \|x - x^k\|^2,

squared l2 with a linear term. Its minimiser over any set is an x-update that
is there already, with another right side; each decreases the party's own
problem, and a fixed point is a stationary point of it.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.parties.xupdate.base import PenalisedUpdate
from fastadmm.parties.xupdate.direct import eigen
from fastadmm.parties.xupdate.proximal_gradient import ProximalGradient
from fastadmm.problem.constraints import AllSpace, Ball
from fastadmm.problem.penalty import PartyPenalty
from fastadmm.problem.regularizers import LogSum

#: Steps of one round; the answer is never worse than the start, however many are taken.
_MAX_STEPS = 100

#: A step this small relative to the weights is the last.
_LAST_STEP = 1e-12

_TOLERANCE, _MAX_PASSES = 1e-13, 1000

#: Steps of the secular equation of a ball.
_MOST_SECULAR = 100


class MajorisedRidge(PenalisedUpdate):
    """Majorise and minimise on the Gram matrix. Shapes: block (N, d)."""

    name: ClassVar[str] = "majorised"

    def prepare(self, engine: Engine) -> None:
        gram = self.block.gram(engine)
        if isinstance(self.constraint, (AllSpace, Ball)):
            self._values, self._vectors = eigen(gram)
        else:
            self._gram = np.ascontiguousarray(gram)

    def minimise(self, right: np.ndarray, mu: float, start: np.ndarray, engine: Engine) -> np.ndarray:
        assert isinstance(self.regularizer, LogSum)
        x = self.constraint.project(start)
        for _ in range(_MAX_STEPS):
            new = self._ridge(right + mu * (x - self.regularizer.gradient(x)), mu, x)
            settled = float(np.abs(new - x).max()) <= _LAST_STEP * float(np.abs(new).max())
            x = new
            if settled:
                break
        return x

    def _ridge(self, right: np.ndarray, mu: float, start: np.ndarray) -> np.ndarray:
        """Minimise ``x'Gx / 2 - right'x + mu/2 |x|^2`` over the set."""
        if isinstance(self.constraint, AllSpace):
            return self._vectors @ ((self._vectors.T @ right) / (self._values + mu))
        if isinstance(self.constraint, Ball):
            rotated = ball_solution(self._values + mu, self._vectors.T @ right, self.constraint.radius)
            return self.constraint.project(self._vectors @ rotated)  # the last digit
        from fastadmm.kernels.gram_descent import gram_descent

        low, high = self.constraint.bounds
        x = start.copy()
        at, scale = np.zeros_like(x), (_TOLERANCE, _MAX_PASSES)
        gram_descent(self._gram, -right, at, 0.0, mu, low, high, x, np.empty_like(x), *scale)
        return x


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
    for _ in range(_MOST_SECULAR):
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


class MajorisedGradient(ProximalGradient):
    """Minimise without a Gram matrix: projected gradient steps, each of which decreases the problem."""

    name: ClassVar[str] = "majorised-gradient"

    def _moved(self, penalty: PartyPenalty, point: np.ndarray, slope: np.ndarray, bend: float) -> np.ndarray:
        assert isinstance(self.regularizer, LogSum)
        pull = slope + penalty.strength * self.regularizer.gradient(point)
        return self.constraint.project(point - pull / bend)

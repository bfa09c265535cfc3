r"""x-update of norms in a ball: descent without the ball, its multiplier as a ridge."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.engine.engine import Engine
from fastadmm.parties.xupdate.gram_descent import GramDescent, GroupDescent
from fastadmm.parties.xupdate.proximal_gradient import GramProximalGradient
from fastadmm.problem.constraints import AllSpace, Constraint
from fastadmm.problem.regularizers import GroupLasso, Regularizer

__all__ = ["BallDescent"]

#: Lengths that are the radius to this share are on the sphere.
_ON_SPHERE = 1e-13

_MAX_STEPS = 60


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
        for _ in range(_MAX_STEPS):
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

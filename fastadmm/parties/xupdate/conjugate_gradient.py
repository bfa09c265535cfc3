"""x-update without a matrix: warm-started, preconditioned conjugate gradients."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.engine.engine import Engine
from fastadmm.parties.xupdate.base import XUpdate

__all__ = ["ConjugateGradient"]

#: The residual left by the warm start is reduced by this factor each round, so
#: that the error of a round is a small share of the progress of that round.
_REDUCTION = 1e-4

#: Below this residual, relative to the right-hand side, rounding decides.
_FLOOR = 1e-13

_MAX_STEPS = 200


class ConjugateGradient(XUpdate):
    r"""Solve :math:`(D^\top D + \mu I) x = D^\top w` with the diagonal as preconditioner.

    Shapes: block (N, d).
    """

    name: ClassVar[str] = "cg"

    def __init__(self, block: FeatureBlock) -> None:
        self.block = block

    def prepare(self, engine: Engine) -> None:
        self._diagonal = self.block.column_squares(engine)

    def solve(self, w: np.ndarray, mu: float, start: np.ndarray, engine: Engine) -> np.ndarray:
        block = self.block
        x = start.copy()
        remainder = w - block.product(x, engine) if x.any() else w
        right = block.transposed_product(remainder, engine) - mu * x
        scale = 1.0 / (self._diagonal + mu)
        preconditioned = scale * right
        direction = preconditioned.copy()
        power = float(right @ preconditioned)
        total = block.transposed_product(w, engine) if x.any() else right
        target = max(_REDUCTION**2 * power, _FLOOR**2 * float(total @ (scale * total)))
        for _ in range(_MAX_STEPS):
            if power <= target:
                break
            image = block.product(direction, engine)
            curvature = float(engine.dot(image, image)) + mu * float(direction @ direction)
            step = power / curvature
            x += step * direction
            right -= step * (block.transposed_product(image, engine) + mu * direction)
            preconditioned = scale * right
            following = float(right @ preconditioned)
            direction *= following / power
            direction += preconditioned
            power = following
        return x

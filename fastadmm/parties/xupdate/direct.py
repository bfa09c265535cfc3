"""x-updates of squared l2 without a set: by the Gram matrix, the kernel matrix, or without a matrix.

The d x d Gram matrix, or the N x N one where columns are more than rows, is decomposed once: any penalty then
costs nothing more. Conjugate gradients start warm and are preconditioned.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.linalg

from fastadmm.blocks.block import FeatureBlock
from fastadmm.engine.engine import Engine
from fastadmm.parties.xupdate.base import XUpdate


class GramEigen(XUpdate):
    r"""Solve with :math:`D^\top D = V \Lambda V^\top`: :math:`x = V (\Lambda + \mu)^{-1} V^\top D^\top w`.

    Shapes: block (N, d).
    """

    name: ClassVar[str] = "gram"

    def __init__(self, block: FeatureBlock) -> None:
        self.block = block

    def prepare(self, engine: Engine) -> None:
        values, self._vectors = scipy.linalg.eigh(
            self.block.gram(engine), overwrite_a=True, check_finite=False
        )
        # Rounding can make a zero eigenvalue slightly negative.
        self._values = np.maximum(values, 0.0)

    def solve(self, w: np.ndarray, mu: float, start: np.ndarray, engine: Engine) -> np.ndarray:
        right = self.block.transposed_product(w, engine)
        return self._vectors @ ((self._vectors.T @ right) / (self._values + mu))


class KernelEigen(XUpdate):
    r"""Solve with :math:`D D^\top = U \Sigma U^\top`: :math:`x = D^\top U (\Sigma + \mu)^{-1} U^\top w`.

    Shapes: block (N, d).
    """

    name: ClassVar[str] = "kernel"

    def __init__(self, block: FeatureBlock) -> None:
        self.block = block

    def prepare(self, engine: Engine) -> None:
        values, self._vectors = scipy.linalg.eigh(
            self.block.kernel_gram(), overwrite_a=True, check_finite=False
        )
        self._values = np.maximum(values, 0.0)

    def solve(self, w: np.ndarray, mu: float, start: np.ndarray, engine: Engine) -> np.ndarray:
        dual = self._vectors @ ((self._vectors.T @ w) / (self._values + mu))
        return self.block.transposed_product(dual, engine)


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

"""x-update by eigendecomposition of the d x d Gram matrix: any penalty at no extra cost."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.linalg

from fastadmm.blocks.block import FeatureBlock
from fastadmm.engine.engine import Engine
from fastadmm.parties.xupdate.base import XUpdate

__all__ = ["GramEigen"]


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

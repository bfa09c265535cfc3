"""x-update on the N x N side, for blocks with more columns than rows."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.linalg

from fastadmm.blocks.block import FeatureBlock
from fastadmm.engine.engine import Engine
from fastadmm.parties.xupdate.base import XUpdate

__all__ = ["KernelEigen"]


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

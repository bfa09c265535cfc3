"""Blocks that are read from files, with the passes of a table that is in memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.engine.engine import Engine

Array = np.ndarray


class Apart:
    """All columns of several blocks, each read where it is; blocks of shape (N, d_m)."""

    def __init__(self, blocks: Sequence[FeatureBlock]) -> None:
        self.blocks = blocks
        widths = [block.shape[1] for block in blocks]
        self.shape = blocks[0].shape[0], sum(widths)
        self.density = sum(w * block.density for w, block in zip(widths, blocks)) / max(1, self.shape[1])
        self._cuts = np.cumsum(widths)[:-1]

    def product(self, x: Array, engine: Engine) -> Array:
        """``D x`` of shape (N,) for x of shape (d,)."""
        pairs = zip(self.blocks, np.split(x, self._cuts))
        return reduce(np.add, [block.product(own, engine) for block, own in pairs])

    def transposed_product(self, v: Array, engine: Engine) -> Array:
        """``D.T v`` of shape (d,) for v of shape (N,)."""
        return np.concatenate([block.transposed_product(v, engine) for block in self.blocks])

    def hessian_product(self, x: Array, weight: Array, engine: Engine) -> Array:
        """``D.T diag(weight) D x`` of shape (d,), for x of shape (d,) and weights of shape (N,)."""
        return self.transposed_product(engine.times(self.product(x, engine), weight), engine)

    def column_squares(self, engine: Engine) -> Array:
        """Diagonal of the Gram matrix, of shape (d,)."""
        return np.concatenate([block.column_squares(engine) for block in self.blocks])

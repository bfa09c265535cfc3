r"""A party's block in a curvature metric: :math:`\mathrm{diag}(\sqrt w)\, D`, without a copy of D."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.engine.engine import Engine

Array = np.ndarray


class WeightedBlock(FeatureBlock):
    r"""Rows of another block times :math:`\sqrt{w_i}`, so that least squares on it is weighted.

    Shapes: block (N, d); weight (N,).
    """

    def __init__(self, block: FeatureBlock, weight: Array, engine: Engine) -> None:
        self.inner, self.weight, self.root = block, weight, engine.root(weight)
        self.shape, self.nbytes, self.density = block.shape, weight.nbytes, block.density
        self.all_rows = block.all_rows

    def product_into(self, x: Array, out: Array, engine: Engine) -> None:
        self.inner.product_into(x, out, engine)
        engine.times(out, self.root, out)

    def products_into(self, x: Array, out: Array, engine: Engine) -> None:
        self.inner.products_into(x, out, engine)
        out *= self.root

    def transposed_products(self, vectors: Sequence[Array], engine: Engine) -> list[Array]:
        return self.inner.transposed_products([engine.times(self.root, v) for v in vectors], engine)

    def matrix_product(self, x: Array, engine: Engine) -> Array:
        return self.root * self.inner.matrix_product(x, engine)

    def upper_gram(self, engine: Engine, weight: Array | None = None, rough: bool = False) -> Array:
        return self.inner.upper_gram(engine, self.weight if weight is None else self.weight * weight, rough)

    def kernel_gram(self) -> Array:
        return self.root[:, None] * self.inner.kernel_gram() * self.root

    def column_squares(self, engine: Engine) -> Array:
        return np.diag(self.gram(engine)).copy()

"""Standard deviations of columns, exact to some digits however far from zero the columns are."""

from __future__ import annotations

import numpy as np

from fastadmm.blocks.block import CSRBlock, DenseBlock, FeatureBlock
from fastadmm.engine.engine import Engine

Array = np.ndarray
Rows = tuple[int, int]

#: A column that varies by less than this share of its mean is constant: no two of its doubles differ.
_CONSTANT = 1e-18


def column_deviations(block: FeatureBlock, engine: Engine) -> Array:
    """Root mean square distance of every column from its mean, of shape (d,); zero of a constant column.

    Shapes: block (N, d).
    """
    rows, d = block.whole_shape
    mean = block.transposed_product(np.ones(block.shape[0]), engine) / rows

    def sums(rows: Rows) -> Array:
        """Of the entries less the columns' means, and of their squares."""
        out = np.zeros((2, d))
        if isinstance(block, DenseBlock):
            for _, part in block.tiles(rows):
                apart = part - mean
                out += apart.sum(axis=0), (apart * apart).sum(axis=0)
            return out
        assert isinstance(block, CSRBlock)
        left = np.full(d, float(rows[1] - rows[0]))
        for _, (indptr, indices, data) in block.tiles(rows):
            own = slice(int(indptr[0]), int(indptr[-1]))
            at = indices[own]
            apart = data[own] - mean[at]
            np.add.at(out[0], at, apart)
            np.add.at(out[1], at, apart * apart)
            np.subtract.at(left, at, 1.0)
        return out + left * np.array([-mean, mean * mean])

    first, second = engine.sums(sums, engine.leaves(block.shape[0]), size=2 * d) / rows
    found = np.sqrt(np.maximum(second - first * first, 0.0))
    found[found <= _CONSTANT * np.abs(mean)] = 0.0
    return found

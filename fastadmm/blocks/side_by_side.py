"""All columns of several blocks as one sparse block."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastadmm.blocks.block import CSRBlock, DenseBlock, FeatureBlock
from fastadmm.engine.engine import Engine

__all__ = ["can_stand_side_by_side", "mean_row_square", "side_by_side"]


def can_stand_side_by_side(blocks: Sequence[FeatureBlock]) -> bool:
    """Whether all blocks are matrices in memory."""
    return all(isinstance(block, CSRBlock | DenseBlock) and block.in_memory for block in blocks)


def mean_row_square(blocks: Sequence[FeatureBlock], engine: Engine) -> float:
    """Mean over the rows of all workers of their squared number of entries, in all blocks."""
    n, sparse = blocks[0].shape[0], [block for block in blocks if isinstance(block, CSRBlock)]
    dense = float(sum(block.shape[1] for block in blocks if not isinstance(block, CSRBlock)))
    if not sparse:
        return dense**2

    def piece(rows: tuple[int, int]) -> float:
        lengths = np.full(rows[1] - rows[0], dense)
        for block in sparse:
            lengths += np.diff(block.indptr[rows[0] : rows[1] + 1])
        return float(lengths @ lengths)  # whole numbers, exact in any order

    return float(engine.sums(piece, engine.leaves(n), light=True)) / engine.all_rows(n)


def side_by_side(blocks: Sequence[FeatureBlock], engine: Engine) -> CSRBlock:
    """Copy blocks, of which :func:`can_stand_side_by_side`, into one; a single sparse one is that itself.

    Parameters
    ----------
    blocks : sequence of FeatureBlock, of shape (N, d_m)
    engine : Engine

    Returns
    -------
    CSRBlock of shape (N, d)
    """
    from fastadmm.kernels.side_by_side import append_csr, append_dense

    if len(blocks) == 1 and isinstance(blocks[0], CSRBlock):
        return blocks[0]
    n, columns = blocks[0].shape[0], sum(block.shape[1] for block in blocks)
    indptr = np.zeros(n + 1, dtype=np.int64)
    for block in blocks:
        if isinstance(block, CSRBlock):
            indptr += block.indptr
        else:
            indptr += np.arange(0, (n + 1) * block.shape[1], block.shape[1])
    indices = np.empty(int(indptr[-1]), dtype=np.uint16 if columns <= 2**16 else np.uint32)
    data, places, first = np.empty(len(indices)), indptr[:-1].copy(), 0
    for block in blocks:
        out = first, places, indices, data
        if isinstance(block, CSRBlock):
            given = block.indptr, block.indices, block.data, *out
            engine.over_rows(append_csr, engine.leaves(n), *given)
        elif isinstance(block, DenseBlock):
            engine.over_rows(append_dense, engine.leaves(n), block.matrix, *out)
        first += block.shape[1]
    found = CSRBlock.of_sorted(indptr, indices, data, columns)
    # Of the rows of all workers, which cut them the same.
    found.density = sum(block.shape[1] * block.density for block in blocks) / columns
    return found

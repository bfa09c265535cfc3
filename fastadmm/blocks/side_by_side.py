"""All columns of several blocks as one block."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from fastadmm.blocks.block import CSRBlock, DenseBlock, FeatureBlock
from fastadmm.engine.engine import Engine

Array = np.ndarray

#: Entries that are copied at a time: a second-level cache holds them for one block after another.
_ENTRIES_AT_A_TIME = 1 << 16

#: So many rows tell about how long the others are.
_ROWS_COUNTED = 1 << 12

#: Columns with a larger share of stored entries do not count as sparse.
MOSTLY = 0.5

#: All columns of several parties.
Rows = CSRBlock | DenseBlock


def can_stand_side_by_side(blocks: Sequence[FeatureBlock]) -> bool:
    """Whether all blocks are matrices in memory."""
    return all(isinstance(block, CSRBlock | DenseBlock) and block.in_memory for block in blocks)


def mean_row_square(blocks: Sequence[FeatureBlock], engine: Engine) -> float:
    """Mean over rows of all workers, some of them, of their squared number of entries read as sparse ones."""
    n, sparse = blocks[0].shape[0], [block for block in blocks if isinstance(block, CSRBlock)]
    if not sparse:
        return 0.0
    dense = sum(block.shape[1] for block in blocks if not isinstance(block, CSRBlock))
    step = max(1, engine.all_rows(n) // _ROWS_COUNTED)

    def piece(rows: tuple[int, int]) -> Array:
        start, stop = rows[0] + -(engine.first_row + rows[0]) % step, rows[1]
        lengths = np.full(len(range(start, stop, step)), float(dense))
        for block in sparse:
            lengths += block.indptr[start + 1 : stop + 1 : step] - block.indptr[start:stop:step]
        return np.array([lengths @ lengths, len(lengths)])  # whole numbers, exact in any order

    squares, counted = engine.sums(piece, engine.leaves(n), light=True)
    return float(squares / counted)


def some_rows(block: CSRBlock, numbers: Array, engine: Engine) -> CSRBlock:
    """A copy of some rows of a sparse block in memory, with numbers of shape (n,).

    ``engine``: of these rows.
    """
    from fastadmm.kernels.side_by_side import copy_rows

    n = len(numbers)
    indptr = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(block.indptr[numbers + 1] - block.indptr[numbers], out=indptr[1:])
    indices, data = np.empty(int(indptr[-1]), block.indices.dtype), np.empty(int(indptr[-1]))
    given = block.indptr, block.indices, block.data, numbers, indptr, indices, data
    engine.over_rows(copy_rows, engine.leaves(n), *given)
    found = CSRBlock.of_sorted(indptr, indices, data, block.shape[1])
    found.density = block.density  # of the rows of all workers, about
    return found


def side_by_side(blocks: Sequence[FeatureBlock], engine: Engine) -> Rows:
    """Blocks, of which :func:`can_stand_side_by_side`, as one; a single one is that itself.

    Shapes: each of blocks (N, d_m); the result (N, d).
    """
    from fastadmm.kernels.side_by_side import append_csr, append_dense

    if len(blocks) == 1 and isinstance(blocks[0], CSRBlock | DenseBlock):
        return blocks[0]
    matrices = [block.matrix for block in blocks if isinstance(block, DenseBlock)]
    if len(matrices) == len(blocks):
        return DenseBlock(np.concatenate(matrices, axis=1))
    n, columns = blocks[0].shape[0], sum(block.shape[1] for block in blocks)
    indptr = np.zeros(n + 1, dtype=np.int64)
    for block in blocks:
        if isinstance(block, CSRBlock):
            indptr += block.indptr
        else:
            indptr += np.arange(0, (n + 1) * block.shape[1], block.shape[1])
    indices = np.empty(int(indptr[-1]), dtype=np.uint16 if columns <= 2**16 else np.uint32)
    data, places = np.empty(len(indices)), indptr[:-1].copy()

    # Several threads take one block after another: together they have more cache, and jobs are fewer.
    parts = max(1, len(indices) // _ENTRIES_AT_A_TIME) if engine.n_threads == 1 else 1
    for start, stop in pairwise(np.linspace(0, n, parts + 1, dtype=np.int64).tolist()):
        leaves, first = engine.leaves(n) if parts == 1 else ((start, stop),), 0
        for block in blocks:
            out = first, places, indices, data
            if isinstance(block, CSRBlock):
                engine.over_rows(append_csr, leaves, block.indptr, block.indices, block.data, *out)
            elif isinstance(block, DenseBlock):
                engine.over_rows(append_dense, leaves, block.matrix, *out)
            first += block.shape[1]
    found = CSRBlock.of_sorted(indptr, indices, data, columns)
    found.all_ones = all(isinstance(block, CSRBlock) and block.all_ones for block in blocks)
    # Of the rows of all workers, which cut them the same.
    found.density = sum(block.shape[1] * block.density for block in blocks) / columns
    return found

"""All columns of several blocks: as one block, or for work column by column."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from fastadmm.blocks.block import CSRBlock, DenseBlock, FeatureBlock, unsigned_indices
from fastadmm.engine.engine import Engine, row_ranges

Array = np.ndarray

#: So many rows tell about how long the others are.
_ROWS_COUNTED = 1 << 12

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

    squares, counted = engine.sums(piece, engine.leaves(n))
    return float(squares / counted)


def side_by_side(blocks: Sequence[FeatureBlock], engine: Engine) -> Rows:
    """Blocks, of which :func:`can_stand_side_by_side`, as one; a single one is that itself.

    Shapes: each of blocks (N, d_m); the result (N, d).
    """
    if len(blocks) == 1 and isinstance(blocks[0], CSRBlock | DenseBlock):
        return blocks[0]
    matrices = [block.matrix for block in blocks if isinstance(block, DenseBlock)]
    if len(matrices) == len(blocks):
        return DenseBlock(np.concatenate(matrices, axis=1))
    n, columns = blocks[0].shape[0], sum(block.shape[1] for block in blocks)
    given = [_compressed(block) for block in blocks]
    indptr = sum((own[0] for own in given), np.zeros(n + 1, dtype=np.int64))
    indices = np.empty(int(indptr[-1]), dtype=np.uint16 if columns <= 2**16 else np.uint32)
    data = np.empty(len(indices))

    def piece(rows: tuple[int, int]) -> None:
        begin, first = indptr[slice(*rows)].copy(), 0
        for block, (starts, numbers, values) in zip(blocks, given):
            own = starts[rows[0] : rows[1] + 1]
            here, lengths = slice(own[0], own[-1]), np.diff(own)
            places = np.arange(own[0], own[-1]) + np.repeat(begin - own[:-1], lengths)
            indices[places] = np.add(numbers[here], first, dtype=indices.dtype)
            data[places] = values[here]
            begin, first = begin + lengths, first + block.shape[1]

    engine.by_leaf(piece, engine.leaves(n))
    found = CSRBlock.of_sorted(indptr, indices, data, columns)
    found.all_ones = all(isinstance(block, CSRBlock) and block.all_ones for block in blocks)
    # Of the rows of all workers, which cut them the same.
    found.density = sum(block.shape[1] * block.density for block in blocks) / columns
    return found


def _compressed(block: FeatureBlock) -> tuple[Array, Array, Array]:
    """A matrix in memory as compressed sparse rows; of a dense one with its zeros."""
    if isinstance(block, CSRBlock):
        return block.indptr, block.indices, block.data
    assert isinstance(block, DenseBlock)
    n, d = block.shape
    numbers = np.arange(d, dtype=np.uint16 if d <= 2**16 else np.uint32)
    return np.arange(n + 1) * d, np.tile(numbers, n), block.matrix.ravel()


class Columns:
    """Columns one after the other: compressed, unless all blocks are dense.

    Shapes: each of blocks (N, d_m); indptr (d + 1,); rows (nnz,) or (0,); data (nnz,).
    """

    def __init__(self, blocks: Sequence[FeatureBlock], engine: Engine) -> None:
        self.engine, n = engine, blocks[0].shape[0]
        self.shape = n, sum(block.shape[1] for block in blocks)
        self.dense = all(isinstance(block, DenseBlock) for block in blocks)
        if self.dense:
            self.rows, self.indptr = np.empty(0, dtype=np.uint16), np.arange(self.shape[1] + 1) * n
            values, start = np.empty(self.shape[::-1]), 0
            for block in blocks:
                block.columns_into(values[start : start + block.shape[1]], engine)
                start += block.shape[1]
            self.data = values.reshape(-1)
            return
        parts = engine.map(_by_columns, blocks)
        starts = np.cumsum([0, *(len(part.data) for part in parts)])
        ends = [part.indptr[1:] + start for part, start in zip(parts, starts)]
        self.indptr = np.concatenate([[0], *ends]).astype(np.int64)
        self.rows = unsigned_indices(np.concatenate([part.indices for part in parts]), n)
        self.data = np.concatenate([part.data for part in parts])

    def squares(self) -> Array:
        """Squared lengths of the columns, of shape (d,)."""
        from fastadmm.kernels.coordinate_descent import column_squares

        out = np.empty(self.shape[1])
        self.engine.over_rows(column_squares, row_ranges(len(out)), self.indptr, self.data, out)
        return out

    def some(self, chosen: Array) -> FeatureBlock:
        """The columns with some numbers, ascending."""
        n, d = self.shape
        if self.dense:
            return DenseBlock(np.ascontiguousarray(self.data.reshape(d, n)[chosen].T))
        whole = sp.csc_array(
            (self.data, self.rows.view(self.rows.dtype.str.replace("u", "i")), self.indptr), shape=self.shape
        )
        return CSRBlock(whole[:, chosen].tocsr())

    def product(self, c: Array) -> Array:
        """``D c`` of shape (N,)."""
        from fastadmm.kernels.coordinate_descent import add_columns

        out = np.zeros(self.shape[0])
        add_columns(self.indptr, self.rows, self.data, c, out)
        return out


def _by_columns(block: FeatureBlock) -> sp.csc_array:
    if isinstance(block, CSRBlock):
        return block.to_scipy().tocsc()
    assert isinstance(block, DenseBlock)
    return sp.csc_array(block.matrix)

"""Columns of several blocks: all with their entries, for work column by column, or copies of some."""

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from fastadmm.blocks.block import CSRBlock, DenseBlock, FeatureBlock, unsigned_indices
from fastadmm.blocks.mixed import Mixed, Rows, in_order, rows_of_all
from fastadmm.blocks.side_by_side import Beside
from fastadmm.engine.engine import Engine, row_ranges

Array = np.ndarray


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

    def transposed_product(self, v: Array) -> Array:
        """``D.T v`` of shape (d,)."""
        from fastadmm.kernels.coordinate_descent import column_products

        out, d = np.empty(self.shape[1]), self.shape[1]
        self.engine.over_rows(column_products, row_ranges(d), self.indptr, self.rows, self.data, v, out)
        return out


def _by_columns(block: FeatureBlock) -> sp.csc_array:
    if isinstance(block, CSRBlock):
        return block.to_scipy().tocsc()
    assert isinstance(block, DenseBlock)
    return sp.csc_array(block.matrix)


def some_columns(blocks: Sequence[FeatureBlock], chosen: Array, engine: Engine) -> tuple[Rows, Array]:
    """Some columns, and their numbers in the order in which they stand: sparse ones before dense ones.

    Shapes: each of blocks (N, d_m); chosen, numbers (k,); rows (N, k).
    """
    ends = np.cumsum([block.shape[1] for block in blocks])
    starts = ends - [block.shape[1] for block in blocks]
    if len(chosen) == ends[-1]:
        order = np.concatenate([chosen[starts[m] : ends[m]] for m in in_order(blocks)])
        return rows_of_all(blocks, engine), order
    own = [chosen[slice(*np.searchsorted(chosen, span))] - span[0] for span in zip(starts, ends)]
    parts = [(block, numbers, start) for block, numbers, start in zip(blocks, own, starts) if len(numbers)]
    sparse = [part for part in parts if isinstance(part[0], CSRBlock)]
    dense = [part for part in parts if isinstance(part[0], DenseBlock)]
    order = np.concatenate([numbers + start for _, numbers, start in [*sparse, *dense]])
    if not sparse:
        return _dense(dense, engine), order
    if not dense:
        return _sparse(sparse, engine), order
    return Mixed(_sparse(sparse, engine), _dense(dense, engine)), order


def _dense(parts: Sequence[tuple[FeatureBlock, Array, int]], engine: Engine) -> Beside:
    from fastadmm.kernels.side_by_side import copy_some

    n, first = parts[0][0].shape[0], 0
    out = np.empty((n, sum(len(numbers) for _, numbers, _ in parts)))
    for block, numbers, _ in parts:
        assert isinstance(block, DenseBlock)
        engine.over_rows(copy_some, engine.leaves(n), block.matrix, numbers, first, out)
        first += len(numbers)
    return Beside([out])


def _sparse(parts: Sequence[tuple[FeatureBlock, Array, int]], engine: Engine) -> CSRBlock:
    from fastadmm.kernels.side_by_side import append_some, find_some

    n, first, arrays = parts[0][0].shape[0], 0, []
    indptr = np.zeros(n + 1, dtype=np.int64)
    for block, numbers, _ in parts:
        assert isinstance(block, CSRBlock)
        places, counts = np.full(block.shape[1], -1, dtype=np.int32), np.zeros(n, dtype=np.int64)
        places[numbers] = np.arange(first, first + len(numbers))
        # Only as much of these as is found takes memory.
        number = np.uint32 if max(n, len(block.data)) < 2**32 else np.uint64
        found = np.empty(len(block.data), dtype=number), np.empty(len(block.data), dtype=number), counts
        engine.over_rows(find_some, engine.leaves(n), block.indptr, block.indices, places, *found)
        arrays.append((block.indptr, block.indices, block.data, places, *found))
        indptr[1:] += counts
        first += len(numbers)
    np.cumsum(indptr, out=indptr)
    indices = np.empty(int(indptr[-1]), dtype=np.uint16 if first <= 2**16 else np.uint32)
    data, ends = np.empty(len(indices)), indptr[:-1].copy()
    for given in arrays:
        engine.over_rows(append_some, engine.leaves(n), *given, ends, indices, data)
    rows = CSRBlock.of_sorted(indptr, indices, data, first)
    if engine.shares_rows:  # the rows of all workers are cut the same
        entries = engine.sums(
            lambda rows: np.array([float(indptr[rows[1]] - indptr[rows[0]])]), engine.leaves(n), light=True
        )
        rows.density = float(entries[0]) / (engine.all_rows(n) * first)
    return rows

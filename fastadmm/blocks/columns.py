"""Columns of several blocks with their entries, for work column by column."""

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from fastadmm.blocks.block import CSRBlock, DenseBlock, FeatureBlock, unsigned_indices
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

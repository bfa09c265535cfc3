"""Dense and sparse columns with the same rows: each kind is read as it is stored."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastadmm.blocks.block import CSRBlock, DenseBlock, FeatureBlock, gram_leaves, mirrored
from fastadmm.blocks.side_by_side import dense_columns, joined, side_by_side, some_rows
from fastadmm.blocks.tiles import tile_rows
from fastadmm.engine.engine import Engine
from fastadmm.engine.tree import Ranges, leaves_for_sums

Array = np.ndarray


class Mixed:
    """Sparse columns and, after them, dense ones. Shapes: sparse (N, d_0); dense (N, d_1)."""

    def __init__(self, sparse: CSRBlock, dense: DenseBlock) -> None:
        (n, own), (_, more) = sparse.shape, dense.shape
        self.sparse, self.dense, self.shape = sparse, dense, (n, own + more)
        self.density = (sparse.density * own + more) / (own + more)
        self.arrays = (sparse.indptr, sparse.indices, sparse.data), dense.matrix

    def _leaves(self, engine: Engine, numbers: int = 1) -> Ranges:
        """As of a block with so many entries."""
        everything = engine.all_rows(self.shape[0])
        entries = self.density * everything * self.shape[1]
        return engine.leaves(self.shape[0], *leaves_for_sums(everything, entries, numbers))

    def some_rows(self, numbers: Array, engine: Engine) -> Mixed:
        """A copy of the rows with numbers of shape (n,); ``engine``: of these rows."""
        return Mixed(some_rows(self.sparse, numbers, engine), self.dense.some_rows(numbers, engine))

    def product(self, x: Array, engine: Engine) -> Array:
        """``D x`` of shape (N,) for x of shape (d,)."""
        from fastadmm.kernels.mixed import mixed_product

        out = engine.vector(self.shape[0])
        engine.over_rows(mixed_product, self._leaves(engine), *self.arrays, x, out)
        return out

    def transposed_product(self, v: Array, engine: Engine) -> Array:
        """``D.T v`` of shape (d,) for v of shape (N,)."""
        from fastadmm.kernels.mixed import mixed_transposed

        d = self.shape[1]
        return engine.sum_over_rows(mixed_transposed, self._leaves(engine, d), (d,), *self.arrays, v)

    def column_squares(self, engine: Engine) -> Array:
        """Diagonal of the Gram matrix, of shape (d,)."""
        return np.concatenate([self.sparse.column_squares(engine), self.dense.column_squares(engine)])

    def gram(self, engine: Engine, weight: Array) -> Array:
        """Gram matrix ``D.T diag(weight) D`` of shape (d, d), for weights of shape (N,)."""
        return self._gram(engine, weight, 0)

    def bordered_gram(self, engine: Engine, weight: Array) -> Array:
        """As :meth:`gram`, of shape (1 + d, 1 + d): with a column of ones before the others."""
        return self._gram(engine, weight, 1)

    def _gram(self, engine: Engine, weight: Array, lead: int) -> Array:
        from fastadmm.kernels.blas import routine
        from fastadmm.kernels.mixed import mixed_gram

        (n, d), own = self.shape, self.dense.shape[1]
        leaves, size = gram_leaves((n, d), self.density * d, engine), lead + d
        told = lead, weight, tile_rows(own), routine("dsyrk")
        return mirrored(engine.sum_over_rows(mixed_gram, leaves, (size, size), *self.arrays, *told))


#: All columns of several parties.
Rows = CSRBlock | DenseBlock | Mixed


def rows_of_all(blocks: Sequence[FeatureBlock], engine: Engine) -> Rows:
    """The columns of blocks in memory, in the order of :func:`in_order`.

    Several sparse blocks are copied as one, with them a few dense columns, and several dense ones, too.

    Shapes: each of blocks (N, d_m).
    """
    sparse = [block for block in blocks if isinstance(block, CSRBlock)]
    dense = [block for block in blocks if not isinstance(block, CSRBlock)]
    if not (sparse and dense and dense_columns(*_stored(blocks))):
        return side_by_side(blocks, engine)
    own = side_by_side(sparse, engine)
    assert isinstance(own, CSRBlock)
    return Mixed(own, joined(dense, engine))


def in_order(blocks: Sequence[FeatureBlock]) -> list[int]:
    """Numbers of the blocks in the order of their columns: sparse ones come first if dense ones are apart."""
    apart = dense_columns(*_stored(blocks)) > 0
    return sorted(range(len(blocks)), key=lambda m: apart and not isinstance(blocks[m], CSRBlock))


def _stored(blocks: Sequence[FeatureBlock]) -> tuple[list[int], list[float]]:
    return [block.shape[1] for block in blocks], [block.density for block in blocks]

"""Dense and sparse columns with the same rows: each kind is read as it is stored."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastadmm.blocks.block import CSRBlock, FeatureBlock, gram_leaves, mirrored
from fastadmm.blocks.side_by_side import (
    Beside,
    are_narrow,
    dense_columns,
    side_by_side,
    some_rows,
)
from fastadmm.blocks.tiles import tile_rows
from fastadmm.engine.engine import Engine
from fastadmm.engine.tree import Ranges, leaves_for_sums

Array = np.ndarray


class Mixed:
    """Sparse columns and, after them, dense ones. Shapes: sparse (N, d_0); dense (N, d_1)."""

    def __init__(self, sparse: CSRBlock, dense: Beside) -> None:
        (n, own), (_, more) = sparse.shape, dense.shape
        self.sparse, self.dense, self.shape = sparse, dense, (n, own + more)
        self.density = (sparse.density * own + more) / (own + more)
        self.arrays = (sparse.indptr, sparse.indices, sparse.data), dense.matrices

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

        out, columns = engine.vector(self.shape[0]), self.sparse.shape[1]
        engine.over_rows(mixed_product, self._leaves(engine), *self.arrays, columns, x, out)
        return out

    def transposed_product(self, v: Array, engine: Engine) -> Array:
        """``D.T v`` of shape (d,) for v of shape (N,)."""
        from fastadmm.kernels.mixed import mixed_transposed

        d, given = self.shape[1], (*self.arrays, self.sparse.shape[1], v)
        return engine.sum_over_rows(mixed_transposed, self._leaves(engine, d), (d,), *given)

    def column_squares(self, engine: Engine) -> Array:
        """Diagonal of the Gram matrix, of shape (d,)."""
        return np.concatenate([self.sparse.column_squares(engine), self.dense.column_squares(engine)])

    def gram(self, engine: Engine, weight: Array, lead: int = 0) -> Array:
        """Gram matrix ``D.T diag(weight) D`` of shape (d, d), for weights of shape (N,).

        ``lead``: 1 for a column of ones before the others.
        """
        from fastadmm.kernels.blas import routine
        from fastadmm.kernels.mixed import mixed_gram

        (n, d), own = self.shape, self.dense.shape[1]
        leaves, size = gram_leaves((n, d), self.density * d, engine), lead + d
        told = self.sparse.shape[1], lead, weight, tile_rows(own), routine("dsyrk")
        return mirrored(engine.sum_over_rows(mixed_gram, leaves, (size, size), *self.arrays, *told))


#: All columns of several parties.
Rows = CSRBlock | Beside | Mixed


def rows_of_all(blocks: Sequence[FeatureBlock], engine: Engine) -> Rows:
    """The columns of blocks in memory, in the order of :func:`in_order`.

    Several sparse blocks are copied as one; with them a few dense columns, and narrow dense blocks as one too
    (:mod:`fastadmm.blocks.mixed`).

    Shapes: each of blocks (N, d_m).
    """
    shapes = _stored(blocks)
    sparse = [block for block in blocks if isinstance(block, CSRBlock)]
    dense = [block for block in blocks if not isinstance(block, CSRBlock)]
    if not (dense and dense_columns(*shapes)):
        return side_by_side(blocks, engine)
    others = side_by_side(dense, engine)
    assert isinstance(others, Beside)
    if are_narrow(engine.all_rows(others.shape[0]), *shapes):
        others = Beside([others.joined(engine)])
    if not sparse:
        return others
    own = side_by_side(sparse, engine)
    assert isinstance(own, CSRBlock)
    return Mixed(own, others)


def in_order(blocks: Sequence[FeatureBlock]) -> list[int]:
    """Numbers of the blocks in the order of their columns: sparse ones come first if dense ones are apart."""
    apart = dense_columns(*_stored(blocks)) > 0
    return sorted(range(len(blocks)), key=lambda m: apart and not isinstance(blocks[m], CSRBlock))


def _stored(blocks: Sequence[FeatureBlock]) -> tuple[list[int], list[float]]:
    return [block.shape[1] for block in blocks], [block.density for block in blocks]

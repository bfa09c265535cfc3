"""All columns of several blocks as one sparse block."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from fastadmm.blocks.block import CSRBlock, DenseBlock, FeatureBlock, gram_leaves, mirrored, pass_leaves
from fastadmm.blocks.tiles import tile_rows
from fastadmm.engine.engine import Engine
from fastadmm.engine.tree import Ranges

Array = np.ndarray

#: Entries that are copied at a time: a second-level cache holds them for one block after another.
_ENTRIES_AT_A_TIME = 1 << 16

#: So many rows tell about how long the others are.
_ROWS_COUNTED = 1 << 12


def can_stand_side_by_side(blocks: Sequence[FeatureBlock]) -> bool:
    """Whether all blocks are matrices in memory."""
    return all(isinstance(block, CSRBlock | DenseBlock) and block.in_memory for block in blocks)


def mean_row_square(blocks: Sequence[FeatureBlock], engine: Engine, apart: bool) -> float:
    """Mean over rows of all workers, some of them, of their squared number of entries read as sparse ones."""
    n, sparse = blocks[0].shape[0], [block for block in blocks if isinstance(block, CSRBlock)]
    if not sparse:
        return 0.0
    shapes = [block.shape[1] for block in blocks], [block.density for block in blocks]
    dense = sum(block.shape[1] for block in blocks if not isinstance(block, CSRBlock))
    few = 0 if dense_columns(*shapes, apart) else dense
    step = max(1, engine.all_rows(n) // _ROWS_COUNTED)

    def piece(rows: tuple[int, int]) -> Array:
        start, stop = rows[0] + -(engine.first_row + rows[0]) % step, rows[1]
        lengths = np.full(len(range(start, stop, step)), float(few))
        for block in sparse:
            lengths += block.indptr[start + 1 : stop + 1 : step] - block.indptr[start:stop:step]
        return np.array([lengths @ lengths, len(lengths)])  # whole numbers, exact in any order

    squares, counted = engine.sums(piece, engine.leaves(n), light=True)
    return float(squares / counted)


class Beside:
    """Dense matrices with the same rows, whose columns are read where they are.

    Shapes: each of matrices (N, d_m).
    """

    def __init__(self, matrices: Sequence[Array]) -> None:
        n, count = len(matrices[0]), len(matrices)
        self.shape = n, sum(matrix.shape[1] for matrix in matrices)
        more: list[Array] = [np.empty((n, 0))] * ((1 << (count - 1).bit_length()) - count)
        own = [*matrices, *more]
        if not all(matrix.flags.writeable for matrix in matrices):  # kernels take matrices of one type
            own = [matrix.view() for matrix in own]
            for matrix in own:
                matrix.flags.writeable = False
        self.matrices: tuple[Array, ...] = tuple(own)

    def some_rows(self, numbers: Array, engine: Engine) -> Beside:
        """A copy of the rows with numbers of shape (n,); ``engine``: of these rows."""
        from fastadmm.kernels.beside import beside_rows

        out = np.empty((len(numbers), self.shape[1]))
        engine.over_rows(beside_rows, engine.leaves(len(numbers)), self.matrices, numbers, out)
        # As many matrices as there are here: kernels are not compiled for another number.
        nothing = np.empty((len(numbers), 0))
        return Beside([out, *[nothing] * (len(self.matrices) - 1)])

    def joined(self, engine: Engine) -> Array:
        """All columns in one matrix: the only one itself, or a copy."""
        own = [matrix for matrix in self.matrices if matrix.shape[1]]
        if len(own) == 1:
            return own[0]
        return self.some_rows(np.arange(self.shape[0]), engine).matrices[0]

    def product(self, x: Array, engine: Engine) -> Array:
        """``D x`` of shape (N,) for x of shape (d,)."""
        from fastadmm.kernels.beside import beside_product

        n, d = self.shape
        out = engine.vector(n)
        engine.over_rows(
            beside_product, engine.leaves(n, engine.all_rows(n) * float(d)), self.matrices, x, out
        )
        return out

    def transposed_product(self, v: Array, engine: Engine) -> Array:
        """``D.T v`` of shape (d,) for v of shape (N,)."""
        from fastadmm.kernels.beside import beside_transposed

        leaves = self._leaves(engine)
        return engine.sum_over_rows(beside_transposed, leaves, (self.shape[1],), self.matrices, v)

    def _leaves(self, engine: Engine) -> Ranges:
        n, d = self.shape
        return pass_leaves(n, d, engine)

    def column_squares(self, engine: Engine) -> Array:
        """Diagonal of the Gram matrix, of shape (d,)."""
        return np.concatenate([DenseBlock(own).column_squares(engine) for own in self.matrices if own.size])

    def gram(self, engine: Engine, weight: Array, lead: int = 0) -> Array:
        """Gram matrix ``D.T diag(weight) D`` of shape (d, d), for weights of shape (N,).

        ``lead``: 1 for a column of ones before the others.
        """
        from fastadmm.kernels.beside import beside_gram
        from fastadmm.kernels.blas import routine

        n, d = self.shape
        leaves, told = gram_leaves((n, d), float(d), engine), (weight, tile_rows(d), routine("dsyrk"))
        found = engine.sum_over_rows(beside_gram, leaves, (lead + d, lead + d), self.matrices, lead, *told)
        return mirrored(found)


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


def side_by_side(blocks: Sequence[FeatureBlock], engine: Engine) -> CSRBlock | Beside:
    """Blocks, of which :func:`can_stand_side_by_side`, as one: dense ones where they are, sparse ones copied.

    A single sparse one is that itself.

    Shapes: each of blocks (N, d_m); the result (N, d).
    """
    from fastadmm.kernels.side_by_side import append_csr, append_dense

    if all(isinstance(block, DenseBlock) for block in blocks):
        return Beside([block.matrix for block in blocks if isinstance(block, DenseBlock)])
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


#: Columns with a larger share of stored entries do not count as sparse.
MOSTLY = 0.5

#: Fewer dense columns beside sparse ones are copied with these, as sparse ones.
_FEWEST_DENSE = 6

#: Dense matrices with fewer columns on average are copied as one: a row of each matrix costs as much as some
#: columns. Without sparse columns, which are copied too, the copy takes at most so many bytes.
_NARROW, _FEW_BYTES = 8, 1 << 28

#: The same for dual ascent, which goes from row to row.
_NARROW_ROWS = 64


def dense_columns(widths: Sequence[int], densities: Sequence[float], apart: bool = True) -> int:
    """Number of columns that are read as dense ones."""
    found = sum(width for width, density in zip(widths, densities) if density == 1.0)
    return found if found == sum(widths) or (apart and found >= _FEWEST_DENSE) else 0


def are_narrow(n_samples: int, widths: Sequence[int], densities: Sequence[float]) -> bool:
    """Whether dense columns of several parties are copied as one matrix."""
    count, dense = sum(density == 1.0 for density in densities), dense_columns(widths, densities)
    fits = count < len(widths) or 8 * n_samples * dense <= _FEW_BYTES
    return count > 1 and fits and 0 < dense < _NARROW * count


def rows_are_narrow(widths: Sequence[int]) -> bool:
    """Whether dense matrices, without sparse ones, are copied as one for dual ascent."""
    return len(widths) > 1 and sum(widths) < _NARROW_ROWS * len(widths)

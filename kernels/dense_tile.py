"""Images of three vectors under a transposed dense tile that is in the cache, in memory or in a buffer.

The vectors' rows count from the tile's first. The sums are those of
:mod:`fastadmm.kernels.dense_products`, row after row, to the bit.

The tile is taken in narrow blocks of columns, whose sums stay in registers while all rows pass.
Meanwhile the memory would idle. So a part of the tile behind it, which the product reads next, is asked for
at the pace at which memory delivers; asked for in one go, it would stop the arithmetic.
"""

from __future__ import annotations

from typing import Any

import numba
from fastadmm.kernels.dense_products import add_rows_of_three
from fastadmm.kernels.fused_multiply_add import fma
from fastadmm.kernels.policy import inline, kernel
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as _intrinsic

__all__ = ["dense_buffer_images", "dense_tile_images"]

#: Its typing context is given by Numba, not by the caller.
intrinsic: Any = _intrinsic

#: Columns of a block: two vectors of eight.
_WIDTH, _VECTORS = 8, 2
_COLUMNS = _WIDTH * _VECTORS

#: Rows that pass before the next block of columns: few enough for the pages to be at hand.
_ROWS = 32

#: Rows for each line of the next tile that is asked for.
_PACE = 2

#: Bytes of a line of the cache.
_LINE = 64

_INTEGER, _SMALL, _DOUBLE = ir.IntType(64), ir.IntType(32), ir.DoubleType()
_BYTES = ir.IntType(8).as_pointer()
_VALUES = ir.VectorType(_DOUBLE, _WIDTH)


@intrinsic
def _add_block(typing_context, block, width, vectors, length, sums, columns, rows, ahead):
    """Add to the sums of a block of columns, given by addresses; ask for lines from ``ahead`` on, if not 0.

    ``width``, ``length`` and ``columns`` are the row lengths of the matrix, the vectors and the sums.
    """
    signature = types.void(*[types.int64] * 8)

    def generate(context, builder, signature, arguments):
        block, width, vectors, length, sums, columns, rows, ahead = arguments
        multiply_add = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(_VALUES, [_VALUES] * 3), f"llvm.fma.v{_WIDTH}f64"
        )
        prefetch = builder.module.declare_intrinsic(
            "llvm.prefetch", (_BYTES,), ir.FunctionType(ir.VoidType(), [_BYTES, *[_SMALL] * 3])
        )

        def at(address, k, kind):
            """Pointer to the k-th number from an address on."""
            return builder.inttoptr(builder.add(address, builder.mul(k, _INTEGER(8))), kind.as_pointer())

        places = [
            [
                at(sums, builder.add(builder.mul(columns, _INTEGER(k)), _INTEGER(_WIDTH * c)), _VALUES)
                for c in range(_VECTORS)
            ]
            for k in range(3)
        ]
        totals = [
            [cgutils.alloca_once_value(builder, builder.load(place, align=8)) for place in row]
            for row in places
        ]

        def add(row):
            factors = []
            for k in range(3):
                place = builder.add(builder.mul(length, _INTEGER(k)), row)
                nothing = ir.Constant(_VALUES, ir.Undefined)
                factor = builder.insert_element(nothing, builder.load(at(vectors, place, _DOUBLE)), _SMALL(0))
                everywhere = ir.Constant(ir.VectorType(_SMALL, _WIDTH), [0] * _WIDTH)
                factors.append(builder.shuffle_vector(factor, nothing, everywhere))
            for c in range(_VECTORS):
                place = builder.add(builder.mul(row, width), _INTEGER(_WIDTH * c))
                values = builder.load(at(block, place, _VALUES), align=8)
                for factor, total in zip(factors, totals):
                    sum_before = builder.load(total[c])
                    builder.store(builder.call(multiply_add, [factor, values, sum_before]), total[c])

        groups = builder.sdiv(rows, _INTEGER(_PACE))
        nowhere = builder.icmp_signed("==", ahead, _INTEGER(0))
        line = builder.select(nowhere, block, ahead)  # a line that is at hand costs nothing
        step = builder.select(nowhere, _INTEGER(0), _INTEGER(_LINE))
        with cgutils.for_range(builder, groups) as loop:
            for k in range(_PACE):
                add(builder.add(builder.mul(loop.index, _INTEGER(_PACE)), _INTEGER(k)))
            place = builder.inttoptr(builder.add(line, builder.mul(loop.index, step)), _BYTES)
            # To be read, into the second cache, as data.
            builder.call(prefetch, [place, _SMALL(0), _SMALL(2), _SMALL(1)])
        done = builder.mul(groups, _INTEGER(_PACE))
        with cgutils.for_range(builder, builder.sub(rows, done)) as loop:
            add(builder.add(done, loop.index))
        for row, own in zip(places, totals):
            for place, total in zip(row, own):
                builder.store(builder.load(total), place, align=8)
        return context.get_dummy_value()

    return signature, generate


#: What Numba reads from the environment.
_SETTINGS: Any = numba.config

_COMPILED = not _SETTINGS.DISABLE_JIT


@inline
def _add_dense(tile, vectors, out, ahead):
    """Add the images of the first three vectors under a C-contiguous tile; see the top."""
    rows, d = tile.shape
    whole = d - d % _COLUMNS if _COMPILED else 0
    if whole == 0:
        add_rows_of_three(tile, vectors, out, 0, rows)
        return
    matrix, given, sums = tile.ctypes.data, vectors.ctypes.data, out.ctypes.data
    length = vectors.shape[1]
    for first in range(0, rows, _ROWS):
        count = min(_ROWS, rows - first)
        for j in range(0, whole, _COLUMNS):
            place = matrix + 8 * (first * d + j)
            _add_block(place, d, given + 8 * first, length, sums + 8 * j, d, count, ahead)
            if ahead != 0:
                ahead += _LINE * (count // _PACE)
        for i in range(first, first + count):
            p, q, r = vectors[0, i], vectors[1, i], vectors[2, i]
            for j in range(whole, d):
                out[0, j] = fma(p, tile[i, j], out[0, j])
                out[1, j] = fma(q, tile[i, j], out[1, j])
                out[2, j] = fma(r, tile[i, j], out[2, j])


@kernel
def dense_tile_images(matrix, vectors, out, start, stop):
    """Add the images of three vectors under the transposed rows of a tile.

    Parameters
    ----------
    matrix : ndarray of shape (N, d)
        C-contiguous.
    vectors : ndarray of shape (at least 3, at least stop - start)
        C-contiguous; the first three count.
    out : ndarray of shape (3, d)
        Sums that are added to.
    start, stop : int
        The tile's rows.
    """
    # There is as much behind it, or nothing is asked for.
    ahead = matrix[stop:].ctypes.data if 2 * stop - start <= len(matrix) else 0
    _add_dense(matrix[start:stop], vectors, out, ahead)


@kernel
def dense_buffer_images(values, vectors, out, start, stop):
    """As :func:`dense_tile_images` for rows in a buffer, from its beginning on.

    Parameters
    ----------
    values : ndarray of shape (at least (stop - start) * d,)
    vectors, out
        As of :func:`dense_tile_images`.
    start, stop : int
        The tile's rows.
    """
    d = out.shape[1]
    _add_dense(values[: (stop - start) * d].reshape(stop - start, d), vectors, out, 0)

"""Products of a dense matrix with vectors, and its Gram matrix, piece by piece in compiled code.

Rows of ``D x`` each have a sum of their own (:mod:`fastadmm.kernels.dense_rows`), and ``D.T v`` adds
row after row to one sum, in their order: how rows are grouped into tiles or read from a
file cannot change a bit.

Sums over rows of few columns are kept in registers from row to row (:data:`_add_narrow_rows`).
LLVM would load and store them once every few rows, after a check that they do not overlap the rows; with ten
columns that is most of the work.
"""

from typing import Any

import numpy as np
from fastadmm.kernels.blas import add_columns
from fastadmm.kernels.dense_rows import multiply_rows
from fastadmm.kernels.fused_multiply_add import fma
from fastadmm.kernels.policy import COMPILED, intrinsic, kernel
from fastadmm.kernels.registers import INTEGER, WIDTH, lanes, load, multiply_add, repeated, store
from numba import types
from numba.core import cgutils

#: Numbers of the matrix that the first cache keeps from one product to the next.
_KEPT = 2048


@kernel
def dense_products(matrix, x, out, start, stop):
    """Write ``D x`` of one or several x for the rows of a range: D is read from memory once.

    Shapes: matrix (N, d); x (C, d); out (C, N).
    ``out``: contiguous; each to the bit as alone.
    """
    step = max(1, stop - start) if len(x) == 1 else 4 + _KEPT // max(1, matrix.shape[1]) // 4 * 4
    for begin in range(start, stop, step):
        end = min(begin + step, stop)
        for k in range(len(x)):
            multiply_rows(matrix[begin:end], x[k], out[k, begin:end])


@kernel
def dense_accumulate_transposed(matrix, v, out, start, stop):
    """Add ``sum_i v[i] D[i, :]`` over the rows of a range to ``out`` of shape (d,) or longer.

    Row after row; four of them for each time the sums are read.
    """
    i, columns = start, matrix.shape[1]
    if columns <= NARROW:
        _add_narrow_rows(matrix, v, out, start, stop)
        return
    while i + 4 <= stop:
        a, b, c, d = matrix[i], matrix[i + 1], matrix[i + 2], matrix[i + 3]
        p, q, r, s = v[i], v[i + 1], v[i + 2], v[i + 3]
        for j in range(columns):
            out[j] = fma(s, d[j], fma(r, c[j], fma(q, b[j], fma(p, a[j], out[j]))))
        i += 4
    while i < stop:
        a, p = matrix[i], v[i]
        for j in range(columns):
            out[j] = fma(p, a[j], out[j])
        i += 1


@kernel
def dense_column_squares(matrix, out, start, stop):
    """Add the squared norms of the columns of a range of rows to ``out``, of shape (at least d,)."""
    for i in range(start, stop):
        own = matrix[i]
        for j in range(matrix.shape[1]):
            out[j] = fma(own[j], own[j], out[j])


@kernel
def dense_gram(matrix, weight, tile, syrk, rough, out, start, stop):
    """Add the upper triangle of ``D.T diag(weight) D`` over a range of rows.

    Shapes: matrix (N, d); weight (N,) or (0,); rough (0,) or (d,); out (d, d).
    ``weight``: not negative; none for ones. ``rough``: none, or for tile by tile in single precision as many
    numbers of that as columns, and ``syrk`` is the library's ``ssyrk``.
    """
    d, several = matrix.shape[1], len(rough)
    if len(weight) == 0 and several == 0:
        for begin in range(start, stop, tile):
            add_columns(syrk, matrix[begin : min(begin + tile, stop)], out)
        return
    scaled, single = np.empty((min(tile, stop - start), d), rough.dtype), np.empty((several, d), rough.dtype)
    for begin in range(start, stop, tile):
        end = min(begin + tile, stop)
        for i in range(begin, end):
            root, row, own = 1.0, matrix[i], scaled[i - begin]
            if len(weight) != 0:
                root = np.sqrt(weight[i])
            for j in range(d):
                own[j] = root * row[j]
        if several == 0:
            add_columns(syrk, scaled[: end - begin], out)
            continue
        single[:] = 0.0
        add_columns(syrk, scaled[: end - begin], single)
        for j in range(d):
            own, total = single[j], out[j]
            for k in range(j, d):
                total[k] += own[k]


#: Vectors that fit into registers with room to spare.
_MOST = 4

#: Columns of a row that is narrow.
NARROW = WIDTH * _MOST


def _emit(builder, count, rows, d, v, out, begin, end):
    """Emit the pass over rows from ``begin`` to ``end`` of d columns, in so many vectors."""
    masks = [lanes(builder, INTEGER(0), builder.sub(d, INTEGER(WIDTH * k))) for k in range(count)]

    def vectors(pointer):
        return [builder.gep(pointer, [INTEGER(WIDTH * k)]) for k in range(count)]

    sums = [
        cgutils.alloca_once_value(builder, load(builder, place, mask))
        for place, mask in zip(vectors(out), masks)
    ]
    with cgutils.for_range_slice(builder, begin, end, INTEGER(1)) as (i, _):
        factor = repeated(builder, builder.load(builder.gep(v, [i])))
        for place, mask, total in zip(vectors(builder.gep(rows, [builder.mul(i, d)])), masks, sums):
            more = multiply_add(builder, factor, load(builder, place, mask), builder.load(total))
            builder.store(more, total)
    for place, mask, total in zip(vectors(out), masks, sums):
        store(builder, builder.load(total), place, mask)


@intrinsic
def _compiled(typing_context, matrix, v, out, start, stop):
    """Add ``sum_i v[i] D[i, :]`` over a range of rows to ``out``."""
    if not all(array.layout == "C" and array.dtype == types.float64 for array in (matrix, v, out)):
        raise TypeError("rows, factors and sums: C-contiguous numbers")
    signature = types.void(matrix, v, out, types.int64, types.int64)

    def generate(context, builder, signature, arguments):
        matrix, v, out = (
            context.make_array(kind)(context, builder, array)
            for kind, array in zip(signature.args[:3], arguments[:3])
        )
        _, columns = cgutils.unpack_tuple(builder, matrix.shape, 2)
        for count in range(1, _MOST + 1):
            above = builder.icmp_signed(">", columns, INTEGER(WIDTH * (count - 1)))
            within = builder.icmp_signed("<=", columns, INTEGER(WIDTH * count))
            with builder.if_then(builder.and_(above, within)):
                _emit(builder, count, matrix.data, columns, v.data, out.data, *arguments[3:])
        return context.get_dummy_value()

    return signature, generate


def _interpreted(matrix, v, out, start, stop):
    """As compiled, for runs without the compiler."""
    for i in range(start, stop):
        out[: matrix.shape[1]] += v[i] * matrix[i]


#: Add rows times factors to sums, one row after another.
_add_narrow_rows: Any = _compiled if COMPILED else _interpreted

"""Products of a dense matrix with vectors, and its Gram matrix, piece by piece in compiled code.

Rows of ``D x`` each have a sum of their own (:mod:`fastadmm.kernels.dense_rows`), and ``D.T v`` adds
row after row to one sum, in their order: how rows are grouped into tiles or read from a
file cannot change a bit.

Sums over rows of few columns are kept in registers from row to row (:data:`add_narrow_rows`).
LLVM would load and store them once every few rows, after a check that they do not overlap the rows; with ten
columns that is most of the work.
"""

from typing import Any

import numpy as np
from fastadmm.kernels.blas import add_columns
from fastadmm.kernels.dense_rows import multiply_rows
from fastadmm.kernels.fused_multiply_add import fma
from fastadmm.kernels.policy import COMPILED, inline, intrinsic, kernel
from llvmlite import ir
from numba import types
from numba.core import cgutils

#: Numbers of the matrix that the first cache keeps from one product to the next.
_KEPT = 2048


@kernel
def dense_product(matrix, x, out, start, stop):
    """Write ``D x`` for the rows of a range.

    Shapes: matrix (N, d); x (d,); out (N,).
    ``out``: contiguous.
    """
    multiply_rows(matrix[start:stop], x, out[start:stop])


@kernel
def dense_products(matrix, x, out, start, stop):
    """Write ``D x`` of several x for the rows of a range: D is read from memory once.

    Shapes: matrix (N, d); x (C, d); out (C, N).
    ``out``: each to the bit as :func:`dense_product` writes it.
    """
    step = 4 + _KEPT // max(1, matrix.shape[1]) // 4 * 4
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
    if 0 < columns <= NARROW:
        i = add_narrow_rows(matrix, v, out, start, stop)
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
def dense_gram(matrix, weight, tile, syrk, out, start, stop):
    """Add the upper triangle of ``D.T diag(weight) D`` over a range of rows.

    Shapes: matrix (N, d); weight (N,) or (0,); out (d, d).
    ``weight``: not negative; none for ones.
    """
    d = matrix.shape[1]
    if len(weight) == 0:
        for begin in range(start, stop, tile):
            add_columns(syrk, matrix[begin : min(begin + tile, stop)], out)
        return
    scaled = np.empty((min(tile, stop - start), d))
    for begin in range(start, stop, tile):
        end = min(begin + tile, stop)
        for i in range(begin, end):
            root, row, own = np.sqrt(weight[i]), matrix[i], scaled[i - begin]
            for j in range(d):
                own[j] = root * row[j]
        add_columns(syrk, scaled[: end - begin], out)


@kernel
def dense_rough_gram(matrix, weight, tile, syrk, out, start, stop):
    """As :func:`dense_gram`, tile by tile in single precision, by the library's ``ssyrk``."""
    d = matrix.shape[1]
    scaled = np.empty((min(tile, stop - start), d), dtype=np.float32)
    single = np.empty((d, d), dtype=np.float32)
    for begin in range(start, stop, tile):
        end = min(begin + tile, stop)
        for i in range(begin, end):
            root, row, own = 1.0, matrix[i], scaled[i - begin]
            if len(weight) != 0:
                root = np.sqrt(weight[i])
            for j in range(d):
                own[j] = np.float32(root * row[j])
        single[:] = 0.0
        add_columns(syrk, scaled[: end - begin], single)
        for j in range(d):
            own, total = single[j], out[j]
            for k in range(j, d):
                total[k] += own[k]


#: Numbers of a vector, and vectors that fit into registers with room to spare.
_WIDTH, _MOST = 8, 4

#: Columns of a row that is narrow.
NARROW = _WIDTH * _MOST

_INTEGER, _SMALL, _DOUBLE = ir.IntType(64), ir.IntType(32), ir.DoubleType()
_VALUES = ir.VectorType(_DOUBLE, _WIDTH)


def _emit(context, builder, count, rows, d, v, out, begin, end):
    """Emit the pass over rows from ``begin`` to ``end`` of d columns, in so many vectors.

    The last vector ends with the row, so its first lanes
    may repeat columns of the one before; in rows shorter than a vector its last lanes lie beyond the row.
    """
    width, last = _INTEGER(_WIDTH), _INTEGER(_WIDTH * (count - 1))
    short = builder.icmp_signed("<", d, width)
    offset = builder.select(short, _INTEGER(0), builder.sub(d, width))
    lane = builder.select(short, _INTEGER(0), builder.sub(builder.add(last, width), d))
    own = builder.sub(d, last)

    def vector(pointer):
        return builder.bitcast(pointer, _VALUES.as_pointer())

    room = cgutils.alloca_once_value(builder, ir.Constant(_VALUES, [0.0] * _WIDTH))
    builder.store(ir.Constant(_VALUES, [0.0] * _WIDTH), room)
    lanes = builder.bitcast(room, _DOUBLE.as_pointer())

    def each(copy):
        with cgutils.for_range(builder, own) as loop:
            copy(
                builder.gep(lanes, [builder.add(lane, loop.index)]),
                builder.gep(out, [builder.add(last, loop.index)]),
            )

    each(lambda inside, outside: builder.store(builder.load(outside), inside))
    sums = [cgutils.alloca_once(builder, _VALUES) for _ in range(count)]
    for k in range(count - 1):
        builder.store(builder.load(vector(builder.gep(out, [_INTEGER(_WIDTH * k)])), align=8), sums[k])
    builder.store(builder.load(room), sums[-1])
    multiply_add = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(_VALUES, [_VALUES] * 3), f"llvm.fma.v{_WIDTH}f64"
    )
    with cgutils.for_range_slice(builder, begin, end, _INTEGER(1)) as (i, _):
        row = builder.gep(rows, [builder.mul(i, d)])
        one = builder.insert_element(
            ir.Constant(_VALUES, ir.Undefined), builder.load(builder.gep(v, [i])), _SMALL(0)
        )
        factor = builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(_SMALL, _WIDTH), [0] * _WIDTH))
        for k, total in enumerate(sums):
            place = offset if k == count - 1 else _INTEGER(_WIDTH * k)
            values = builder.load(vector(builder.gep(row, [place])), align=8)
            builder.store(builder.call(multiply_add, [factor, values, builder.load(total)]), total)
    for k in range(count - 1):
        builder.store(builder.load(sums[k]), vector(builder.gep(out, [_INTEGER(_WIDTH * k)])), align=8)
    builder.store(builder.load(sums[-1]), room)
    each(lambda inside, outside: builder.store(builder.load(inside), outside))


@intrinsic
def _add(typing_context, matrix, v, out, start, stop):
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
            above = builder.icmp_signed(">", columns, _INTEGER(_WIDTH * (count - 1)))
            within = builder.icmp_signed("<=", columns, _INTEGER(_WIDTH * count))
            with builder.if_then(builder.and_(above, within)):
                _emit(context, builder, count, matrix.data, columns, v.data, out.data, *arguments[3:])
        return context.get_dummy_value()

    return signature, generate


@inline
def _compiled(matrix, v, out, start, stop):
    """Add ``sum_i v[i] D[i, :]`` to ``out`` for rows that whole vectors can be read of; the end of these."""
    n, d = matrix.shape
    # With short rows, vectors of the last ones would reach beyond the end of the matrix.
    readable = n if d >= _WIDTH else max(0, (n * d - _WIDTH) // d + 1)
    end = max(start, min(stop, readable))
    if start < end:
        _add(matrix, v, out, start, end)
    return end


def _interpreted(matrix, v, out, start, stop):
    """Leave all rows to the caller: for runs without the compiler."""
    return start


#: Add rows times factors to sums, one row after another; returns the first row that is left to the caller.
add_narrow_rows: Any = _compiled if COMPILED else _interpreted

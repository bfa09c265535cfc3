"""Sums over rows of few columns, kept in registers from row to row.

LLVM would load and store them once every few rows, after a check that they do not overlap the rows; with ten
columns that is most of the work.
"""

from __future__ import annotations

from typing import Any

import numba
from fastadmm.kernels.policy import inline
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as _intrinsic

__all__ = ["NARROW", "add_narrow_rows"]

#: Its typing context is given by Numba, not by the caller.
intrinsic: Any = _intrinsic

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


#: What Numba reads from the environment.
_SETTINGS: Any = numba.config

#: Add rows times factors to sums, one row after another; returns the first row that is left to the caller.
add_narrow_rows: Any = _interpreted if _SETTINGS.DISABLE_JIT else _compiled

"""Products of dense rows with a vector, at the speed of memory.

A row's sum is computed as eight sums of every eighth term, added in pairs at the end; the last terms form one
more vector, which ends with the row. So a sum has the same bits whatever tile or group of rows it is computed
in. Four rows are processed together, and cache lines further on are prefetched: that keeps more memory
requests in flight than the processor would by itself.
"""

from typing import Any

import numpy as np
from fastadmm.kernels.policy import COMPILED, inline, intrinsic
from fastadmm.kernels.registers import INTEGER, SMALL, VALUES, WIDTH, ZEROS, load, multiply_add
from llvmlite import ir
from numba import types
from numba.core import cgutils

#: Rows side by side.
_ROWS = 4

#: Bytes between what is read and what is prefetched: with the next four short rows memory would not keep up.
_AHEAD = 4096

_BYTES = ir.IntType(8).as_pointer()


def _sums(builder, totals):
    """Emit the sums of one vector or of four, the upper half added to the lower: a number or a vector."""

    def joined(one, other, first, second):
        pick = [ir.Constant(ir.VectorType(SMALL, len(own)), own) for own in (first, second)]
        return builder.fadd(*(builder.shuffle_vector(one, other, own) for own in pick))

    if len(totals) == 1:
        (total,) = totals
        for k in (4, 2, 1):
            total = joined(total, total, list(range(k)), list(range(k, 2 * k)))
        return builder.extract_element(total, SMALL(0))
    halves = [joined(own, own, [0, 1, 2, 3], [4, 5, 6, 7]) for own in totals]
    first, second = (joined(halves[k], halves[k + 1], [0, 1, 4, 5], [2, 3, 6, 7]) for k in (0, 2))
    return joined(first, second, [0, 2, 4, 6], [1, 3, 5, 7])


def _rows_of(count):
    """Add the products of one or four neighbouring rows to ``out``.

    Rows of length d from an address on, x, the factors of the last vector and the place of the products at
    others, and where in a row the last vector begins; below zero for none.
    """

    @intrinsic
    def compiled(typing_context, rows, d, x, rest, last, out):
        signature = types.void(*[types.int64] * 6)

        def generate(context, builder, signature, arguments):
            rows, d, x, rest, last, out = arguments
            prefetch = builder.module.declare_intrinsic(
                "llvm.prefetch", (_BYTES,), ir.FunctionType(ir.VoidType(), [_BYTES, *[SMALL] * 3])
            )
            length = builder.mul(d, INTEGER(8))
            starts = [builder.add(rows, builder.mul(length, INTEGER(r))) for r in range(count)]
            totals = [cgutils.alloca_once_value(builder, ZEROS) for _ in range(count)]
            for total in totals:
                builder.store(ZEROS, total)

            def values(address):
                return load(builder, builder.inttoptr(address, VALUES.as_pointer()))

            def take(place, factors):
                for start, total in zip(starts, totals):
                    here = builder.add(start, place)
                    builder.store(multiply_add(builder, values(here), factors, builder.load(total)), total)
                    # To be read, into the first cache, as data; behind the last row nothing is, nor any harm.
                    there = builder.inttoptr(builder.add(here, INTEGER(_AHEAD)), _BYTES)
                    builder.call(prefetch, [there, SMALL(0), SMALL(3), SMALL(1)])

            with cgutils.for_range(builder, builder.sdiv(d, INTEGER(WIDTH))) as loop:
                place = builder.mul(loop.index, INTEGER(8 * WIDTH))
                take(place, values(builder.add(x, place)))
            with builder.if_then(builder.icmp_signed(">=", last, INTEGER(0))):
                take(builder.mul(last, INTEGER(8)), values(rest))
            found = _sums(builder, [builder.load(total) for total in totals])
            place = builder.inttoptr(out, found.type.as_pointer())
            builder.store(builder.fadd(builder.load(place, align=8), found), place, align=8)
            return context.get_dummy_value()

        return signature, generate

    return compiled


_four_rows, _one_row = _rows_of(_ROWS), _rows_of(1)


@inline
def _compiled(matrix, x, out):
    """Add ``D x``.

    Shapes: matrix (n, d); x (d,); out (n,).
    ``out``: contiguous.
    """
    n, d = matrix.shape
    x = np.ascontiguousarray(x)
    # The last vector ends with the row; of a row shorter than a vector it begins with it, and what it reads
    # of the next row has the factor zero.
    rest, last = np.zeros(WIDTH), max(0, d - WIDTH) if d % WIDTH else -1
    for j in range(d - d % WIDTH, d):
        rest[j - last] = x[j]
    rows, given, factors, found = matrix.ctypes.data, x.ctypes.data, rest.ctypes.data, out.ctypes.data
    whole = n if d >= WIDTH else max(0, n - WIDTH // max(1, d))
    i = 0
    while i + _ROWS <= whole:
        _four_rows(rows + 8 * i * d, d, given, factors, last, found + 8 * i)
        i += _ROWS
    while i < whole:
        _one_row(rows + 8 * i * d, d, given, factors, last, found + 8 * i)
        i += 1
    own = np.zeros(WIDTH)
    while d > 0 and i < n:
        for j in range(d):
            own[j] = matrix[i, j]
        _one_row(own.ctypes.data, d, given, factors, last, found + 8 * i)
        i += 1
    rest[0] = own[0] = len(x)  # until here they are in use, of which an address says nothing


def _interpreted(matrix, x, out):
    """As the compiled one up to rounding: for runs without the compiler.

    Not a product of the BLAS, whose kernels may add up a row in an order that depends on its neighbours.
    """
    out += (matrix * x).sum(axis=1)


#: Add ``D x`` to contiguous ``out``, for a C-contiguous matrix.
add_products: Any = _compiled if COMPILED else _interpreted


@inline
def multiply_rows(matrix, x, out):
    """Write ``D x``; arrays as there."""
    for i in range(len(out)):
        out[i] = 0.0
    add_products(matrix, x, out)

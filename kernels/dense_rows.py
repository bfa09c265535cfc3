"""Products of dense rows with a vector, at the speed of memory.

A row's sum is eight sums, each of every eighth term, added in pairs at the end, then
the terms that are left over, in order: so it has the same bits in whatever tile or
group of rows it is made. Four rows go side by side, and those of the next four that
will be read at the same place are asked for: that keeps more of memory's
lines on their way than the processor would by itself.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from fastadmm.kernels.fused_multiply_add import fma
from fastadmm.kernels.policy import inline
from fastadmm.kernels.sum_by_halves import sum_by_halves
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic as _intrinsic

__all__ = ["multiply_rows"]

#: Its typing context is given by Numba, not by the caller.
intrinsic: Any = _intrinsic

#: Numbers of a vector, and rows side by side.
_WIDTH, _ROWS = 8, 4

_INTEGER, _SMALL, _DOUBLE = ir.IntType(64), ir.IntType(32), ir.DoubleType()
_BYTES = ir.IntType(8).as_pointer()
_VALUES = ir.VectorType(_DOUBLE, _WIDTH)


def _four_rows(count):
    """Write the products of so many neighbouring rows, but for terms behind the last whole vector.

    Rows of length d from an address on, x and the place of the products at others.
    """

    @intrinsic
    def compiled(typing_context, rows, d, x, out):
        signature = types.void(*[types.int64] * 4)

        def generate(context, builder, signature, arguments):
            rows, d, x, out = arguments
            multiply_add = cgutils.get_or_insert_function(
                builder.module, ir.FunctionType(_VALUES, [_VALUES] * 3), f"llvm.fma.v{_WIDTH}f64"
            )
            prefetch = builder.module.declare_intrinsic(
                "llvm.prefetch", (_BYTES,), ir.FunctionType(ir.VoidType(), [_BYTES, *[_SMALL] * 3])
            )
            length = builder.mul(d, _INTEGER(8))
            starts = [builder.add(rows, builder.mul(length, _INTEGER(r))) for r in range(count)]
            ahead = builder.mul(length, _INTEGER(count))
            zeros = ir.Constant(_VALUES, [0.0] * _WIDTH)
            totals = [cgutils.alloca_once_value(builder, zeros) for _ in range(count)]

            def values(address):
                return builder.load(builder.inttoptr(address, _VALUES.as_pointer()), align=8)

            with cgutils.for_range(builder, builder.sdiv(d, _INTEGER(_WIDTH))) as loop:
                place = builder.mul(loop.index, _INTEGER(8 * _WIDTH))
                factors = values(builder.add(x, place))
                for start, total in zip(starts, totals):
                    here = builder.add(start, place)
                    after = builder.call(multiply_add, [values(here), factors, builder.load(total)])
                    builder.store(after, total)
                    # To be read, into the first cache, as data; behind the last row nothing is, nor any harm.
                    there = builder.inttoptr(builder.add(here, ahead), _BYTES)
                    builder.call(prefetch, [there, _SMALL(0), _SMALL(3), _SMALL(1)])
            for r, total in enumerate(totals):
                place = builder.inttoptr(builder.add(out, _INTEGER(8 * r)), _DOUBLE.as_pointer())
                builder.store(sum_by_halves(builder, builder.load(total)), place)
            return context.get_dummy_value()

        return signature, generate

    return compiled


_compiled_four, _compiled_one = _four_rows(_ROWS), _four_rows(1)


@inline
def _compiled(matrix, x, out):
    """Write ``D x``.

    Parameters
    ----------
    matrix : ndarray of shape (n, d)
        D, C-contiguous.
    x : ndarray of shape (d,)
    out : ndarray of shape (n,)
        Contiguous.
    """
    n, d = matrix.shape
    x = np.ascontiguousarray(x)
    rows, given, found = matrix.ctypes.data, x.ctypes.data, out.ctypes.data
    i = 0
    while i + _ROWS <= n:
        _compiled_four(rows + 8 * i * d, d, given, found + 8 * i)
        i += _ROWS
    while i < n:
        _compiled_one(rows + 8 * i * d, d, given, found + 8 * i)
        i += 1
    first = d - d % _WIDTH
    if first < d:
        for i in range(n):
            total = out[i]
            for j in range(first, d):
                total = fma(matrix[i, j], x[j], total)
            out[i] = total


def _interpreted(matrix, x, out):
    """As the compiled one up to rounding: for runs without the compiler.

    Not a product of the BLAS, whose kernels may add up a row in an order that depends on its neighbours.
    """
    out[:] = (matrix * x).sum(axis=1)


#: What Numba reads from the environment.
_SETTINGS: Any = numba.config

#: Write ``D x`` for a C-contiguous matrix and contiguous ``out``.
multiply_rows: Any = _interpreted if _SETTINGS.DISABLE_JIT else _compiled

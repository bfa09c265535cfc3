"""Matrix products by the linear algebra library, inside of kernels.

Numba's ``np.dot`` computes both triangles of a Gram matrix, and copies matrices whose rows are apart. These
call the library's routines at the addresses that SciPy publishes, without the interpreter, so that the pieces
of a job can be shared like those of any kernel. Their results depend on sizes alone.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from fastadmm.kernels.policy import COMPILED, inline, intrinsic
from llvmlite import ir
from numba import types
from numba.core import cgutils, errors
from numba.extending import get_cython_function_address

_BYTES = ir.IntType(8).as_pointer()


@lru_cache(maxsize=8)
def routine(name: str) -> int:
    """Address of a routine such as ``dsyrk``, for the functions below."""
    return int(get_cython_function_address("scipy.linalg.cython_blas", name))


@intrinsic
def _call(typing_context, address, arguments):
    """Call a routine of Fortran's, which takes letters (of 8 bits), numbers and arrays by their addresses."""
    signature = types.void(types.int64, arguments)

    def generate(context, builder, signature, given):
        places = []
        for k, kind in enumerate(signature.args[1].types):
            value = builder.extract_value(given[1], k)
            if isinstance(kind, types.Array):
                if kind.layout != "C":
                    raise errors.TypingError("BLAS in kernels takes C-contiguous arrays")
                place = context.make_array(kind)(context, builder, value).data
            else:
                wide = isinstance(kind, types.Integer) and kind != types.uint8
                place = cgutils.alloca_once_value(
                    builder, builder.trunc(value, ir.IntType(32)) if wide else value
                )
            places.append(builder.bitcast(place, _BYTES))
        kind = ir.FunctionType(ir.VoidType(), [_BYTES] * len(places))
        builder.call(builder.inttoptr(given[0], kind.as_pointer()), places)
        return context.get_dummy_value()

    return signature, generate


#: Letters that routines take: the lower triangle, as it is, transposed.
_LOWER, _PLAIN, _TRANSPOSED = np.uint8(ord("L")), np.uint8(ord("N")), np.uint8(ord("T"))


# The rows of an array are the columns of a routine's.


def _compiled_columns(syrk, rows, out):
    """Add the upper triangle of ``rows.T @ rows``.

    Shapes: rows (n, d); out (d, d).
    ``out``: of the same precision.
    """
    (n, d), one = rows.shape, rows.dtype.type(1.0)
    _call(syrk, (_LOWER, _PLAIN, d, n, one, rows, d, one, out, d))


def _compiled_rows(syrk, rows, size, out):
    """Add the upper triangle of ``part @ part.T``, where ``part = rows[:, :size]``.

    Shapes: rows (k, at least size); out (k, k).
    """
    k, apart = rows.shape
    _call(syrk, (_LOWER, _TRANSPOSED, k, size, 1.0, rows, apart, 1.0, out, k))


def _compiled_products(gemm, left, begin, right, start, size, out):
    """Add ``left[:, begin : begin + size] @ right[:, start : start + size].T``.

    Shapes: left, right (k, n), (w, m); out (k, w).
    """
    (k, n), (w, m) = left.shape, right.shape
    if k != 0 and w != 0:
        first, second = left[0, begin:], right[0, start:]
        _call(gemm, (_TRANSPOSED, _PLAIN, w, k, size, 1.0, second, m, first, n, 1.0, out, w))


def _interpreted_columns(syrk, rows, out):
    """As compiled, for runs without the compiler."""
    out += np.triu(rows.T @ rows)


def _interpreted_rows(syrk, rows, size, out):
    """As compiled, for runs without the compiler."""
    out += np.triu(rows[:, :size] @ rows[:, :size].T)


def _interpreted_products(gemm, left, begin, right, start, size, out):
    """As compiled, for runs without the compiler."""
    out += left[:, begin : begin + size] @ right[:, start : start + size].T


add_columns: Any = inline(_compiled_columns) if COMPILED else _interpreted_columns
add_rows: Any = inline(_compiled_rows) if COMPILED else _interpreted_rows
add_products: Any = inline(_compiled_products) if COMPILED else _interpreted_products

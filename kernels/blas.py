"""Matrix products by the linear algebra library, inside of kernels.

Numba's ``np.dot`` computes both triangles of a Gram matrix, and copies matrices whose rows are apart. These
call the library's routines at the addresses that SciPy publishes, without the interpreter, so that the pieces
of a job can be shared like those of any kernel. Their results depend on sizes alone.
"""

from functools import lru_cache
from typing import Any

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


def _call(builder, address, arguments):
    """Call a routine of Fortran's, which takes every argument by its address."""
    places = []
    for argument in arguments:
        if isinstance(argument.type, ir.PointerType):
            places.append(builder.bitcast(argument, _BYTES))
        else:
            places.append(builder.bitcast(cgutils.alloca_once_value(builder, argument), _BYTES))
    kind = ir.FunctionType(ir.VoidType(), [_BYTES] * len(places))
    builder.call(builder.inttoptr(address, kind.as_pointer()), places)


def _letter(text):
    return ir.Constant(ir.IntType(8), ord(text))


def _whole(builder, number):
    return builder.trunc(number, ir.IntType(32))


def _contiguous(*kinds):
    """Refuse arrays whose numbers are not where the routines look for them."""
    if any(kind.layout != "C" for kind in kinds):
        raise errors.TypingError("BLAS in kernels takes C-contiguous arrays")


def _data(context, builder, kind, value):
    return context.make_array(kind)(context, builder, value).data


@intrinsic
def _rank_update(typing_context, syrk, transposed, size, depth, rows, apart, out):
    """``out += rows.T @ rows`` (or ``rows @ rows.T``, where transposed), of which the upper triangle."""
    _contiguous(rows, out)
    signature = types.void(*[types.int64] * 4, rows, types.int64, out)

    def generate(context, builder, signature, arguments):
        address, transposed, size, depth, rows, apart, out = arguments
        one = ir.Constant(context.get_value_type(signature.args[4].dtype), 1.0)
        n, places = _whole(builder, size), _data(context, builder, signature.args[4], rows)
        kind = builder.select(builder.icmp_signed("!=", transposed, transposed.type(0)), *map(_letter, "TN"))
        total = _data(context, builder, signature.args[6], out)
        # The rows of an array are the columns of the routine's.
        numbers = [_letter("L"), kind, n, _whole(builder, depth), one, places, _whole(builder, apart)]
        _call(builder, address, [*numbers, one, total, n])
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _products(typing_context, gemm, count, wide, depth, left, apart, right, beside, out):
    """``out += left @ right.T`` for ``count`` and ``wide`` rows of ``depth`` numbers."""
    _contiguous(left, right, out)
    signature = types.void(*[types.int64] * 4, left, types.int64, right, types.int64, out)

    def generate(context, builder, signature, arguments):
        address, count, wide, depth, _, apart, _, beside, _ = arguments
        one = ir.Constant(ir.DoubleType(), 1.0)
        m, n = _whole(builder, wide), _whole(builder, count)
        first, second = (_data(context, builder, signature.args[k], arguments[k]) for k in (6, 4))
        total = _data(context, builder, signature.args[8], arguments[8])
        sizes = [_letter("T"), _letter("N"), m, n, _whole(builder, depth), one]
        factors = [first, _whole(builder, beside), second, _whole(builder, apart)]
        _call(builder, address, [*sizes, *factors, one, total, m])
        return context.get_dummy_value()

    return signature, generate


def _compiled_columns(syrk, rows, out):
    """Add the upper triangle of ``rows.T @ rows``.

    Shapes: rows (n, d); out (d, d).
    ``out``: of the same precision.
    """
    _rank_update(syrk, 0, rows.shape[1], rows.shape[0], rows, rows.shape[1], out)


def _compiled_rows(syrk, rows, size, out):
    """Add the upper triangle of ``part @ part.T``, where ``part = rows[:, :size]``.

    Shapes: rows (k, at least size); out (k, k).
    """
    _rank_update(syrk, 1, rows.shape[0], size, rows, rows.shape[1], out)


def _compiled_products(gemm, left, begin, right, start, size, out):
    """Add ``left[:, begin : begin + size] @ right[:, start : start + size].T``.

    Shapes: left, right (k, n), (w, m); out (k, w).
    """
    if len(left) != 0 and len(right) != 0:
        first, second = left[0, begin:], right[0, start:]
        _products(gemm, len(left), len(right), size, first, left.shape[1], second, right.shape[1], out)


def _interpreted_columns(syrk, rows, out):
    """As compiled, for runs without the compiler."""
    out += (rows.T @ rows) * _upper(len(out))


def _interpreted_rows(syrk, rows, size, out):
    """As compiled, for runs without the compiler."""
    out += (rows[:, :size] @ rows[:, :size].T) * _upper(len(out))


def _interpreted_products(gemm, left, begin, right, start, size, out):
    """As compiled, for runs without the compiler."""
    out += left[:, begin : begin + size] @ right[:, start : start + size].T


def _upper(size):
    import numpy as np

    return np.triu(np.ones((size, size)))


add_columns: Any = inline(_compiled_columns) if COMPILED else _interpreted_columns
add_rows: Any = inline(_compiled_rows) if COMPILED else _interpreted_rows
add_products: Any = inline(_compiled_products) if COMPILED else _interpreted_products

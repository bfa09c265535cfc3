"""Pages of memory, given back to the system piece by piece: for one thread all others would wait."""

from __future__ import annotations

from typing import Any

from fastadmm.kernels.policy import kernel
from llvmlite import ir
from numba import types
from numba.extending import intrinsic as _intrinsic

__all__ = ["discard"]

#: Its typing context is given by Numba, not by the caller.
intrinsic: Any = _intrinsic


@intrinsic
def _advise(typing_context, madvise, place, size, advice):
    """Call the system's ``madvise`` at an address."""
    signature = types.int32(*[types.int64] * 4)

    def generate(context, builder, signature, arguments):
        whole, pointer = ir.IntType(64), ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.IntType(32), [pointer, whole, ir.IntType(32)])
        function = builder.inttoptr(arguments[0], kind.as_pointer())
        advice = builder.trunc(arguments[3], ir.IntType(32))
        return builder.call(function, [builder.inttoptr(arguments[1], pointer), arguments[2], advice])

    return signature, generate


@kernel
def discard(madvise, advice, pieces, start, stop):
    """Let go of memory; what stood there is lost.

    Parameters
    ----------
    madvise : int
        Address of the system's function.
    advice : int
        ``MADV_DONTNEED``.
    pieces : ndarray of int64, shape (n, 2)
        Address and bytes of whole pages.
    start, stop : int
        Range of pieces.
    """
    for k in range(start, stop):
        _advise(madvise, pieces[k, 0], pieces[k, 1], advice)

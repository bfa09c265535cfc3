"""The elements of an array without the array, for functions that kernels call once per element.

Numba counts an array's references whenever a function takes it, also one that is inlined. In loops with
many branches LLVM cannot remove that, and each count is an atomic operation: together they took longer than
reading the numbers of a text. A pointer has no count.
"""

from __future__ import annotations

from typing import Any

import numba
from numba import types
from numba.extending import intrinsic as _intrinsic

__all__ = ["bare"]

#: Its type does not tell what it makes of a function.
intrinsic: Any = _intrinsic


@intrinsic
def _compiled(typing_context, array):
    """Where the elements of a contiguous array are; whoever calls keeps the array."""
    signature = types.CPointer(array.dtype)(array)

    def generate(context, builder, signature, arguments):
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    return signature, generate


def _interpreted(array):
    """The elements in a row: for runs without the compiler."""
    return array.reshape(-1)


#: What Numba reads from the environment.
_SETTINGS: Any = numba.config

bare: Any = _interpreted if _SETTINGS.DISABLE_JIT else _compiled

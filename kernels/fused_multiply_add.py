"""``a * b + c`` with one rounding, as one instruction.

LLVM may not contract a product and a sum by itself (that would change results
from machine to machine); asked for by name, the fused operation is the same to
the bit everywhere, and it halves the cost of a polynomial.
"""

from typing import Any

from fastadmm.kernels.policy import COMPILED, intrinsic
from numba import types


@intrinsic
def _compiled(typing_context, a, b, c):
    """``a * b + c`` of three floats, correctly rounded."""
    signature = types.float64(types.float64, types.float64, types.float64)

    def generate(context, builder, signature, arguments):
        return builder.fma(*arguments)

    return signature, generate


def _interpreted(a, b, c):
    """``a * b + c``, rounded twice: for runs without the compiler."""
    return a * b + c


fma: Any = _compiled if COMPILED else _interpreted

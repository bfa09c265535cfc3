"""Four sums side by side, increased by one instruction.

Numba leaves neighbouring statements as they are written, one number at a time;
asked for by name, the vector operations are the same multiplications and sums,
each rounded alone, to the bit.
"""

from __future__ import annotations

from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

__all__ = ["add_four"]


@intrinsic
def _compiled(typing_context, sums, j, value, a, b, c, d):
    """``sums[j] += value * (a, b, c, d)`` for C-contiguous sums of shape (n, 4)."""
    signature = types.void(sums, types.uintp, *[types.float64] * 5)

    def generate(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        row, value, factors = arguments[1], arguments[2], arguments[3:]
        vector = ir.VectorType(ir.DoubleType(), 4)

        def join(values):
            joined = ir.Constant(vector, ir.Undefined)
            for k, item in enumerate(values):
                joined = builder.insert_element(joined, item, ir.Constant(ir.IntType(32), k))
            return joined

        four = ir.Constant(row.type, 4)
        place = builder.gep(array.data, [builder.mul(row, four)])
        place = builder.bitcast(place, vector.as_pointer())
        increase = builder.fmul(join([value] * 4), join(factors))
        before = builder.load(place, align=8)
        builder.store(builder.fadd(before, increase), place, align=8)
        return context.get_dummy_value()

    return signature, generate


def _interpreted(sums, j, value, a, b, c, d):
    """``sums[j] += value * (a, b, c, d)``: for runs without the compiler."""
    for k, factor in enumerate((a, b, c, d)):
        sums[j, k] += value * factor


#: What Numba reads from the environment.
_SETTINGS: Any = numba.config

add_four: Any = _interpreted if _SETTINGS.DISABLE_JIT else _compiled

"""Vectors of eight numbers in generated code; lanes behind the end of a row are neither read nor written."""

from llvmlite import ir
from numba.core import cgutils

#: Numbers of a vector.
WIDTH = 8

INTEGER, SMALL, DOUBLE = ir.IntType(64), ir.IntType(32), ir.DoubleType()
VALUES = ir.VectorType(DOUBLE, WIDTH)
ZEROS = ir.Constant(VALUES, [0.0] * WIDTH)


def repeated(builder, value):
    """A vector of one value in all lanes."""
    first = builder.insert_element(
        ir.Constant(ir.VectorType(value.type, WIDTH), ir.Undefined), value, SMALL(0)
    )
    return builder.shuffle_vector(first, first, ir.Constant(ir.VectorType(SMALL, WIDTH), [0] * WIDTH))


def lanes(builder, first, end):
    """Which lanes are from ``first`` on and below ``end``."""
    numbers = ir.Constant(ir.VectorType(INTEGER, WIDTH), list(range(WIDTH)))
    above = builder.icmp_signed(">=", numbers, repeated(builder, first))
    return builder.and_(above, builder.icmp_signed("<", numbers, repeated(builder, end)))


def _call(builder, name, result, *arguments):
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), arguments)


def load(builder, pointer, mask=None):
    """Eight numbers from an address on; zero in lanes that are not of the mask."""
    place = builder.bitcast(pointer, VALUES.as_pointer())
    if mask is None:
        return builder.load(place, align=8)
    return _call(builder, f"llvm.masked.load.v{WIDTH}f64.p0", VALUES, place, SMALL(8), mask, ZEROS)


def store(builder, values, pointer, mask):
    """Write the lanes of a mask from an address on."""
    place = builder.bitcast(pointer, VALUES.as_pointer())
    _call(builder, f"llvm.masked.store.v{WIDTH}f64.p0", ir.VoidType(), values, place, SMALL(8), mask)


def multiply_add(builder, a, b, c):
    """``a * b + c`` with one rounding, lane by lane."""
    return _call(builder, f"llvm.fma.v{WIDTH}f64", VALUES, a, b, c)

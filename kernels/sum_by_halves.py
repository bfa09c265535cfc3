"""The sum of a vector register's numbers, in one order for all kernels that add up in vectors."""

from llvmlite import ir

__all__ = ["sum_by_halves"]

_LANE = ir.IntType(32)


def sum_by_halves(builder, total):
    """Emit code that adds the upper half of a vector to the lower until one number is left.

    Parameters
    ----------
    builder : llvmlite.ir.IRBuilder
    total : llvmlite.ir.Value
        Vector of doubles, of a length that is a power of two.

    Returns
    -------
    llvmlite.ir.Value
        A double.
    """
    width = total.type.count
    while width > 1:
        half = width // 2
        undefined, part = ir.Constant(total.type, ir.Undefined), ir.VectorType(_LANE, half)
        one, other = (
            builder.shuffle_vector(total, undefined, ir.Constant(part, list(range(k, k + half))))
            for k in (0, half)
        )
        total, width = builder.fadd(one, other), half
    return builder.extract_element(total, _LANE(0))

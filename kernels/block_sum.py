"""Sums over a block that LLVM can vectorise although it may not reassociate.

And the sum of a vector register's numbers, in one order for all kernels that add up in vectors.
"""

from fastadmm.kernels.policy import inline
from llvmlite import ir

#: Samples per block: a dozen arrays of this length stay in the first-level cache. A power of two.
BLOCK = 512


@inline
def block_sum(work, row, size):
    """Sum the first ``size`` numbers of a row pairwise, by halving; overwrites the row.

    Shapes: work (rows, BLOCK).
    """
    for k in range(size, BLOCK):
        work[row, k] = 0.0
    width = BLOCK // 2
    while width > 0:
        for k in range(width):
            work[row, k] += work[row, k + width]
        width //= 2
    return work[row, 0]


_LANE = ir.IntType(32)


def sum_by_halves(builder, total):
    """Emit code that adds the upper half of a vector to the lower until one number is left.

    ``total``: vector of doubles, of a length that is a power of two.
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

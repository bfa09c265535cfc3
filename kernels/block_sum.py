"""Sums over a block that LLVM can vectorise although it may not reassociate."""

from fastadmm.kernels.policy import inline

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

"""Dense matrices that are mostly zeros: found out and compressed in two passes."""

import numpy as np
from fastadmm.kernels.policy import kernel

__all__ = ["dense_compress", "dense_count"]

#: All bits of a number but its sign.
_NOT_SIGN = np.int64(0x7FFFFFFFFFFFFFFF)


@kernel
def dense_count(matrix, counts, start, stop):
    """Count the entries of each row that are not zero.

    Parameters
    ----------
    matrix : ndarray of shape (N, d)
    counts : ndarray of int64, shape (N,)
        Output.
    start, stop : int
        Row range.

    Returns
    -------
    float
        Largest absolute value; infinite or NaN if one of them is.
    """
    # Of absolute values the bits are in the same order, NaN above infinity above all numbers, and the
    # largest of integers may be looked for in any order: that is what lets LLVM vectorise this.
    largest = np.int64(0)
    for i in range(start, stop):
        row = matrix[i].view(np.int64)
        filled = np.int64(0)
        for j in range(len(row)):
            size = row[j] & _NOT_SIGN
            filled += np.int64(size != 0)
            largest = max(largest, size)
        counts[i] = filled
    return np.int64(largest).view(np.float64)


@kernel
def dense_compress(matrix, indptr, indices, data, start, stop):
    """Write the entries of a row range that are not zero as compressed sparse rows.

    Parameters
    ----------
    matrix : ndarray of shape (N, d)
    indptr : ndarray of int64, shape (N + 1,)
        Where each row's entries go.
    indices, data : ndarray of shape (nnz,)
        Outputs.
    start, stop : int
        Row range.
    """
    for i in range(start, stop):
        row = matrix[i]
        k = np.uint64(indptr[i])
        end = np.uint64(indptr[i + 1])
        for j in range(len(row)):
            # Written whether it counts or not: a branch on the value would be guessed wrong half of the time.
            if k < end:
                indices[k] = j
                data[k] = row[j]
            k += np.uint64(row[j] != 0.0)

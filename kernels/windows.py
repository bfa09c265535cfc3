"""One row of each of many windows of a table."""

import numpy as np
from fastadmm.kernels.policy import kernel

__all__ = ["row_of_each"]

#: Golden ratio times 2**64: products with it are spread evenly, and high bits more than low ones.
_FACTOR, _LOW_BITS = np.uint64(0x9E3779B97F4A7C15), np.uint64(33)


@kernel
def row_of_each(begin, stride, first_row, out, start, stop):
    """Write the row of each window from ``begin + start`` on, less ``first_row``, to a range of ``out``.

    Parameters
    ----------
    begin : int
        Number of the window whose row is ``out[0]``.
    stride : int
        Rows of a window.
    first_row : int
    out : ndarray of int64, shape (n_windows,)
    start, stop : int
        Range of ``out``.
    """
    # Arrays: without the compiler a number warns of the overflow that is meant.
    windows, width = np.arange(begin + start, begin + stop).astype(np.uint64), np.uint64(stride)
    inside = ((windows * _FACTOR) >> _LOW_BITS) % width
    rows = (windows * width + inside).astype(np.int64)
    for k in range(stop - start):  # an assignment of arrays takes a second to compile
        out[start + k] = rows[k] - first_row

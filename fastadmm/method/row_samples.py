"""Growing samples of the rows, with which Newton's method begins.

A sample has one row of every block of neighbours, chosen by row numbers alone, so all workers choose the
same. The minimiser for n of many rows differs from that for all of them by a statistical error, about a share
d / n of the loss. Rows of a sample have larger weights, so that its loss is on the scale of the whole.
"""

import numpy as np

from fastadmm.engine.engine import Engine, row_ranges

Array = np.ndarray

#: Accuracy of a sample's minimiser, times the loss and columns per row: below its statistical error.
ACCURACY = 0.1

#: Rows per column of the smallest sample, and its fewest rows.
_ROWS_PER_COLUMN, _FEWEST_ROWS = 32, 1 << 10

#: Ratio of the sizes of successive samples.
_GROWTH = 8

#: The largest sample has at most one row in so many: larger ones save too little.
_LEAST_STRIDE = 8

#: Where the curvature is the same everywhere one Hessian is enough, unless it is large.
_FEWEST_COLUMNS_OF_SQUARES = 256


def strides(n_rows: int, columns: int, quadratic: bool) -> list[int]:
    """For each sample the number of neighbouring rows of which it has one; the smallest sample first."""
    if quadratic and columns < _FEWEST_COLUMNS_OF_SQUARES:
        return []
    found, stride = [], n_rows // max(_ROWS_PER_COLUMN * columns, _FEWEST_ROWS)
    while stride >= _LEAST_STRIDE:
        found.append(stride)
        stride //= _GROWTH
    return found


def chosen_rows(n_rows: int, stride: int, engine: Engine) -> Array:
    """Increasing numbers of the sample's rows, among the ``n_rows`` that are here.

    One of every ``stride`` rows; its place among them varies, because tables may be periodic.
    """
    from fastadmm.kernels.vectors import row_of_each

    begin, end = engine.first_row // stride, -(-(engine.first_row + n_rows) // stride)
    rows = np.empty(end - begin, dtype=np.int64)
    engine.over_rows(row_of_each, row_ranges(len(rows)), begin, stride, engine.first_row, rows)
    # Rows of the first window and of the last may be elsewhere.
    return rows[int(rows[0] < 0) : len(rows) - int(rows[-1] >= n_rows)]

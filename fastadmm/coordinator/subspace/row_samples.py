"""Which rows a sample has: one of every so many neighbours, chosen by their numbers alone.

So all workers choose the same.
"""

from __future__ import annotations

import numpy as np

__all__ = ["chosen_rows", "strides"]

Array = np.ndarray

#: Rows of the smallest sample for each column, and at least.
_ROWS_PER_COLUMN, _FEWEST_ROWS = 32, 1 << 10

#: One sample has so many times the rows of the one before.
_GROWTH = 8

#: Samples of more than one row in so many save too little, and so do they where columns are few: Hessians are
#: cheap there.
_LEAST_STRIDE, _FEWEST_COLUMNS = 8, 16

#: Where the curvature is the same everywhere one Hessian is enough.
_FEWEST_COLUMNS_OF_SQUARES = 256


def strides(n_rows: int, columns: int, quadratic: bool) -> list[int]:
    """Of how many neighbouring rows each sample has one, the smallest sample first.

    Parameters
    ----------
    n_rows : int
        Of all workers.
    columns : int
    quadratic : bool
        Whether the loss is.
    """
    if columns < (_FEWEST_COLUMNS_OF_SQUARES if quadratic else _FEWEST_COLUMNS):
        return []
    found, stride = [], n_rows // max(_ROWS_PER_COLUMN * columns, _FEWEST_ROWS)
    while stride >= _LEAST_STRIDE:
        found.append(stride)
        stride //= _GROWTH
    return found


def chosen_rows(first: int, stop: int, stride: int) -> Array:
    """Increasing numbers of the rows of a sample, from ``first`` on and before ``stop``, less ``first``.

    One of every ``stride`` rows; which one differs, for tables may have periods.
    """
    windows = np.arange(first // stride, -(-stop // stride), dtype=np.uint64)
    inside = (windows * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(33)) % np.uint64(stride)
    rows = (windows * np.uint64(stride) + inside).astype(np.int64)
    return rows[(rows >= first) & (rows < stop)] - first

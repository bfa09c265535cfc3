"""Tiles: the row ranges in which every sum over rows runs, in memory as from a file.

A tile is small enough to stay in a core's cache and to be read ahead, and large
enough that handing it over costs nothing. Its rows depend on the shape of the
data alone, never on memory, threads or where the data are.
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from fastadmm.engine.tree import leaves_for_sums, leaves_of

#: A half-open range of rows.
Rows = tuple[int, int]

#: Bytes of a tile as the kernels see it, float64 values and 32-bit indices; one row is never divided.
TILE_BYTES = 2**20

#: Stored entries of a CSR tile: 8 bytes of value and 4 of index each.
TILE_ENTRIES = TILE_BYTES // 12


def tile_rows(n_columns: int) -> int:
    """Rows of a dense tile of d columns, at least one."""
    return max(1, TILE_BYTES // (8 * n_columns))


def dense_tiles(rows: Rows, n_columns: int) -> Iterator[Rows]:
    """Cut a range of rows of a dense matrix."""
    step = tile_rows(n_columns)
    for start in range(rows[0], rows[1], step):
        yield start, min(start + step, rows[1])


def csr_tiles(rows: Rows, indptr: np.ndarray) -> Iterator[Rows]:
    """Cut a range of rows of a CSR matrix by the number of its entries. Shapes: indptr (N + 1,)."""
    start, end = rows
    while start < end:
        fitting = int(np.searchsorted(indptr, indptr[start] + TILE_ENTRIES, side="right")) - 1
        stop = min(max(fitting, start + 1), start + TILE_BYTES // 8, end)
        yield start, stop
        start = stop


@lru_cache(maxsize=256)
def leaf_terms(n_rows: int, entries: float = 0.0, numbers: float = 1.0) -> tuple[int, int]:
    """Rows of the largest leaf of a job, and how often a leaf's sum is added in the tree; of all workers."""
    leaves = leaves_of(n_rows, *leaves_for_sums(n_rows, entries, numbers)) if entries else leaves_of(n_rows)
    return -(-n_rows // leaves), leaves.bit_length() - 1

"""Sparse rows of several matrices side by side: every row's entries are those of the first, then the next.

And some rows of one.
"""

from __future__ import annotations

import numpy as np
from fastadmm.kernels.policy import kernel

__all__ = ["append_csr", "append_dense", "copy_rows"]


@kernel
def append_csr(indptr, indices, data, first, places, out_indices, out_data, start, stop):
    """Write the entries of a range of rows behind those that the rows have.

    Entry by entry, because branches on the lengths of short rows cannot be predicted.

    Parameters
    ----------
    indptr : ndarray of int64, shape (N + 1,)
    indices : ndarray of unsigned int, shape (nnz,)
    data : ndarray of shape (nnz,)
    first : int
        Column of the whole that is this matrix's first.
    places : ndarray of int64, shape (N,)
        Where each row's next entry goes; moved on.
    out_indices : ndarray of unsigned int, shape (nnz of the result,)
    out_data : ndarray of shape (nnz of the result,)
    start, stop : int
        Row range.
    """
    begin, end = np.uint64(indptr[start]), np.uint64(indptr[stop])
    # Of each entry, rows that begin with it; of each row, how far its entries move.
    begins, moves = np.zeros(end - begin + np.uint64(1), dtype=np.int32), np.empty(stop - start, np.int64)
    for i in range(start, stop):
        moves[i - start] = places[i] - indptr[i]
        places[i] += indptr[i + 1] - indptr[i]
    for i in range(start + 1, stop):
        begins[np.uint64(indptr[i]) - begin] += 1
    row = np.uint64(0)
    for k in range(begin, end):
        row += np.uint64(begins[k - begin])
        place = np.uint64(k + moves[row])
        out_indices[place] = indices[k] + first
        out_data[place] = data[k]


@kernel
def copy_rows(indptr, indices, data, numbers, starts, out_indices, out_data, start, stop):
    """Write the entries of some rows of a matrix.

    Parameters
    ----------
    indptr : ndarray of int64, shape (N + 1,)
    indices : ndarray of unsigned int, shape (nnz,)
    data : ndarray of shape (nnz,)
    numbers : ndarray of int64, shape (n,)
        Rows that are wanted.
    starts : ndarray of int64, shape (n + 1,)
        Where the entries of each begin.
    out_indices : ndarray of unsigned int, shape (nnz of the result,)
    out_data : ndarray of shape (nnz of the result,)
    start, stop : int
        Range of those that are wanted.
    """
    for i in range(start, stop):
        place, row = np.uint64(starts[i]), np.uint64(numbers[i])
        for k in range(np.uint64(indptr[row]), np.uint64(indptr[row + np.uint64(1)])):
            out_indices[place] = indices[k]
            out_data[place] = data[k]
            place += np.uint64(1)


@kernel
def append_dense(matrix, first, places, out_indices, out_data, start, stop):
    """As :func:`append_csr` for all rows and entries of a dense matrix of shape (N, d)."""
    for i in range(start, stop):
        place = places[i]
        for j in range(matrix.shape[1]):
            out_indices[place + j] = first + j
            out_data[place + j] = matrix[i, j]
        places[i] = place + matrix.shape[1]

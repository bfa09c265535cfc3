"""Sparse rows of several matrices side by side: every row's entries are those of the first, then the next."""

from __future__ import annotations

import numpy as np
from fastadmm.kernels.policy import kernel

__all__ = ["append_csr", "append_dense"]


@kernel
def append_csr(indptr, indices, data, numbers, first, places, out_indices, out_data, start, stop):
    """Write the entries of some rows behind those that a range of rows has.

    Parameters
    ----------
    indptr : ndarray of int64, shape (N + 1,)
    indices : ndarray of unsigned int, shape (nnz,)
    data : ndarray of shape (nnz,)
    numbers : ndarray of int64, shape (n,)
        Row of the matrix whose entries go to each.
    first : int
        Column of the whole that is this matrix's first.
    places : ndarray of int64, shape (n,)
        Where each row's next entry goes; moved on.
    out_indices : ndarray of unsigned int
    out_data : ndarray
    start, stop : int
        Row range.
    """
    for i in range(start, stop):
        place = np.uint64(places[i])
        row = np.uint64(numbers[i])
        for k in range(np.uint64(indptr[row]), np.uint64(indptr[row + np.uint64(1)])):
            out_indices[place] = indices[k] + first
            out_data[place] = data[k]
            place += np.uint64(1)
        places[i] = place


@kernel
def append_dense(matrix, first, places, out_indices, out_data, start, stop):
    """As :func:`append_csr` for all rows and entries of a dense matrix of shape (N, d)."""
    for i in range(start, stop):
        place = places[i]
        for j in range(matrix.shape[1]):
            out_indices[place + j] = first + j
            out_data[place + j] = matrix[i, j]
        places[i] = place + matrix.shape[1]

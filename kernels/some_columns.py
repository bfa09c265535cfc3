"""Some columns of matrices with the same rows."""

from __future__ import annotations

import numpy as np
from fastadmm.kernels.policy import kernel

__all__ = ["append_some", "copy_some", "find_some"]


@kernel
def find_some(indptr, indices, places, entries, rows, counts, start, stop):
    """Find the entries of a range of sparse rows that are in some columns.

    Entry by entry, and none of it branches: neither the lengths of short rows nor columns can be predicted.

    Parameters
    ----------
    indptr : ndarray of int64, shape (N + 1,)
    indices : ndarray of unsigned int, shape (nnz,)
    places : ndarray of int32, shape (d,)
        Number that a column has among those that are wanted; -1 of others.
    entries, rows : ndarray of unsigned int, shape (nnz,)
        Numbers of the entries found, and their rows, from that of the range's first entry on.
    counts : ndarray of int64, shape (N,)
        How many each row has; zero before.
    start, stop : int
        Row range.
    """
    begin, end = np.uint64(indptr[start]), np.uint64(indptr[stop])
    begins = np.zeros(end - begin + np.uint64(1), dtype=np.int32)
    for i in range(start + 1, stop):
        begins[np.uint64(indptr[i]) - begin] += 1
    row, place = start, begin
    for k in range(begin, end):
        row += begins[k - begin]
        entries[place] = k
        rows[place] = row
        place += np.uint64(places[indices[k]] >= 0)
    for k in range(begin, place):
        counts[rows[k]] += 1


@kernel
def append_some(
    indptr, indices, data, places, entries, rows, counts, ends, out_indices, out_data, start, stop
):
    """Write the entries of a range of sparse rows that are in some columns behind those that the rows have.

    Parameters
    ----------
    indptr, indices, places, entries, rows, counts, start, stop
        As of :func:`find_some`, which has found the entries.
    data : ndarray of shape (nnz,)
    ends : ndarray of int64, shape (N,)
        Where each row's next entry goes; moved on.
    out_indices : ndarray of unsigned int, shape (nnz of the result,)
    out_data : ndarray of shape (nnz of the result,)
    """
    begin, found = indptr[start], 0
    for i in range(start, stop):
        found += counts[i]
    for place in range(np.uint64(begin), np.uint64(begin + found)):
        k, end = np.uint64(entries[place]), ends[rows[place]]
        out_indices[end] = places[indices[k]]
        out_data[end] = data[k]
        ends[rows[place]] = end + 1


@kernel
def copy_some(matrix, numbers, first, out, start, stop):
    """Write columns of a dense matrix of shape (N, d), for a range of rows, to some of ``out``.

    Parameters
    ----------
    matrix : ndarray of shape (N, d)
    numbers : ndarray of int64, shape (k,)
        Of the columns.
    first : int
        Column of ``out`` that the first of them becomes.
    out : ndarray of shape (N, at least first + k)
    start, stop : int
        Row range.
    """
    for i in range(start, stop):
        for j in range(len(numbers)):
            out[i, first + j] = matrix[i, numbers[j]]

"""Sparse rows of several matrices side by side: every row's entries are those of the first, then the next.

And some rows of one, and some columns of matrices with the same rows.
"""

import numpy as np
from fastadmm.kernels.policy import kernel


@kernel
def append_csr(indptr, indices, data, first, places, out_indices, out_data, start, stop):
    """Write the entries of a range of rows behind those that the rows have.

    Entry by entry, because branches on the lengths of short rows cannot be predicted.

    Shapes: places (N,) of int64; out_indices (nnz of the result,); out_data (nnz of the result,).
    ``first``: column of the whole that is this matrix's first. ``places``: where each row's next entry goes;
    moved on.
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

    Shapes: numbers (n,) of int64; starts (n + 1,) of int64; out_indices (nnz of the result,); out_data (nnz
    of the result,).
    ``numbers``: rows that are wanted. ``starts``: where the entries of each begin. ``start``, ``stop``: range
    of those that are wanted.
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


@kernel
def find_some(indptr, indices, places, entries, rows, counts, start, stop):
    """Find the entries of a range of sparse rows that are in some columns.

    Entry by entry, and none of it branches: neither the lengths of short rows nor columns can be predicted.

    Shapes: places (d,) of int32; entries, rows (nnz,) of unsigned int; counts (N,) of int64.
    ``places``: number that a column has among those that are wanted; -1 of others. ``entries``, ``rows``:
    numbers of the entries found, and their rows, from that of the range's first entry on. ``counts``: how
    many each row has; zero before.
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

    Shapes: ends (N,) of int64; out_indices (nnz of the result,); out_data (nnz of the result,).
    ``ends``: where each row's next entry goes; moved on. Others as of :func:`find_some`, which has found the
    entries.
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

    Shapes: matrix (N, d); numbers (k,) of int64; out (N, at least first + k).
    ``numbers``: of the columns. ``first``: column of ``out`` that the first of them becomes.
    """
    for i in range(start, stop):
        for j in range(len(numbers)):
            out[i, first + j] = matrix[i, numbers[j]]

"""Products with sparse rows of an entry or two, entry by entry.

Where a party holds few columns of wide sparse data, most of its rows are empty or nearly so. Then a row's
beginning and end cost more than its entries: these kernels know the row of each entry instead. They give
the bits of :mod:`fastadmm.kernels.csr`, whose order of addition a row of up to two entries does not show.
"""

from __future__ import annotations

import numpy as np
from fastadmm.kernels.policy import kernel
from fastadmm.kernels.sparse_row import row_product

__all__ = ["short_accumulate_transposed", "short_product"]


@kernel
def short_product(indptr, rows, longer, indices, data, x, out, start, stop):
    """Write ``out[i] = sum_j D[i, j] x[j]`` for the rows of a range.

    Parameters
    ----------
    indptr : ndarray of int64, shape (N + 1,)
    rows : ndarray of unsigned int, shape (nnz,)
        Of each entry; ascending.
    longer : ndarray of int64, shape (n_longer,)
        Rows of more than two entries, ascending.
    indices : ndarray of unsigned int, shape (nnz,)
    data : ndarray of float, shape (nnz,)
    x : ndarray of shape (d,)
    out : ndarray of shape (N,)
    start, stop : int
        Row range.
    """
    for i in range(start, stop):
        out[i] = 0.0
    readable = np.uint64(indptr[stop])
    for k in range(np.uint64(indptr[start]), readable):
        out[rows[k]] += data[k] * x[indices[k]]
    for j in range(np.searchsorted(longer, start), np.searchsorted(longer, stop)):
        i = longer[j]
        begin, end = np.uint64(indptr[i]), np.uint64(indptr[i + 1])
        out[i] = row_product(data, indices, x, begin, end, readable)


@kernel
def short_accumulate_transposed(indptr, rows, indices, data, v, out, start, stop):
    """Add ``sum_i v[i] D[i, :]`` over the rows of a range to ``out`` of shape (d,).

    Parameters
    ----------
    indptr, rows, indices, data : ndarray
        As in :func:`short_product`.
    v : ndarray of shape (N,)
    out : ndarray of shape (d,)
    start, stop : int
        Row range.
    """
    for k in range(np.uint64(indptr[start]), np.uint64(indptr[stop])):
        out[indices[k]] += data[k] * v[rows[k]]

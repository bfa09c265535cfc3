"""Products with compressed sparse rows.

Column indices are unsigned: signed ones make Numba emit wrap-around code for
negative indices in the innermost loop.
"""

from __future__ import annotations

from fastadmm.kernels.policy import kernel

__all__ = ["csr_accumulate_gram", "csr_accumulate_transposed", "csr_column_squares", "csr_product"]


@kernel
def csr_product(indptr, indices, data, x, out, start, stop):
    """Write ``out[i] = sum_j D[i, j] x[j]`` for the rows of a range.

    Parameters
    ----------
    indptr : ndarray of int64, shape (N + 1,)
    indices : ndarray of unsigned int, shape (nnz,)
    data : ndarray of float, shape (nnz,)
    x : ndarray of shape (d,)
    out : ndarray of shape (N,)
    start, stop : int
        Row range.
    """
    for i in range(start, stop):
        total = 0.0
        for k in range(indptr[i], indptr[i + 1]):
            total += data[k] * x[indices[k]]
        out[i] = total


@kernel
def csr_accumulate_transposed(indptr, indices, data, v, out, start, stop):
    """Add ``sum_i v[i] D[i, :]`` over the rows of a range to ``out`` of shape (d,)."""
    for i in range(start, stop):
        scale = v[i]
        for k in range(indptr[i], indptr[i + 1]):
            out[indices[k]] += data[k] * scale


@kernel
def csr_accumulate_gram(indptr, indices, data, out, start, stop):
    """Add the upper triangle of ``D[start:stop].T @ D[start:stop]`` to ``out`` of shape (d, d).

    Column indices must be sorted within each row.
    """
    for i in range(start, stop):
        for a in range(indptr[i], indptr[i + 1]):
            scale = data[a]
            row = indices[a]
            for b in range(a, indptr[i + 1]):
                out[row, indices[b]] += scale * data[b]


@kernel
def csr_column_squares(indptr, indices, data, out, start, stop):
    """Add the squared entries of each column over a row range to ``out`` of shape (d,)."""
    for i in range(start, stop):
        for k in range(indptr[i], indptr[i + 1]):
            out[indices[k]] += data[k] * data[k]

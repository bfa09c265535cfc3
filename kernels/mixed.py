"""Passes over rows that have sparse entries in some columns and dense ones in the others.

The sparse columns come first, and are held as in :mod:`fastadmm.kernels.csr`; the dense ones are a matrix.
K is the number of all columns.
"""

import numpy as np
from fastadmm.kernels.csr import add_csr_rows, multiply_csr_rows
from fastadmm.kernels.dense_products import add_rows, dense_gram
from fastadmm.kernels.dense_rows import add_products
from fastadmm.kernels.fused_multiply_add import fma
from fastadmm.kernels.policy import kernel

#: Rows whose products stay in the first-level cache.
_ROWS = 1024


@kernel
def mixed_product(sparse, matrix, x, out, start, stop):
    """Write ``D x`` for the rows of a range to ``out`` of shape (N,).

    Shapes: matrix (N, d_1); x (K,); out (N,).
    ``sparse``: ``indptr``, ``indices`` and ``data`` of the sparse columns. ``matrix``: the dense columns.
    """
    indptr, indices, data = sparse
    columns = len(x) - matrix.shape[1]
    for begin in range(start, stop, _ROWS):
        end = min(begin + _ROWS, stop)
        multiply_csr_rows(indptr, indices, data, x, out, begin, end)
        add_products(matrix[begin:end], x[columns:], out[begin:end])


@kernel
def mixed_transposed(sparse, matrix, vector, out, start, stop):
    """Add ``D.T vector`` over the rows of a range to ``out`` of shape (K,).

    Shapes: vector (N,); out (K,).
    Others as of :func:`mixed_product`.
    """
    indptr, indices, data = sparse
    add_csr_rows(indptr, indices, data, vector, out, start, stop)
    add_rows(matrix, vector, out[len(out) - matrix.shape[1] :], start, stop)


@kernel
def mixed_gram(sparse, matrix, lead, weight, tile, syrk, out, start, stop):
    """Add the upper triangle of ``D.T diag(weight) D`` over a range of rows.

    Shapes: out (lead + K, lead + K).
    ``lead``: 1 where a column of ones stands before the others, 0 where none does. Others as of
    :func:`mixed_product` and of :func:`fastadmm.kernels.dense_products.dense_gram`.
    """
    indptr, indices, data = sparse
    own_columns = matrix.shape[1]
    behind = len(out) - own_columns
    columns = behind - lead
    of_dense = np.zeros((lead + own_columns, lead + own_columns))
    dense_gram(matrix, weight, tile, syrk, of_dense, start, stop)
    for j in range(lead):
        for k in range(lead):
            out[j, k] += of_dense[j, k]
        for k in range(lead, len(of_dense)):
            out[j, columns + k] += of_dense[j, k]
    for j in range(lead, len(of_dense)):
        for k in range(j, len(of_dense)):
            out[columns + j, columns + k] += of_dense[j, k]
    ahead = np.uint64(lead)
    for i in range(start, stop):
        if weight[i] == 0.0:
            continue
        end = np.uint64(indptr[i + 1])
        for a in range(np.uint64(indptr[i]), end):
            scale, column = weight[i] * data[a], np.uint64(indices[a]) + ahead
            row = out[column]
            for k in range(lead):
                out[k, column] += scale
            for b in range(a, end):
                row[np.uint64(indices[b]) + ahead] += scale * data[b]
            own, values = row[behind:], matrix[i]
            for j in range(own_columns):
                own[j] = fma(scale, values[j], own[j])

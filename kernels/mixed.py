"""Passes over rows that have sparse entries in some columns and dense ones in the others.

The sparse columns come first, and are held as in :mod:`fastadmm.kernels.csr`; the dense ones as in
:mod:`fastadmm.kernels.beside`. K is the number of all columns.
"""

import numpy as np
from fastadmm.kernels.beside import add_beside_products, beside_gram, beside_slopes
from fastadmm.kernels.csr import add_csr_rows, multiply_csr_rows
from fastadmm.kernels.fused_multiply_add import fma
from fastadmm.kernels.policy import kernel, spliced

#: Most and fewest rows of a block, and numbers that stay in the second-level cache with room to spare.
_ROWS, _FEWEST_ROWS, _NUMBERS_PER_BLOCK = 1024, 8, 1 << 15


@spliced
def _block_rows(matrices):
    """Rows of a block whose dense numbers a cache keeps from the products to the sums over rows."""
    numbers = 0
    for matrix in matrices:
        numbers += matrix.shape[1]
    return min(max(_FEWEST_ROWS, _NUMBERS_PER_BLOCK // max(1, numbers)), _ROWS)


@kernel
def mixed_product(sparse, matrices, columns, x, out, start, stop):
    """Write ``D x`` for the rows of a range to ``out`` of shape (N,).

    Shapes: each of matrices (N, d_m); x (K,); out (N,).
    ``sparse``: ``indptr``, ``indices`` and ``data`` of the sparse columns. ``matrices``: the dense columns.
    ``columns``: number of sparse columns.
    """
    indptr, indices, data = sparse
    for begin in range(start, stop, _ROWS):
        end = min(begin + _ROWS, stop)
        multiply_csr_rows(indptr, indices, data, x, out, begin, end)
        add_beside_products(matrices, x[columns:], out, begin, end)


@kernel
def mixed_transposed(sparse, matrices, columns, vector, out, start, stop):
    """Add ``D.T vector`` over the rows of a range to ``out`` of shape (K,).

    Shapes: vector (N,); out (K,).
    Others as of :func:`mixed_product`.
    """
    indptr, indices, data = sparse
    add_csr_rows(indptr, indices, data, vector, out, start, stop)
    beside_slopes(matrices, vector, out[columns:], start, stop)


@kernel
def mixed_gram(sparse, matrices, columns, lead, weight, tile, syrk, out, start, stop):
    """Add the upper triangle of ``D.T diag(weight) D`` over a range of rows.

    Shapes: out (lead + K, lead + K).
    Others as of :func:`mixed_product` and as of :func:`fastadmm.kernels.beside.beside_gram`.
    """
    indptr, indices, data = sparse
    behind = lead + columns
    of_dense = np.zeros((lead + len(out) - behind, lead + len(out) - behind))
    beside_gram(matrices, lead, weight, tile, syrk, of_dense, start, stop)
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
            row, first = out[column], behind
            for k in range(lead):
                out[k, column] += scale
            for b in range(a, end):
                row[np.uint64(indices[b]) + ahead] += scale * data[b]
            for matrix in matrices:
                own, values = row[first : first + matrix.shape[1]], matrix[i]
                for j in range(len(own)):
                    own[j] = fma(scale, values[j], own[j])
                first += matrix.shape[1]

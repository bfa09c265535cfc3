"""Products with compressed sparse rows.

Column indices are unsigned, and so are the loops over entries: signed ones make
Numba emit wrap-around code for negative indices in the innermost loop, which
costs a third of the time.

And dense matrices that are mostly zeros, found out and compressed in two passes.
"""

import numpy as np
from fastadmm.kernels.policy import inline, kernel
from fastadmm.kernels.sparse_row import add_row, add_row_of_four, row_product

#: Rows whose entries a cache keeps from one product to the next.
_KEPT_ROWS = 64


@inline
def multiply_csr_rows(indptr, indices, data, x, out, start, stop):
    """Write ``(D x)[i]`` to ``out[i]`` for the rows of a range."""
    readable = np.uint64(indptr[stop])
    for i in range(start, stop):
        begin, end = np.uint64(indptr[i]), np.uint64(indptr[i + 1])
        out[i] = row_product(data, indices, x, begin, end, readable)


@kernel
def csr_product(indptr, indices, data, x, out, start, stop):
    """Write ``out[i] = sum_j D[i, j] x[j]`` for the rows of a range.

    Shapes: data (nnz,), or None; x (d,); out (N,).
    ``data``: none for entries that are all one: then two bytes an entry are read instead of ten.
    """
    multiply_csr_rows(indptr, indices, data, x, out, start, stop)


@kernel
def csr_products(indptr, indices, data, x, out, start, stop):
    """Write ``D x`` of several x for the rows of a range, each to the bit as :func:`csr_product`.

    D is read from memory once.

    Shapes: x (C, d); out (C, N).
    """
    for begin in range(start, stop, _KEPT_ROWS):
        end = min(begin + _KEPT_ROWS, stop)
        for k in range(len(x)):
            multiply_csr_rows(indptr, indices, data, x[k], out[k], begin, end)


@kernel
def csr_accumulate_transposed(indptr, indices, data, v, out, start, stop):
    """Add ``sum_i v[i] D[i, :]`` over the rows of a range to ``out`` of shape (d,)."""
    readable = np.uint64(indptr[stop])
    for i in range(start, stop):
        begin, end = np.uint64(indptr[i]), np.uint64(indptr[i + 1])
        add_row(data, indices, out, begin, end, readable, v[i])


@kernel
def csr_accumulate_images(indptr, indices, data, vectors, out, start, stop):
    """Add the images of four vectors under the transposed rows of a range, to the bit as one by one.

    Shapes: vectors (4, N); out (d, 4).
    ``vectors``: zero where fewer are wanted. ``out``: side by side, so that one instruction increases a
    column's four sums.
    """
    for i in range(start, stop):
        a, b, c, d = vectors[0, i], vectors[1, i], vectors[2, i], vectors[3, i]
        begin, end = np.uint64(indptr[i]), np.uint64(indptr[i + 1])
        add_row_of_four(data, indices, out, begin, end, a, b, c, d)


@kernel
def csr_accumulate_gram(indptr, indices, data, weight, out, start, stop):
    """Add the upper triangle of ``D.T @ diag(weight) @ D`` over the rows of a range to ``out``.

    Shapes: weight (N,); out (d, d).
    Others as in :func:`csr_product`; column indices sorted within each row.
    """
    for i in range(start, stop):
        if weight[i] == 0.0:  # most rows of a loss with flat pieces
            continue
        end = np.uint64(indptr[i + 1])
        for a in range(np.uint64(indptr[i]), end):
            row = out[indices[a]]
            if data is None:
                for b in range(a, end):
                    row[indices[b]] += weight[i]
            else:
                scale = weight[i] * data[a]
                for b in range(a, end):
                    row[indices[b]] += scale * data[b]


@kernel
def csr_fill(indptr, indices, data, scale, out, start, stop):
    """Write the rows of a range, each times its scale, as a dense matrix.

    Shapes: scale (N,); out (stop - start, d).
    """
    for i in range(start, stop):
        row = out[i - start]
        for j in range(len(row)):
            row[j] = 0.0
        for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            row[indices[k]] = scale[i] * data[k]


@kernel
def csr_column_squares(indptr, indices, data, out, start, stop):
    """Add the squared entries of each column over a row range to ``out`` of shape (d,)."""
    for k in range(np.uint64(indptr[start]), np.uint64(indptr[stop])):
        out[indices[k]] += data[k] * data[k]


#: All bits of a number but its sign.
_NOT_SIGN = np.int64(0x7FFFFFFFFFFFFFFF)


@kernel
def dense_count(matrix, counts, start, stop):
    """Count the entries of each row that are not zero.

    Shapes: matrix (N, d); counts (N,) of int64.
    Returns: largest absolute value; infinite or NaN if one of them is.
    """
    # Of absolute values the bits are in the same order, NaN above infinity above all numbers, and the
    # largest of integers may be looked for in any order: that is what lets LLVM vectorise this.
    largest = np.int64(0)
    for i in range(start, stop):
        row = matrix[i].view(np.int64)
        filled = np.int64(0)
        for j in range(len(row)):
            size = row[j] & _NOT_SIGN
            filled += np.int64(size != 0)
            largest = max(largest, size)
        counts[i] = filled
    return np.int64(largest).view(np.float64)


@kernel
def dense_compress(matrix, indptr, indices, data, start, stop):
    """Write the entries of a row range that are not zero as compressed sparse rows.

    Shapes: matrix (N, d); indices, data (nnz,).
    ``indptr``: where each row's entries go.
    """
    for i in range(start, stop):
        row = matrix[i]
        k = np.uint64(indptr[i])
        end = np.uint64(indptr[i + 1])
        for j in range(len(row)):
            # Written whether it counts or not: a branch on the value would be guessed wrong half of the time.
            if k < end:
                indices[k] = j
                data[k] = row[j]
            k += np.uint64(row[j] != 0.0)

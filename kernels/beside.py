"""Passes over the columns of several dense matrices with the same rows, side by side as they are.

None of them is copied. The matrices are C-contiguous, of shape (N, d_m), in a tuple; K is the
number of all columns.
"""

import numpy as np
from fastadmm.kernels.blas import add_columns
from fastadmm.kernels.dense_products import add_rows
from fastadmm.kernels.dense_rows import add_products
from fastadmm.kernels.policy import kernel, spliced

#: Rows whose products stay in the first-level cache.
_ROWS = 1024


@spliced
def add_beside_products(matrices, x, total, start, stop):
    """Add ``D x`` for the rows of a range to ``total`` of shape (N,)."""
    first = 0
    for matrix in matrices:
        last = first + matrix.shape[1]
        if first < last:
            add_products(matrix[start:stop], x[first:last], total[start:stop])
        first = last


@spliced
def beside_slopes(matrices, vector, out, start, stop):
    """Add ``D.T vector`` over a row range to ``out``.

    Shapes: each of matrices (N, d_m); vector (N,); out (at least K,).
    """
    first = 0
    for matrix in matrices:
        last = first + matrix.shape[1]
        add_rows(matrix, vector, out[first:last], start, stop)
        first = last


@kernel
def beside_product(matrices, x, out, start, stop):
    """Write ``D x`` for the rows of a range to ``out`` of shape (N,)."""
    for begin in range(start, stop, _ROWS):
        end = min(begin + _ROWS, stop)
        for i in range(begin, end):
            out[i] = 0.0
        add_beside_products(matrices, x, out, begin, end)


@kernel
def beside_transposed(matrices, vector, out, start, stop):
    """:func:`beside_slopes` of ``matrices`` and ``vector`` as a kernel."""
    beside_slopes(matrices, vector, out, start, stop)


@kernel
def beside_rows(matrices, numbers, out, start, stop):
    """Write the rows with numbers of shape (n,), from ``start`` to ``stop``, to ``out`` of shape (n, K)."""
    for i in range(start, stop):
        row, first = numbers[i], 0
        for matrix in matrices:
            columns = matrix.shape[1]
            for j in range(columns):
                out[i, first + j] = matrix[row, j]
            first += columns


@kernel
def beside_gram(matrices, lead, weight, tile, syrk, out, start, stop):
    """Add the upper triangle of ``D.T diag(weight) D`` over a range of rows.

    Shapes: each of matrices (N, d_m); weight (N,); out (K, K).
    ``lead``: 1 where a column of ones stands before the others, 0 where none does. ``weight``: not negative.
    """
    scaled = np.empty((min(tile, stop - start), len(out)))
    for begin in range(start, stop, tile):
        end, first = min(begin + tile, stop), lead
        for i in range(begin, end):
            for j in range(lead):
                scaled[i - begin, j] = np.sqrt(weight[i])
        for matrix in matrices:
            columns = matrix.shape[1]
            for i in range(begin, end):
                root, row = np.sqrt(weight[i]), matrix[i]
                own = scaled[i - begin, first : first + columns]
                for j in range(columns):
                    own[j] = root * row[j]
            first += columns
        add_columns(syrk, scaled[: end - begin], out)

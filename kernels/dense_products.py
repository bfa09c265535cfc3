"""Products of a dense matrix with vectors, and its Gram matrix, piece by piece in compiled code.

Rows of ``D x`` each have a sum of their own (:mod:`fastadmm.kernels.dense_rows`), and ``D.T v`` adds
row after row to one sum, in their order: how rows are grouped into tiles or read from a
file cannot change a bit.
"""

import numpy as np
from fastadmm.kernels.blas import add_columns
from fastadmm.kernels.dense_rows import multiply_rows
from fastadmm.kernels.fused_multiply_add import fma
from fastadmm.kernels.narrow_rows import NARROW, add_narrow_rows
from fastadmm.kernels.policy import inline, kernel

__all__ = [
    "add_rows",
    "dense_accumulate_transposed",
    "dense_column_squares",
    "dense_columns",
    "dense_gram",
    "dense_product",
    "dense_products",
    "rough_dense_gram",
]

#: Numbers of the matrix that the first cache keeps from one product to the next.
_KEPT = 2048


@kernel
def dense_product(matrix, x, out, start, stop):
    """Write ``D x`` for the rows of a range.

    Parameters
    ----------
    matrix : ndarray of shape (N, d)
        C-contiguous.
    x : ndarray of shape (d,)
    out : ndarray of shape (N,)
        Contiguous.
    start, stop : int
        Row range.
    """
    multiply_rows(matrix[start:stop], x, out[start:stop])


@kernel
def dense_products(matrix, x, out, start, stop):
    """Write ``D x`` of several x for the rows of a range: D is read from memory once.

    Parameters
    ----------
    matrix : ndarray of shape (N, d)
        C-contiguous.
    x : ndarray of shape (C, d)
    out : ndarray of shape (C, N)
        Each to the bit as :func:`dense_product` writes it.
    start, stop : int
        Row range.
    """
    step = 4 + _KEPT // max(1, matrix.shape[1]) // 4 * 4
    for begin in range(start, stop, step):
        end = min(begin + step, stop)
        for k in range(len(x)):
            multiply_rows(matrix[begin:end], x[k], out[k, begin:end])


@inline
def add_rows(matrix, v, out, start, stop):
    """Add ``sum_i v[i] D[i, :]`` to ``out``, row after row; four of them for each time the sums are read.

    ``out`` may be longer than a row.
    """
    i, columns = start, matrix.shape[1]
    if 0 < columns <= NARROW:
        i = add_narrow_rows(matrix, v, out, start, stop)
    while i + 4 <= stop:
        a, b, c, d = matrix[i], matrix[i + 1], matrix[i + 2], matrix[i + 3]
        p, q, r, s = v[i], v[i + 1], v[i + 2], v[i + 3]
        for j in range(columns):
            out[j] = fma(s, d[j], fma(r, c[j], fma(q, b[j], fma(p, a[j], out[j]))))
        i += 4
    while i < stop:
        a, p = matrix[i], v[i]
        for j in range(columns):
            out[j] = fma(p, a[j], out[j])
        i += 1


@kernel
def dense_accumulate_transposed(matrix, v, out, start, stop):
    """Add ``sum_i v[i] D[i, :]`` over the rows of a range to ``out`` of shape (d,)."""
    add_rows(matrix, v, out, start, stop)


@kernel
def dense_columns(matrix, out, start, stop):
    """Write columns, as rows, for the rows of a range.

    Parameters
    ----------
    matrix : ndarray of shape (N, d)
        C-contiguous.
    out : ndarray of shape (d, N)
    start, stop : int
        Row range.
    """
    step = 8 + _KEPT // max(1, matrix.shape[1]) // 8 * 8
    for begin in range(start, stop, step):
        part = matrix[begin : min(begin + step, stop)]
        for j in range(matrix.shape[1]):
            own = out[j, begin : begin + len(part)]
            for i in range(len(part)):
                own[i] = part[i, j]


@kernel
def dense_column_squares(matrix, out, start, stop):
    """Add the squared norms of the columns of a range of rows to ``out``, of shape (at least d,)."""
    for i in range(start, stop):
        own = matrix[i]
        for j in range(matrix.shape[1]):
            out[j] = fma(own[j], own[j], out[j])


@kernel
def dense_gram(matrix, weight, tile, syrk, out, start, stop):
    """Add the upper triangle of ``D.T diag(weight) D`` over a range of rows.

    Parameters
    ----------
    matrix : ndarray of shape (N, d)
        C-contiguous.
    weight : ndarray of shape (N,) or (0,)
        Not negative; none for ones.
    tile : int
        Rows that are multiplied at once: they stay in a cache.
    syrk : int
        Address of the library's ``dsyrk``: see :mod:`fastadmm.kernels.blas`.
    out : ndarray of shape (d, d)
    start, stop : int
        Row range.
    """
    d = matrix.shape[1]
    if len(weight) == 0:
        for begin in range(start, stop, tile):
            add_columns(syrk, matrix[begin : min(begin + tile, stop)], out)
        return
    scaled = np.empty((min(tile, stop - start), d))
    for begin in range(start, stop, tile):
        end = min(begin + tile, stop)
        for i in range(begin, end):
            root, row, own = np.sqrt(weight[i]), matrix[i], scaled[i - begin]
            for j in range(d):
                own[j] = root * row[j]
        add_columns(syrk, scaled[: end - begin], out)


@kernel
def rough_dense_gram(matrix, weight, tile, syrk, out, start, stop):
    """As :func:`dense_gram`, tile by tile in single precision, by the library's ``ssyrk``."""
    d = matrix.shape[1]
    scaled = np.empty((min(tile, stop - start), d), dtype=np.float32)
    single = np.empty((d, d), dtype=np.float32)
    for begin in range(start, stop, tile):
        end = min(begin + tile, stop)
        for i in range(begin, end):
            root, row, own = 1.0, matrix[i], scaled[i - begin]
            if len(weight) != 0:
                root = np.sqrt(weight[i])
            for j in range(d):
                own[j] = np.float32(root * row[j])
        single[:] = 0.0
        add_columns(syrk, scaled[: end - begin], single)
        for j in range(d):
            own, total = single[j], out[j]
            for k in range(j, d):
                total[k] += own[k]

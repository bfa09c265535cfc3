"""Products of a dense matrix with vectors, piece by piece without the interpreter in between.

Rows of ``D x`` each have a sum of their own (:mod:`fastadmm.kernels.dense_rows`), and ``D.T v`` adds
row after row to one sum, in their order: how rows are grouped into tiles or read from a
file cannot change a bit.
"""

from __future__ import annotations

from fastadmm.kernels.dense_rows import multiply_rows
from fastadmm.kernels.fused_multiply_add import fma
from fastadmm.kernels.narrow_rows import NARROW, add_narrow_rows
from fastadmm.kernels.policy import inline, kernel

__all__ = [
    "add_rows",
    "dense_accumulate_transposed",
    "dense_column_squares",
    "dense_columns",
    "dense_product",
    "dense_products",
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

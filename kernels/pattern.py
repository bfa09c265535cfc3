"""Products with sparse matrices whose stored entries are all one: categories, words present, marks.

The same sums in the same order as those of :mod:`fastadmm.kernels.csr`, to the
bit, from two bytes an entry instead of ten.
"""

from __future__ import annotations

import numpy as np
from fastadmm.kernels.csr import add_csr_rows, multiply_csr_rows, multiply_csr_rows_of_each, pass_rows
from fastadmm.kernels.policy import kernel

__all__ = [
    "pattern_accumulate_gram",
    "pattern_accumulate_transposed",
    "pattern_hessian_product",
    "pattern_product",
    "pattern_products",
]


@kernel
def pattern_product(indptr, indices, x, out, start, stop):
    """Write ``out[i] = sum_j x[j]`` over the entries j of each row of a range.

    Parameters
    ----------
    indptr : ndarray of int64, shape (N + 1,)
    indices : ndarray of unsigned int, shape (nnz,)
    x : ndarray of shape (d,)
    out : ndarray of shape (N,)
    start, stop : int
        Row range.
    """
    multiply_csr_rows(indptr, 0, indices, None, x, 0, out, start, stop)


@kernel
def pattern_products(indptr, indices, x, out, start, stop):
    """As :func:`pattern_product` for several x, of shape (C, d), and ``out`` of shape (C, N)."""
    multiply_csr_rows_of_each(indptr, indices, None, x, out, start, stop)


@kernel
def pattern_accumulate_transposed(indptr, indices, v, out, start, stop):
    """Add ``v[i]`` to ``out[j]``, of shape (d,), for the entries j of each row i of a range."""
    add_csr_rows(indptr, 0, indices, None, v, 0, out, start, stop)


@kernel
def pattern_hessian_product(indptr, indices, x, weight, out, start, stop):
    """As :func:`fastadmm.kernels.csr.csr_hessian_product` where all entries are one.

    Parameters
    ----------
    indptr : ndarray of int64, shape (N + 1,)
    indices : ndarray of unsigned int, shape (nnz,)
    x : ndarray of shape (d,)
    weight : ndarray of shape (N,)
    out : ndarray of shape (d,)
    start, stop : int
        Row range.
    """
    pass_rows(indptr, indices, None, x, weight, out, start, stop)


@kernel
def pattern_accumulate_gram(indptr, indices, weight, out, start, stop):
    """Add ``weight[i]`` to the upper triangle of ``out``, of shape (d, d), for pairs of entries of row i."""
    for i in range(start, stop):
        end, scale = np.uint64(indptr[i + 1]), weight[i]
        if scale == 0.0:
            continue
        for a in range(np.uint64(indptr[i]), end):
            row = out[indices[a]]
            for b in range(a, end):
                row[indices[b]] += scale

"""Weighted Gram matrices of dense rows, piece by piece without the interpreter in between."""

from __future__ import annotations

import numpy as np
from fastadmm.kernels.blas import add_columns
from fastadmm.kernels.policy import kernel

__all__ = ["dense_gram", "rough_dense_gram"]


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

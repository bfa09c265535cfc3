r"""``D.T v`` as if it were added up in twice the precision.

Ogita, Rump and Oishi (2005), *Accurate sum and dot product*.

Each column has a sum and the sum of what its roundings lost. Both together are off by at most
:math:`u |s| + \gamma_n^2 \sum_i |D_{ij} v_i|`.
"""

from __future__ import annotations

from fastadmm.kernels.fused_multiply_add import fma
from fastadmm.kernels.policy import inline, kernel

__all__ = ["csr_compensated_images", "dense_compensated_images"]


@inline
def _add(entry, factor, high, low, j):
    """Add a product to column j."""
    product = entry * factor
    lost = fma(entry, factor, -product)
    before = high[j]
    total = before + product
    back = total - before
    high[j] = total
    low[j] += lost + ((before - (total - back)) + (product - back))


@kernel
def dense_compensated_images(matrix, v, sums, start, stop):
    """Add ``D.T v`` over a range of rows.

    Parameters
    ----------
    matrix : ndarray of shape (N, d)
        C-contiguous.
    v : ndarray of shape (N,)
    sums : ndarray of shape (2, d)
        Added to: sums, and what rounding lost of them.
    start, stop : int
        Row range.
    """
    high, low = sums[0], sums[1]
    for i in range(start, stop):
        row = matrix[i]
        for j in range(len(high)):
            _add(row[j], v[i], high, low, j)


@kernel
def csr_compensated_images(indptr, indices, data, v, sums, start, stop):
    """The same of compressed rows.

    Parameters
    ----------
    indptr : ndarray of int64, shape (N + 1,)
    indices : ndarray of unsigned int, shape (nnz,)
    data : ndarray of shape (nnz,)
    v, sums, start, stop
        As of :func:`dense_compensated_images`.
    """
    high, low = sums[0], sums[1]
    for i in range(start, stop):
        for k in range(indptr[i], indptr[i + 1]):
            _add(data[k], v[i], high, low, indices[k])

r"""Products as if they were added up in twice the precision.

Ogita, Rump and Oishi (2005), *Accurate sum and dot product*: a sum, and the sum of what its roundings lost.
Both together are off by at most :math:`u |s| + \gamma_n^2 \sum_i |a_i b_i|`.

And the sums over the rows that a proof needs, in one pass.
"""

from fastadmm.kernels.fused_multiply_add import fma
from fastadmm.kernels.policy import inline, kernel


@inline
def _add(entry, factor, high, low):
    """A sum and what it lost, with one product more."""
    product = entry * factor
    lost = fma(entry, factor, -product)
    total = high + product
    back = total - high
    return total, low + (lost + ((high - (total - back)) + (product - back)))


@kernel
def dense_compensated_product(matrix, x, out, start, stop):
    """Write ``D x`` for a range of rows.

    Parameters
    ----------
    matrix : ndarray of shape (N, d)
        C-contiguous.
    x : ndarray of shape (d,)
    out : ndarray of shape (N,)
    start, stop : int
    """
    for i in range(start, stop):
        high, low = 0.0, 0.0
        for j in range(len(x)):
            high, low = _add(matrix[i, j], x[j], high, low)
        out[i] = high + low


@kernel
def csr_compensated_product(indptr, indices, data, x, out, start, stop):
    """Products with compressed rows, with compensated sums, over a range of rows.

    Parameters
    ----------
    indptr : ndarray of int64, shape (N + 1,)
    indices : ndarray of unsigned int, shape (nnz,)
    data : ndarray of shape (nnz,)
    x, out, start, stop
        As of :func:`dense_compensated_product`.
    """
    for i in range(start, stop):
        high, low = 0.0, 0.0
        for k in range(indptr[i], indptr[i + 1]):
            high, low = _add(data[k], x[indices[k]], high, low)
        out[i] = high + low


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
    """
    high, low = sums[0], sums[1]
    for i in range(start, stop):
        row = matrix[i]
        for j in range(len(high)):
            high[j], low[j] = _add(row[j], v[i], high[j], low[j])


@kernel
def csr_compensated_images(indptr, indices, data, v, sums, start, stop):
    """Products with compressed rows, with compensated sums, over a range of rows.

    Parameters
    ----------
    indptr, indices, data
        As of :func:`csr_compensated_product`.
    v, sums, start, stop
        As of :func:`dense_compensated_images`.
    """
    high, low = sums[0], sums[1]
    for i in range(start, stop):
        for k in range(indptr[i], indptr[i + 1]):
            j = indices[k]
            high[j], low[j] = _add(data[k], v[i], high[j], low[j])


#: Rows that are added up at once.
_BLOCK = 512


@kernel
def proof_sums(u, total, z, knots, weight, offset, sums, start, stop):
    """Add up products of a proof's vectors over a range of rows.

    Parameters
    ----------
    u, total, z, offset : ndarray of shape (C, N)
        Dual vector, sum of the messages, predictor, offset.
    knots : ndarray of shape (N,) or (0,)
        What is subtracted from every class's z; nothing where it is empty.
    weight : ndarray of shape (N,)
    sums : ndarray of shape (7,)
        Added to: u times total, u times z, and squares of u, z, total, weight and offset.
    start, stop : int
    """
    shifted = len(knots) > 0
    for begin in range(start, stop, _BLOCK):
        end = min(begin + _BLOCK, stop)
        square = 0.0
        for i in range(begin, end):
            square = fma(weight[i], weight[i], square)
        sums[5] += square
        for c in range(len(u)):
            a, b, d, e, f, g = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
            for i in range(begin, end):
                v, m, p, o = u[c, i], total[c, i], z[c, i], offset[c, i]
                if shifted:
                    p -= knots[i]
                a = fma(v, m, a)
                b = fma(v, p, b)
                d = fma(v, v, d)
                e = fma(p, p, e)
                f = fma(m, m, f)
                g = fma(o, o, g)
            sums[0] += a
            sums[1] += b
            sums[2] += d
            sums[3] += e
            sums[4] += f
            sums[6] += g

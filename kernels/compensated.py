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
    """Write ``D x`` for a range of rows. Shapes: matrix (N, d); x (d,); out (N,)."""
    for i in range(start, stop):
        high, low = 0.0, 0.0
        for j in range(len(x)):
            high, low = _add(matrix[i, j], x[j], high, low)
        out[i] = high + low


@kernel
def csr_compensated_product(indptr, indices, data, x, out, start, stop):
    """As :func:`dense_compensated_product` for compressed rows. Shapes: x (d,); out (N,)."""
    for i in range(start, stop):
        high, low = 0.0, 0.0
        for k in range(indptr[i], indptr[i + 1]):
            high, low = _add(data[k], x[indices[k]], high, low)
        out[i] = high + low


@kernel
def dense_compensated_images(matrix, v, sums, start, stop):
    """Add ``D.T v`` over a range of rows.

    Shapes: matrix (N, d); v (N,); sums (2, d).
    ``sums``: added to: sums, and what rounding lost of them.
    """
    high, low = sums[0], sums[1]
    for i in range(start, stop):
        row = matrix[i]
        for j in range(len(high)):
            high[j], low[j] = _add(row[j], v[i], high[j], low[j])


@kernel
def csr_compensated_images(indptr, indices, data, v, sums, start, stop):
    """Products with compressed rows, with compensated sums, over a range of rows.

    Others as of :func:`csr_compensated_product` and as of :func:`dense_compensated_images`.
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

    Shapes: u, total, z, offset (C, N); knots (N,) or (0,); weight (N,); sums (7,).
    ``u``, ``total``, ``z``, ``offset``: dual vector, sum of the messages, predictor, offset. ``knots``: what
    is subtracted from every class's z; nothing where it is empty. ``sums``: added to: u times total, u times
    z, and squares of u, z, total, weight and offset.
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

"""Sums over the rows that a proof needs, in one pass."""

from fastadmm.kernels.fused_multiply_add import fma
from fastadmm.kernels.policy import kernel

__all__ = ["proof_sums"]

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
        Row range.
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

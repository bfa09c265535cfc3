"""Sums of vectors row by row, and over rows.

Inner products over rows are ours, not of BLAS: on old processors its order of addition depends on whether an
address is a multiple of 16, and rows of one problem lie elsewhere in every process.
"""

import numpy as np
from fastadmm.kernels.block_sum import BLOCK
from fastadmm.kernels.fused_multiply_add import fma
from fastadmm.kernels.policy import inline, kernel

#: Sums side by side, so that neighbouring rows are added in one instruction. A power of two.
LANES = 64


@inline
def dot(u, v, sums):
    """Inner product of u and v, of one length; ``sums`` of shape (LANES,) is written to."""
    for k in range(LANES):
        sums[k] = 0.0
    whole = len(u) - len(u) % LANES
    for begin in range(0, whole, LANES):
        a, b = u[begin : begin + LANES], v[begin : begin + LANES]
        for k in range(LANES):
            sums[k] = fma(a[k], b[k], sums[k])
    a, b = u[whole:], v[whole:]
    for k in range(len(a)):
        sums[k] = fma(a[k], b[k], sums[k])
    width = LANES // 2
    while width > 0:
        for k in range(width):
            sums[k] += sums[k + width]
        width //= 2
    return sums[0]


@kernel
def products(rows, v, out, start, stop):
    """Add inner products of ``rows``, of shape (K, s, N), with v of shape (s, N) to ``out`` of shape (K,)."""
    sums = np.empty(LANES)
    for k in range(len(rows)):
        for j in range(len(v)):
            out[k] += dot(rows[k, j, start:stop], v[j, start:stop], sums)


@kernel
def shifted_sum(first, factor, second, shift, scale, out, start, stop):
    """Write ``(first + factor * second + shift) * scale``, added in this order.

    Shapes: first, second, out (N,).
    ``first``, ``second``, ``out``: the output may be one of the others.
    """
    one, other, own = first[start:stop], second[start:stop], out[start:stop]
    for k in range(stop - start):
        own[k] = (fma(factor, other[k], one[k]) + shift) * scale


@kernel
def copy(v, out, start, stop):
    """Write the numbers of v, of shape (N,)."""
    own, out = v[start:stop], out[start:stop]
    for k in range(stop - start):
        out[k] = own[k]


@kernel
def chosen(vectors, numbers, factors, out, start, stop):
    """Write the numbers with places ``numbers`` of each vector, times its factor, to a row of ``out``."""
    for k, v in enumerate(vectors):
        own, factor = out[k], factors[k]
        for i in range(start, stop):
            own[i] = factor * v[numbers[i]]


@kernel
def add_squares(rows, out, start, stop):
    """Add the squares of ``rows``, of shape (K, N), to ``out`` of shape (N,)."""
    for begin in range(start, stop, BLOCK):
        end = min(begin + BLOCK, stop)
        total = out[begin:end]
        for k in range(len(rows)):
            own = rows[k, begin:end]
            for j in range(end - begin):
                total[j] = fma(own[j], own[j], total[j])


@kernel
def total_and_size(v, out, start, stop):
    """Add the sum of a vector's numbers, and that of their absolute values, to two sums.

    Shapes: v (N,); out (2,).
    """
    total, size = np.zeros(LANES), np.zeros(LANES)
    for begin in range(start, stop, LANES):
        own = v[begin : min(begin + LANES, stop)]
        for k in range(len(own)):
            total[k] += own[k]
            size[k] += abs(own[k])
    width = LANES // 2
    while width > 0:
        for k in range(width):
            total[k] += total[k + width]
            size[k] += size[k + width]
        width //= 2
    out[0] += total[0]
    out[1] += size[0]


#: Golden ratio times 2**64: products with it are spread evenly, and high bits more than low ones.
_FACTOR, _LOW_BITS = np.uint64(0x9E3779B97F4A7C15), np.uint64(33)


@kernel
def row_of_each(begin, stride, first_row, out, start, stop):
    """Write the row of each window from ``begin + start`` on, less ``first_row``, to a range of ``out``.

    Shapes: out (n_windows,) of int64.
    ``begin``: number of the window whose row is ``out[0]``. ``stride``: rows of a window. ``start``,
    ``stop``: range of ``out``.
    """
    # Arrays: without the compiler a number warns of the overflow that is meant.
    windows, width = np.arange(begin + start, begin + stop).astype(np.uint64), np.uint64(stride)
    inside = ((windows * _FACTOR) >> _LOW_BITS) % width
    rows = (windows * width + inside).astype(np.int64)
    for k in range(stop - start):  # an assignment of arrays takes a second to compile
        out[start + k] = rows[k] - first_row

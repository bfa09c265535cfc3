"""States of several vectors of N numbers, one behind another, and differences that Anderson keeps of them."""

import numpy as np
from fastadmm.kernels.block_sum import BLOCK
from fastadmm.kernels.policy import kernel
from fastadmm.kernels.vectors import LANES, dot


@kernel
def weighted_products(rows, v, weights, n, out, start, stop):
    """Add ``sum_j weights[j] <rows[k, j], v[j]>`` to ``out[k]``.

    Shapes: rows (K, size); v (size,); weights (s,); out (K,).
    ``rows``: in each the vectors j, of n numbers, one behind another. ``weights``: of the first s vectors.
    ``start``, ``stop``: range of every vector.
    """
    sums = np.empty(LANES)
    for begin in range(start, stop, 8 * BLOCK):  # of v, which all rows meet, so much stays in a cache
        end = min(begin + 8 * BLOCK, stop)
        for j in range(len(weights)):
            own = v[j * n + begin : j * n + end]
            for k in range(len(rows)):
                out[k] += weights[j] * dot(rows[k, j * n + begin : j * n + end], own, sums)


@kernel
def products_in_metrics(rows, v, metrics, which, n, out, start, stop):
    """Add ``sum_j <rows[k, j], metrics[which[j]] v[j]>`` to ``out[k]``.

    Shapes: each of metrics (n,); which (s,) of int64.
    ``which``: of the first s vectors. Others as of :func:`weighted_products`.
    """
    sums, work = np.empty(LANES), np.empty(8 * BLOCK)
    for begin in range(start, stop, 8 * BLOCK):
        end = min(begin + 8 * BLOCK, stop)
        weighed = work[: end - begin]
        for j in range(len(which)):
            own, metric = v[j * n + begin : j * n + end], metrics[which[j]][begin:end]
            for i in range(end - begin):
                weighed[i] = metric[i] * own[i]
            for k in range(len(rows)):
                out[k] += dot(rows[k, j * n + begin : j * n + end], weighed, sums)


@kernel
def replace_last(new, last, differences, start, stop):
    """Write ``new - last`` to ``differences``, and ``new`` to ``last``: tuples of arrays of shape (size,)."""
    for j in range(len(new)):
        own, old, out = new[j][start:stop], last[j][start:stop], differences[j][start:stop]
        for k in range(stop - start):
            out[k] = own[k] - old[k]
            old[k] = own[k]


@kernel
def less_combination(given, weights, rows, out, start, stop):
    """Write ``given - weights @ rows``, of shape (size,), for rows of shape (K, size)."""
    work = np.empty(BLOCK)
    for begin in range(start, stop, BLOCK):
        end = min(begin + BLOCK, stop)
        for k in range(end - begin):
            work[k] = 0.0
        for j in range(len(weights)):
            weight, row = weights[j], rows[j, begin:end]
            for k in range(end - begin):
                work[k] += weight * row[k]
        first, own = given[begin:end], out[begin:end]
        for k in range(end - begin):
            own[k] = first[k] - work[k]

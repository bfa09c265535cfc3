r"""Coordinate ascent on the dual problem of squared l2: each step solves for one row (Shalev-Shwartz and Zhang 2013).

The dual vector u keeps the weights at :math:`x = -D^\top u / (\lambda W)`. A step puts the best number for one
row in its place, the others fixed: with :math:`q = \|d_i\|^2 / (\lambda W)` that is the gradient at the
proximal point of :math:`s_i \ell` about :math:`d_i^\top x + q u_i`, with penalty :math:`1 / q`. A row costs
its entries twice.

An intercept is a weight of a column of equal numbers, which pulls at it as at any other; but what it pulls to is
moved to where the intercept is before each pass. These are multipliers for :math:`\sum_i u_i = 0`, and in the
end nothing pulls.
"""

from __future__ import annotations

import numpy as np
from fastadmm.kernels.pieces import call_kernel
from fastadmm.kernels.policy import kernel
from fastadmm.kernels.shuffle import shuffle

__all__ = ["ascend_rows", "square_rows"]


@kernel
def ascend_rows(prox, extra, rows, squares, labels, scale, lead, seed, order, u, x, intercept):
    r"""One pass over the rows in a new order.

    Parameters
    ----------
    prox : int
        Address of the loss's ``prox_of_row``.
    extra : tuple of float
        The loss's parameters.
    rows : tuple of ndarray
        ``indptr``, ``indices`` and ``data`` of D, as in :mod:`fastadmm.kernels.csr`.
    squares : ndarray of shape (N,)
        Squared length of each row, with ``lead``; positive where a row is in ``order``.
    labels : tuple of ndarray of shape (N,)
        Targets, weights s and offset.
    scale : float
        :math:`\lambda W`.
    lead : float
        Square of the intercept's column; 0 without one.
    seed : int
        Of the order.
    order : ndarray of int64
        The rows to be visited; shuffled.
    u, x : ndarray of shape (N,), (d,)
        Dual vector and weights; changed.
    intercept : float

    Returns
    -------
    rise : float
        What the pass added to the dual objective at least.
    intercept : float
    """
    indptr, indices, data = rows
    target, weight, base = labels
    found, rise = np.zeros(1), 0.0
    shuffle(order, len(order), np.uint64(seed))
    for i in order:
        begin, end = np.uint64(indptr[i]), np.uint64(indptr[i + 1])
        here = base[i] + intercept
        for k in range(begin, end):  # plain loops: groups of eight wait for what the row before wrote
            here += data[k] * x[indices[k]]
        penalty = scale / squares[i]
        call_kernel(prox, (here + u[i] / penalty, here, target[i], weight[i], *extra, penalty, found))
        change = found[0] - u[i]
        if change != 0.0:
            u[i] = found[0]
            rise += 0.5 * change * change / penalty
            step = -change / scale
            intercept += lead * step
            for k in range(begin, end):
                x[indices[k]] += data[k] * step
    return rise, intercept


@kernel
def square_rows(indptr, data, out, start, stop):
    """Write the squared length of every row of a range to ``out`` of shape (N,)."""
    for i in range(start, stop):
        total = 0.0
        for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            total += data[k] * data[k]
        out[i] = total

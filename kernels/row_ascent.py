r"""Dual coordinate ascent for squared l2: a step solves for one row.

The weights are kept at :math:`x = -D^\top u / (\lambda W)` (Shalev-Shwartz and Zhang 2013). A
step sets :math:`u_i` of one row to its best value, with all others fixed: with
:math:`q = \|d_i\|^2 / (\lambda W)` that is the gradient at the proximal point of :math:`s_i \ell` about
:math:`d_i^\top x + q u_i`, with penalty :math:`1 / q`. A row's entries are read twice.

An intercept is the weight of one more column, with the same number in every row. It has a proximal term whose
centre moves to the intercept before each pass, so that the term vanishes in the end: this is the method of
multipliers for :math:`\sum_i u_i = 0`, and the column's length determines how fast they move.
"""

import numpy as np
from fastadmm.kernels.coordinate_descent import shuffle
from fastadmm.kernels.fused_multiply_add import fma
from fastadmm.kernels.pieces import call_kernel
from fastadmm.kernels.policy import inline, kernel, spliced
from fastadmm.kernels.vectors import LANES, dot

#: Neighbouring rows that stay together in every order: read from memory one by one, they take twice as long.
_GROUP = 8


@inline
def _csr_product(rows, i, x, room):
    indptr, indices, data = rows
    total = 0.0
    for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
        total += data[k] * x[indices[k]]  # groups of eight would wait for what the row before wrote
    return total


@inline
def _add_csr(rows, i, step, x):
    indptr, indices, data = rows
    for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
        x[indices[k]] += data[k] * step


@inline
def _dense_product(matrix, i, x, room):
    return dot(matrix[i], x, room)


@inline
def _add_dense(matrix, i, step, x):
    own = matrix[i]
    for j in range(len(own)):
        x[j] = fma(own[j], step, x[j])


@spliced
def _ascend(product, add, about, scale, lead, seed, order, u, x, intercept):
    prox, extra, rows, squares, labels = about
    target, weight, base = labels
    found, room, rise = np.zeros(1), np.empty(LANES), 0.0
    groups = np.arange(-(-len(order) // _GROUP))
    shuffle(groups, len(groups), np.uint64(seed))
    for group in groups:
        for i in order[group * _GROUP : (group + 1) * _GROUP]:
            here = product(rows, i, x, room) + (base[i] + intercept)
            penalty = scale / squares[i]
            call_kernel(prox, (here + u[i] / penalty, here, target[i], weight[i], extra, penalty, found))
            change = found[0] - u[i]
            if change != 0.0:
                u[i] = found[0]
                rise += 0.5 * change * change / penalty
                step = -change / scale
                intercept += lead * step
                add(rows, i, step, x)
    return rise, intercept


@kernel
def ascend_rows(prox, extra, rows, squares, labels, scale, lead, seed, order, u, x, intercept):
    r"""One pass over the rows in a new order.

    Shapes: squares (N,); each of labels (N,); order (at most N,) of int64; u, x (N,), (d,).
    ``prox``: address of the loss's ``prox_of_row``. ``rows``: ``indptr``, ``indices`` and ``data`` of D, as
    in :mod:`fastadmm.kernels.csr`. ``squares``: squared length of each row, with ``lead``; positive where a
    row is in ``order``. ``labels``: targets, weights s and offset. ``scale``: :math:`\lambda W`. ``lead``:
    square of the intercept's column; 0 without one. ``seed``: of the order. ``order``: the rows to be
    visited, in groups of neighbours. ``u``, ``x``: dual vector and weights; changed.
    Returns: what the pass added to the dual objective at least.
    """
    about = prox, extra, rows, squares, labels
    return _ascend(_csr_product, _add_csr, about, scale, lead, seed, order, u, x, intercept)


@kernel
def ascend_dense_rows(prox, extra, rows, squares, labels, scale, lead, seed, order, u, x, intercept):
    """As :func:`ascend_rows`, where ``rows`` is a matrix of shape (N, d)."""
    about = prox, extra, rows, squares, labels
    return _ascend(_dense_product, _add_dense, about, scale, lead, seed, order, u, x, intercept)


@kernel
def square_rows(indptr, data, out, start, stop):
    """Write the squared length of every row of a range to ``out`` of shape (N,)."""
    for i in range(start, stop):
        total = 0.0
        for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            total += data[k] * data[k]
        out[i] = total


@kernel
def square_dense_rows(matrix, out, start, stop):
    """As :func:`square_rows` for a matrix of shape (N, d)."""
    room = np.empty(LANES)
    for i in range(start, stop):
        out[i] = dot(matrix[i], matrix[i], room)

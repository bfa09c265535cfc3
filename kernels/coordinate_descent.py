r"""Coordinate descent on sparse columns: proximal Newton steps that never form a Hessian.

A step minimises :math:`\langle s, m\rangle + \tfrac12 \|A m\|^2 + h(x + m)` over some columns, where
:math:`A = H^{1/2} D` and h is a sum over weights (Yuan, Ho and Lin 2012). The image :math:`A m` is kept: a
weight costs the entries of its column, twice if it moves. Columns are stored one after the other, as rows are
in :mod:`fastadmm.kernels.csr`.

An intercept, a column of ones, is eliminated: with :math:`t = A^\top H^{1/2} 1` and
:math:`H_0 = \sum_i H_i` nothing is left of it but :math:`t_j / H_0` times :math:`t^\top m`.
"""

from __future__ import annotations

import math

import numpy as np
from fastadmm.kernels.policy import kernel
from fastadmm.kernels.shuffle import shuffle

__all__ = ["add_columns", "column_products", "descend_columns", "scale_columns"]

#: Share of a column's square that is rounding, where an intercept takes away the rest.
_NOTHING = 1e-12


@kernel
def add_columns(indptr, rows, data, x, out):
    """Add ``D x`` to ``out`` of shape (N,); only columns whose weight is not zero are read."""
    for j in range(len(x)):
        if x[j] != 0.0:
            for k in range(np.uint64(indptr[j]), np.uint64(indptr[j + 1])):
                out[rows[k]] += x[j] * data[k]


@kernel
def column_products(indptr, rows, data, v, out, start, stop):
    """Write ``D.T v`` for a range of columns to ``out`` of shape (d,)."""
    for j in range(start, stop):
        total = 0.0
        for k in range(np.uint64(indptr[j]), np.uint64(indptr[j + 1])):
            total += data[k] * v[rows[k]]
        out[j] = total


@kernel
def scale_columns(indptr, rows, data, root, chosen, scaled, squares, cross, start, stop):
    """Make A of some columns.

    Parameters
    ----------
    indptr : ndarray of int64, shape (d + 1,)
    rows : ndarray of unsigned int, shape (nnz,)
    data : ndarray of shape (nnz,)
        D.
    root : ndarray of shape (N,)
        Square roots of H.
    chosen : ndarray of int64, shape (c,)
    scaled : ndarray of shape (nnz,)
        A, where it is written to.
    squares, cross : ndarray of shape (d,)
        Written to: squared lengths of A's columns, and t.
    start, stop : int
        Range of ``chosen``.
    """
    for place in range(start, stop):
        j = chosen[place]
        square, product = 0.0, 0.0
        for k in range(np.uint64(indptr[j]), np.uint64(indptr[j + 1])):
            weight = root[rows[k]]
            scaled[k] = weight * data[k]
            square += scaled[k] * scaled[k]
            product += weight * scaled[k]
        squares[j], cross[j] = square, product


@kernel
def descend_columns(columns, sizes, intercept, slope, terms, chosen, x, share, most, image):
    r"""Passes over some columns, in an order that is shuffled anew for each, in place.

    Parameters
    ----------
    columns : tuple
        ``indptr``, ``rows`` and ``scaled`` of :func:`scale_columns`.
    sizes : tuple
        ``squares`` and ``cross`` of it.
    intercept : tuple of float
        H_0, 0 without one, and the slope in it.
    slope : ndarray of shape (d,)
        s.
    terms : tuple of ndarray of shape (d,)
        l_1, l_2 and bounds of :math:`h(x) = \sum_j l_{1j} |x_j| + \tfrac{l_{2j}}2 x_j^2` on a box.
    chosen : ndarray of int64, shape (c,)
        Reordered.
    x : ndarray of shape (d,)
        Weights; moved.
    share : float
        The last pass moves no weight by more than this share of what the first did, each in units of the root
        of its curvature.
    most : int
        Passes.
    image : ndarray of shape (N,)
        In: zero. Out: A m, with what the intercept is left out.

    Returns
    -------
    passes : int
    along : float
        ``t @ m``.
    """
    indptr, rows, scaled = columns
    squares, cross = sizes
    whole, first = intercept
    l1, l2, low, high = terms
    state, along, left, wide, worst, limit = np.uint64(len(chosen)), 0.0, len(chosen), math.inf, 0.0, 0.0
    for number in range(most):
        state = shuffle(chosen, left, state)
        worst, widest, place = 0.0, 0.0, 0
        while place < left:
            j = chosen[place]
            own, gradient = squares[j], slope[j]
            if whole > 0.0:
                own -= cross[j] * cross[j] / whole
                gradient -= cross[j] * (first + along) / whole
            for k in range(np.uint64(indptr[j]), np.uint64(indptr[j + 1])):
                gradient += scaled[k] * image[rows[k]]
            curvature, old = own + l2[j], x[j]
            centre, new = own * old - gradient, 0.0
            if curvature > _NOTHING * (squares[j] + l2[j]):  # else the column is empty, or an intercept
                new = max(abs(centre) - l1[j], 0.0) / curvature
            new = min(max(-new if centre < 0.0 else new, low[j]), high[j])
            step = new - old
            if step == 0.0:
                if old == 0.0 and abs(gradient) + wide < l1[j]:  # far from moving: not in this step again
                    left -= 1
                    chosen[place], chosen[left] = chosen[left], chosen[place]
                else:
                    place += 1
                continue
            x[j] = new
            along += step * cross[j]
            for k in range(np.uint64(indptr[j]), np.uint64(indptr[j + 1])):
                image[rows[k]] += step * scaled[k]
            worst = max(worst, abs(step) * math.sqrt(max(curvature, 0.0)))
            widest = max(widest, abs(step) * curvature)
            place += 1
        wide = widest
        if number == 0:
            limit = share * worst
        if worst <= limit:
            return number + 1, along
    return most, along

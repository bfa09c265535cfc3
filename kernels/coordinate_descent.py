r"""Coordinate descent on columns: proximal Newton steps that never form a Hessian.

A step minimises :math:`\langle s, m\rangle + \tfrac12 \|A m\|^2 + h(x + m)` over some columns, where
:math:`A = H^{1/2} D` and h is a sum over weights (Yuan, Ho and Lin 2012). The image :math:`A m` is kept: a
weight costs the entries of its column, twice if it moves. Columns are stored one after the other, as rows are
in :mod:`fastadmm.kernels.csr`; of dense ones ``rows`` is empty, and each has all N entries.

An intercept, a column of ones, is eliminated: with :math:`t = A^\top H^{1/2} 1` and
:math:`H_0 = \sum_i H_i` it remains only as the term :math:`(t_j / H_0)\, t^\top m`.
"""

import math

import numpy as np
from fastadmm.kernels.fused_multiply_add import fma
from fastadmm.kernels.policy import inline, kernel
from fastadmm.kernels.vectors import LANES, dot

#: Rounding of a column's squared length, relative to it, once the intercept is eliminated.
_NOTHING = 1e-12


@inline
def column_product(rows, data, begin, end, v, sums):
    """Inner product of a column and v of shape (N,)."""
    if len(rows) == 0:
        return dot(data[begin:end], v, sums)
    total = 0.0
    for k in range(np.uint64(begin), np.uint64(end)):
        total += data[k] * v[rows[k]]
    return total


@inline
def _add(rows, data, begin, end, factor, out):
    """Add a column times a factor to ``out`` of shape (N,)."""
    if len(rows) == 0:
        column = data[begin:end]
        for k in range(len(column)):
            out[k] = fma(factor, column[k], out[k])
    else:
        for k in range(np.uint64(begin), np.uint64(end)):
            out[rows[k]] += factor * data[k]


@kernel
def add_columns(indptr, rows, data, x, out):
    """Add ``D x`` to ``out`` of shape (N,); only columns whose weight is not zero are read."""
    for j in range(len(x)):
        if x[j] != 0.0:
            _add(rows, data, indptr[j], indptr[j + 1], x[j], out)


@kernel
def column_squares(indptr, data, out, start, stop):
    """Write the squared lengths of a range of columns to ``out`` of shape (d,)."""
    sums = np.empty(LANES)
    for j in range(start, stop):
        own = data[indptr[j] : indptr[j + 1]]
        out[j] = dot(own, own, sums)


@kernel
def scale_columns(indptr, rows, data, root, chosen, scaled, squares, cross, start, stop):
    """Make A of some columns.

    Shapes: indptr (d + 1,); rows (nnz,) of unsigned int; root (N,); chosen (c,) of int64; scaled (nnz,);
    squares, cross (d,).
    ``root``: square roots of H. ``scaled``: A, where it is written to. ``squares``, ``cross``: written to:
    squared lengths of A's columns, and t. ``start``, ``stop``: range of ``chosen``.
    """
    dense = len(rows) == 0
    for place in range(start, stop):
        j = chosen[place]
        square, product = 0.0, 0.0
        for k in range(np.uint64(indptr[j]), np.uint64(indptr[j + 1])):
            weight = root[k - np.uint64(indptr[j])] if dense else root[rows[k]]
            scaled[k] = weight * data[k]
            square += scaled[k] * scaled[k]
            product += weight * scaled[k]
        squares[j], cross[j] = square, product


@kernel
def descend_columns(columns, sizes, intercept, slope, terms, chosen, wide, x, image, moved):
    r"""A pass over some columns, in place.

    Shapes: slope (d,); chosen (c,) of int64; x (d,); image (N,); moved (3,).
    ``columns``: ``indptr``, ``rows`` and ``scaled`` of :func:`scale_columns`. ``sizes``: ``squares`` and
    ``cross`` of it. ``intercept``: H_0, 0 without one, and the slope in it. ``slope``: s. ``terms``: l_1, l_2
    and bounds of :math:`h(x) = \sum_j l_1 |x_j| + \tfrac{l_2}2 x_j^2` on a box. ``chosen``: in this order.
    Out: first those that are not left out of the next pass, in the same order. ``wide``: a weight at zero
    that is further than this from moving is left out. ``x``: weights; moved. ``image``: A m, with what the
    intercept is left out. ``moved``: Out: largest move in units of the root of its curvature, and in units of
    the slope; in and out: ``t @ m``.
    Returns: how many are not left out.
    """
    indptr, rows, scaled = columns
    squares, cross = sizes
    whole, first = intercept
    l1, l2, low, high = terms
    sums, kept, worst, widest, along = np.empty(LANES), 0, 0.0, 0.0, moved[2]
    for place in range(len(chosen)):
        j = chosen[place]
        own, gradient = squares[j], slope[j]
        if whole > 0.0:
            own -= cross[j] * cross[j] / whole
            gradient -= cross[j] * (first + along) / whole
        gradient += column_product(rows, scaled, indptr[j], indptr[j + 1], image, sums)
        curvature, old = own + l2, x[j]
        centre, new = own * old - gradient, 0.0
        if curvature > _NOTHING * (squares[j] + l2):  # else the column is empty, or an intercept
            new = max(abs(centre) - l1, 0.0) / curvature
        new = min(max(-new if centre < 0.0 else new, low), high)
        step = new - old
        if step != 0.0 or old != 0.0 or abs(gradient) + wide >= l1:
            chosen[kept] = j
            kept += 1
        if step != 0.0:
            x[j] = new
            along += step * cross[j]
            _add(rows, scaled, indptr[j], indptr[j + 1], step, image)
            worst = max(worst, abs(step) * math.sqrt(max(curvature, 0.0)))
            widest = max(widest, abs(step) * curvature)
    moved[0], moved[1], moved[2] = worst, widest, along
    return kept


@kernel
def shuffle_columns(chosen):
    """Shuffle column numbers, the same way everywhere."""
    shuffle(chosen, len(chosen), np.uint64(len(chosen)))


#: Multiplier and increment of a linear congruential generator (Knuth's MMIX).
_MULTIPLIER, _INCREMENT = np.uint64(6364136223846793005), np.uint64(1442695040888963407)


@inline
def shuffle(numbers, count, state):
    """Shuffle the first ``count`` of some numbers (Fisher and Yates), the same way everywhere.

    Shapes: numbers (n,) of int64.
    ``state``: of the generator.
    Returns: the generator's next state.
    """
    for place in range(count - 1, 0, -1):
        state = state * _MULTIPLIER + _INCREMENT
        other = np.int64((state >> np.uint64(33)) % np.uint64(place + 1))
        numbers[place], numbers[other] = numbers[other], numbers[place]
    return state

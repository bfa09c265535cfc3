r"""Coordinate descent on columns for the multinomial loss: all classes' weights of a column together.

A step minimises :math:`\langle s, m\rangle + \tfrac12 \sum_i q_i^\top W_i q_i + h(x + m)` with predictors
:math:`q_i = m\, d_i` and the softmax's :math:`W_i = s_i\,(\mathrm{diag}(p_i) - p_i p_i^\top)`. The image
:math:`W_i q_i` is kept, class by class: a column costs its entries times C, more if it moves. Columns are as
in :mod:`fastadmm.kernels.coordinate_descent`.

The C intercepts are eliminated: with :math:`T_j = \sum_i d_{ij} W_i` and :math:`W = \sum_i W_i` they remain
only as the term :math:`T_j W^+ \sum_k T_k m_k`.
"""

import math

import numpy as np
from fastadmm.kernels.coordinate_descent import column_product
from fastadmm.kernels.policy import inline, kernel
from fastadmm.kernels.vectors import LANES

#: Passes over a column's classes, and the share of the first one's moves that the last may make.
_SWEEPS, _SHARE = 10, 0.01


@inline
def _row(rows, k, begin):
    """Row of an entry."""
    return np.int64(k - begin) if len(rows) == 0 else np.int64(rows[k])


@kernel
def class_blocks(indptr, rows, data, likely, bend, chosen, blocks, cross, start, stop):
    r"""Curvature of some columns, in all pairs of classes.

    Shapes: likely, bend (C, N); chosen (c,) of int64; blocks, cross (c, C, C).
    ``indptr``, ``rows``, ``data``: D, as of :func:`fastadmm.kernels.coordinate_descent.scale_columns`.
    ``likely``, ``bend``: p and s p. ``blocks``, ``cross``: written to: :math:`\sum_i d_ij^2 W_i` and T of
    each. ``start``, ``stop``: range of ``chosen``.
    """
    n_classes = len(likely)
    for place in range(start, stop):
        begin, end = indptr[chosen[place]], indptr[chosen[place] + 1]
        block, own = blocks[place], cross[place]
        block[:], own[:] = 0.0, 0.0
        for c in range(n_classes):
            for e in range(c):
                square, product = 0.0, 0.0
                for k in range(begin, end):
                    i = _row(rows, k, begin)
                    weight = bend[c, i] * likely[e, i] * data[k]
                    product += weight
                    square += weight * data[k]
                # What a class gains others lose: so 1 - p has no rounding.
                block[c, e] = block[e, c] = -square
                own[c, e] = own[e, c] = -product
                block[c, c] += square
                block[e, e] += square
                own[c, c] += product
                own[e, e] += product


@inline
def _shift(y, ranked, l1, l2):
    """The best constant to subtract from a column's weights; of several the nearest to 0 that zeroes one."""
    n = len(y)
    size = n if l2 == 0.0 else 2 * n + 1
    for c in range(n):
        ranked[c] = y[c]
    if l2 > 0.0:
        mean = y.sum() / n
        for c in range(n + 1):
            ranked[n + c] = mean + (n - 2.0 * c) * l1 / (l2 * n)
    for c in range(1, size):
        value, place = ranked[c], c
        while place > 0 and ranked[place - 1] > value:
            ranked[place] = ranked[place - 1]
            place -= 1
        ranked[place] = value
    low, high = ranked[(size - 1) // 2], ranked[size // 2]
    return low if abs(low) <= abs(high) else high


@kernel
def descend_class_columns(columns, curvature, intercepts, slope, terms, chosen, wide, x, image, moved):
    r"""A pass over some columns, in place.

    Shapes: slope (C, d); chosen (c,) of int64; x (C, d); image (C, N); moved (2 + C,).
    ``columns``: ``indptr``, ``rows`` and ``data`` of D. ``curvature``: ``likely`` and ``bend``, ``blocks``
    (less what the intercepts take away) and ``cross`` of :func:`class_blocks`, and the place of each column
    in these. ``intercepts``: :math:`W^+` of shape (C, C), or (0, 0) without intercepts, and the slope in
    them, of shape (C,). ``slope``: s. ``terms``: l_1, l_2 and bounds of h, as of
    :func:`fastadmm.kernels.coordinate_descent.descend_columns`. ``chosen``: in this order. Out: first those
    that are not left out of the next pass, in the same order. ``wide``: a column at zero that is further than
    this from moving is left out. ``x``: weights; moved. ``image``: :math:`W_i q_i`, with what the intercepts
    are left out. ``moved``: Out: largest move in units of the root of its curvature, and in units of the
    slope; in and out: :math:`\sum_k T_k m_k`.
    Returns: how many are not left out.
    """
    indptr, rows, data = columns
    likely, bend, blocks, cross, places = curvature
    inverse, first = intercepts
    l1, l2, low, high = terms
    n_classes, n = image.shape
    sums, along, ranked = np.empty(LANES), moved[2:], np.empty(2 * n_classes + 1)
    r, y, rise, work = np.empty(n_classes), np.empty(n_classes), np.zeros(n_classes), np.empty(n)
    shifts = math.isinf(low) and math.isinf(high) and (l1 > 0.0 or l2 > 0.0)
    kept, worst, widest = 0, 0.0, 0.0
    for c in range(len(inverse)):
        for e in range(n_classes):
            rise[c] -= inverse[c, e] * (first[e] + along[e])
    for number in range(len(chosen)):
        j = chosen[number]
        begin, end, block, own = indptr[j], indptr[j + 1], blocks[places[j]], cross[places[j]]
        zero, pull = True, 0.0
        for c in range(n_classes):
            r[c], y[c] = slope[c, j] + column_product(rows, data, begin, end, image[c], sums), x[c, j]
            if len(inverse) > 0:
                for e in range(n_classes):
                    r[c] += own[c, e] * rise[e]
            zero, pull = zero and y[c] == 0.0, max(pull, abs(r[c]))
        if zero and pull <= l1:  # with bounds no other weight wants to move either
            if pull + wide >= l1:
                chosen[kept] = j
                kept += 1
            continue
        chosen[kept] = j
        kept += 1
        limit = 0.0
        for sweep in range(_SWEEPS):
            most = 0.0
            for c in range(n_classes):
                bent, new = block[c, c] + l2, 0.0
                centre = block[c, c] * y[c] - r[c]
                if bent > 0.0:
                    new = max(abs(centre) - l1, 0.0) / bent
                new = min(max(-new if centre < 0.0 else new, low), high)
                step = new - y[c]
                if step != 0.0:
                    y[c] = new
                    for e in range(n_classes):
                        r[e] += step * block[e, c]
                    most = max(most, abs(step) * math.sqrt(bent))
            if shifts:
                shift = _shift(y, ranked, l1, l2)
                for c in range(n_classes):
                    y[c] -= shift
            if sweep == 0:
                limit = _SHARE * most
            if most <= limit and sweep > 0:
                break
        changed = False
        for c in range(n_classes):
            y[c], x[c, j] = y[c] - x[c, j], y[c]
            changed = changed or y[c] != 0.0
            worst = max(worst, abs(y[c]) * math.sqrt(block[c, c] + l2))
            widest = max(widest, abs(y[c]) * (block[c, c] + l2))
        if not changed:
            continue
        work[: end - begin] = 0.0
        for c in range(n_classes):
            for k in range(begin, end):
                work[k - begin] += likely[c, _row(rows, k, begin)] * y[c]
        for c in range(n_classes):
            for k in range(begin, end):
                i = _row(rows, k, begin)
                image[c, i] += data[k] * bend[c, i] * (y[c] - work[k - begin])
        if len(inverse) > 0:
            for c in range(n_classes):
                r[c] = 0.0
                for e in range(n_classes):
                    r[c] += own[c, e] * y[e]
                along[c] += r[c]
            for c in range(n_classes):
                for e in range(n_classes):
                    rise[c] -= inverse[c, e] * r[e]
    moved[0], moved[1] = worst, widest
    return kept

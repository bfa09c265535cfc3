r"""A small quadratic program over affine weights, by the primal active set.

.. math:: \min_d\; \langle g, d\rangle + \tfrac12 d^\top H d \quad\text{with}\quad
          \sum_{k \in \text{group } m} d_k = 0, \qquad c + d \ge \text{lower}

The weights off their bounds are minimised exactly, a bound that is met is added, the most violated one of
each group is released. All of it is compiled: for a few dozen weights the interpreter would take longest.
"""

import math

import numpy as np
from fastadmm.kernels.policy import inline, kernel

#: Multipliers above minus this, relative to the largest slope, count as zero.
_TOLERANCE = 1e-12

#: Of the largest column, roots of diagonals below count as this.
_SMALLEST = 1e-12

#: By so much more is added to the diagonal each time that a factorisation fails.
_MORE = 100.0


@inline
def _factorised(system, n):
    """Put U of ``U'U = system`` in the upper triangle; whether there is one. Rows are added to rows."""
    for j in range(n):
        pivot = system[j, j]
        if not pivot > 0.0:
            return False
        root = 1.0 / math.sqrt(pivot)
        for k in range(j, n):
            system[j, k] *= root
        for i in range(j + 1, n):
            share = system[j, i]
            for k in range(i, n):
                system[i, k] -= share * system[j, k]
    return True


@inline
def _solve(factor, n, right):
    """Solve ``U'U x = right`` in place."""
    for j in range(n):
        right[j] /= factor[j, j]
        for k in range(j + 1, n):
            right[k] -= right[j] * factor[j, k]
    for j in range(n - 1, -1, -1):
        total = right[j]
        for k in range(j + 1, n):
            total -= factor[j, k] * right[k]
        right[j] = total / factor[j, j]


@inline
def _descend(system, right, n, ridge, size, factor):
    """Solve in place of ``right``, by its upper triangle, a system semidefinite up to rounding and scale."""
    largest = 0.0
    for j in range(n):
        size[j] = math.sqrt(max(system[j, j], 0.0))
        largest = max(largest, size[j])
    if not largest > 0.0:
        return
    for j in range(n):
        size[j] = max(size[j], _SMALLEST * largest)
        right[j] /= size[j]
    while ridge < 1.0:
        for j in range(n):
            factor[j, j] = 1.0 + ridge
            for k in range(j + 1, n):
                factor[j, k] = system[j, k] / (size[j] * size[k])
        if _factorised(factor, n):
            _solve(factor, n, right)
            break
        ridge *= _MORE
    for j in range(n):
        right[j] /= size[j]


@inline
def _heaviest(weights, step, free, owner, first):
    """The largest free weight of each group, -1 where there is none: the others' sum is taken from it."""
    first[:] = -1
    for k in range(len(step)):
        m = owner[k]
        if m >= 0 and free[k] and (first[m] < 0 or weights[k] + step[k] > weights[first[m]] + step[first[m]]):
            first[m] = k


@inline
def _move_of(hessian, residual, free, owner, first, ridge, move, work):
    """Newton step of the free weights, with the largest of each group taken up by its sum."""
    at, base, right, size, system, factor = work
    n = 0
    for k in range(len(move)):
        move[k] = 0.0
        other = first[owner[k]] if owner[k] >= 0 else -1
        if free[k] and other != k:
            at[n], base[n] = k, other
            n += 1
    for i in range(n):
        a, b = at[i], base[i]
        right[i] = residual[a] - (residual[b] if b >= 0 else 0.0)
        for j in range(i, n):
            c, d = at[j], base[j]
            value = hessian[a, c] - (hessian[b, c] if b >= 0 else 0.0)
            if d >= 0:
                value -= hessian[a, d] - (hessian[b, d] if b >= 0 else 0.0)
            system[i, j] = value
    _descend(system, right, n, ridge, size, factor)
    for i in range(n):
        move[at[i]] -= right[i]
        if base[i] >= 0:
            move[base[i]] += right[i]


@inline
def _release(residual, free, owner, excess, mean, count, lowest, limit, one):
    """Free weights at their bound that want to rise: the most violated of each group, or of all."""
    mean[:], count[:], lowest[:] = 0.0, 0, -1
    for k in range(len(residual)):
        if owner[k] >= 0 and free[k]:
            mean[owner[k]] += residual[k]
            count[owner[k]] += 1
    best = -1
    for k in range(len(residual)):
        m = owner[k]
        excess[k] = 0.0
        if m >= 0 and not free[k] and count[m] > 0:
            excess[k] = residual[k] - mean[m] / count[m]
            if excess[k] < -limit:
                if lowest[m] < 0 or excess[k] < excess[lowest[m]]:
                    lowest[m] = k
                if best < 0 or excess[k] < excess[best]:
                    best = k
    if one and best >= 0:
        free[best] = True
    elif best >= 0:
        for m in range(len(lowest)):
            if lowest[m] >= 0:
                free[lowest[m]] = True
    return best >= 0


@kernel
def weights_program(hessian, slope, weights, lower, owner, max_steps, ridge, step):
    """Minimise from a feasible point.

    Shapes: hessian (K, K); slope (K,); weights (K,); lower (K,); owner (K,) of int64; step (K,).
    ``hessian``: H, positive semidefinite. ``slope``: g. ``weights``: c, with ``c >= lower``. ``lower``: zero,
    or minus infinity for a weight without a bound. ``owner``: group of each weight; -1 for one that belongs
    to none and is free. ``max_steps``: most systems solved. ``ridge``: added to each system, relative to its
    diagonal; more where it takes more to factorise it. ``step``: zero. Out: d, which is feasible and does not
    increase the value.
    """
    size = len(slope)
    n_groups, largest = 0, 0.0
    for k in range(size):
        n_groups, largest = max(n_groups, owner[k] + 1), max(largest, abs(slope[k]))
    residual, move, room, excess = slope.copy(), np.empty(size), np.empty(size), np.empty(size)
    free = (weights > lower) | (owner < 0)
    first, lowest, count = np.empty((3, n_groups), np.int64)
    mean = np.empty(n_groups)
    places, vectors, matrices = np.empty((2, size), np.int64), np.empty((2, size)), np.empty((2, size, size))
    work = places[0], places[1], vectors[0], vectors[1], matrices[0], matrices[1]
    for n_solved in range(max_steps):
        _heaviest(weights, step, free, owner, first)
        _move_of(hessian, residual, free, owner, first, ridge, move, work)
        length = 1.0
        for k in range(size):
            room[k] = math.inf
            if move[k] < 0.0 and lower[k] > -math.inf:
                room[k] = (lower[k] - weights[k] - step[k]) / move[k]
                length = min(length, max(room[k], 0.0))
        for k in range(size):
            step[k] += length * move[k]
            residual[k] = slope[k]
        for j in range(size):
            for k in range(size):
                residual[k] += step[j] * hessian[j, k]
        if length < 1.0:
            for k in range(size):
                if room[k] <= length:
                    step[k], free[k] = lower[k] - weights[k], False
        elif not _release(
            residual, free, owner, excess, mean, count, lowest, _TOLERANCE * largest, n_solved > 2 * size
        ):
            break

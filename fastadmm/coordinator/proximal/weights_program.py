r"""A small quadratic program over affine weights: the inner problem of a Newton step over a hull.

.. math:: \min_d\; \langle g, d\rangle + \tfrac12 d^\top H d \quad\text{with}\quad
          \sum_{k \in \text{group } m} d_k = 0, \qquad c + d \ge \text{lower}

Primal active set: the weights off their bounds are minimised exactly, a bound
that is met is added, the most violated one of each group is released. The
value falls with every step, so an early end is a descent direction too.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

__all__ = ["descent_solver", "descent_step", "solve_weights_program"]

Array = np.ndarray

#: Multipliers above minus this, relative to the largest slope, count as zero.
_TOLERANCE = 1e-12


def solve_weights_program(
    hessian: Array,
    slope: Array,
    weights: Array,
    lower: Array,
    owner: Array,
    max_steps: int,
    ridge: float = 1e-13,
) -> Array:
    """Minimise from a feasible point.

    Parameters
    ----------
    hessian : ndarray of shape (K, K)
        H, positive semidefinite.
    slope : ndarray of shape (K,)
        g.
    weights : ndarray of shape (K,)
        c, with ``c >= lower``.
    lower : ndarray of shape (K,)
        Zero, or minus infinity for a weight without a bound.
    owner : ndarray of int, shape (K,)
        Group of each weight; -1 for one that belongs to none and is free.
    max_steps : int
        Most systems solved.
    ridge : float
        Added to each system, relative to its diagonal; more where it takes more to factorise it.

    Returns
    -------
    ndarray of shape (K,)
        d, which is feasible and does not increase the value.
    """
    step = np.zeros(len(slope))
    residual = slope.copy()
    free = (weights > lower) | (owner < 0)
    n_groups = int(owner.max(initial=-1)) + 1
    limit = _TOLERANCE * float(np.abs(slope).max(initial=0.0))
    for n_solved in range(max_steps):
        move = _equality_step(hessian, residual, weights + step, free, owner, n_groups, ridge)
        room = np.full(len(step), np.inf)
        down = (move < 0.0) & np.isfinite(lower)
        room[down] = (lower[down] - weights[down] - step[down]) / move[down]
        length = min(1.0, max(float(room.min(initial=np.inf)), 0.0))
        step += length * move
        residual = slope + hessian @ step
        if length < 1.0:
            met = down & (room <= length)
            step[met] = lower[met] - weights[met]
            free[met] = False
            continue
        released = _violators(residual, free, owner, n_groups, limit, n_solved)
        if not released.any():
            break
        free |= released
    return step


def _violators(
    residual: Array, free: Array, owner: Array, n_groups: int, limit: float, n_solved: int
) -> Array:
    """Weights at their bound that want to rise: the most violated of each group, later of all."""
    excess = np.zeros(len(residual))
    for m in range(n_groups):
        mine = owner == m
        inside = mine & free
        if inside.any():
            excess[mine & ~free] = residual[mine & ~free] - residual[inside].mean()
    wanted = excess < -limit
    released = np.zeros(len(residual), dtype=bool)
    if n_solved > 2 * len(residual):
        if wanted.any():
            released[int(np.argmin(excess))] = True
        return released
    for m in range(n_groups):
        mine = np.flatnonzero(wanted & (owner == m))
        if len(mine):
            released[mine[np.argmin(excess[mine])]] = True
    return released


def _equality_step(
    hessian: Array, residual: Array, point: Array, free: Array, owner: Array, n_groups: int, ridge: float
) -> Array:
    """Newton step of the free weights, with the largest of each group taken up by its sum."""
    k = len(residual)
    move = np.zeros(k)
    base = np.full(k, -1)
    for m in range(n_groups):
        inside = np.flatnonzero(free & (owner == m))
        if len(inside):
            base[inside] = inside[np.argmax(point[inside])]
    at = np.flatnonzero(free & (base != np.arange(k)))
    if len(at) == 0:
        return move
    from_ = base[at]
    has = from_ >= 0
    rows = hessian[at]
    rows[has] -= hessian[from_[has]]
    system = rows[:, at]
    system[:, has] -= rows[:, from_[has]]
    right = residual[at]
    right[has] -= residual[from_[has]]
    part = descent_step(0.5 * (system + system.T), right, ridge)
    move[at] = part
    np.subtract.at(move, from_[has], part[has])
    return move


def descent_step(system: Array, slope: Array, ridge: float) -> Array:
    """Newton step of a system that is positive semidefinite up to rounding and scale.

    Parameters
    ----------
    system : ndarray of shape (K, K)
    slope : ndarray of shape (K,)
    ridge : float
        Share of the diagonal that is added to it, at least.

    Returns
    -------
    ndarray of shape (K,)
    """
    return -descent_solver(system, ridge)(slope)


def descent_solver(system: Array, ridge: float) -> Callable[[Array], Array]:
    """Solver of such a system; ``system`` and ``ridge`` as of :func:`descent_step`."""
    # LAPACK by name: SciPy's wrappers take longer than matrices of this size.
    from scipy.linalg.lapack import dpotrf, dpotrs

    size = np.sqrt(np.maximum(np.diag(system), 0.0))
    largest = float(size.max(initial=0.0))
    if not largest > 0.0:
        return np.array
    size = np.maximum(size, 1e-12 * largest)
    scaled = system / np.outer(size, size)
    diagonal = np.diag_indices(len(size))
    while ridge < 1.0:
        scaled[diagonal] = 1.0 + ridge
        factor, failed = dpotrf(scaled)
        if not failed:
            return lambda slope: dpotrs(factor, slope / size)[0] / size
        ridge *= 100.0
    return lambda slope: slope / (size * size)

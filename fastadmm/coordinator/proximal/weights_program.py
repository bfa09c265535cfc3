"""Small systems of the coordinator: a program over weights, and steps where a matrix may be singular."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Array = np.ndarray

#: Share of its diagonal that a positive definite system keeps its distance by.
_ROOM = 1e-9


def solve_weights_program(
    hessian: Array,
    slope: Array,
    weights: Array,
    lower: Array,
    owner: Array,
    max_steps: int,
    ridge: float = 1e-13,
) -> Array:
    """The d of :func:`fastadmm.kernels.weights_program.weights_program`."""
    from fastadmm.kernels.weights_program import weights_program

    step = np.zeros(len(slope))
    weights_program(hessian, slope, weights, lower, owner, max_steps, ridge, step)
    return step


def positive_definite(system: Array) -> bool:
    """Whether a system has only positive eigenvalues, with room for rounding."""
    from scipy.linalg.lapack import dpotrf

    size = np.sqrt(np.maximum(np.diag(system), 0.0))
    if not (size > 0.0).all():
        return False
    scaled = system / np.outer(size, size)
    scaled[np.diag_indices(len(size))] = 1.0 - _ROOM
    return not dpotrf(scaled)[1]


def descent_solver(system: Array, ridge: float) -> Callable[[Array], Array]:
    """Solver of a system that is positive semidefinite up to rounding and scale. Shapes: system (K, K)."""
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

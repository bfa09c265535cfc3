"""Small systems of the coordinator: steps where a matrix may be singular."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fastadmm.method.span import factorised

Array = np.ndarray

#: Share of its diagonal that a positive definite system keeps its distance by.
_ROOM = 1e-9


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
    size = np.sqrt(np.maximum(np.diag(system), 0.0))
    largest = float(size.max(initial=0.0))
    if not largest > 0.0:
        return np.array
    return factorised(system, np.maximum(size, 1e-12 * largest), ridge)

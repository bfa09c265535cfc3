"""Singular values and solvers that are found even where LAPACK's quick method gives up."""

from collections.abc import Callable

import numpy as np
import scipy.linalg


def singular(matrix: np.ndarray, whole: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Singular value decomposition, U, s and V' with ``matrix = U diag(s) V'``.

    Shapes: matrix, values (m, n); left (m, m) or (m, n); right (n, n) or (m, n).
    """
    try:
        left, values, right = np.linalg.svd(matrix, full_matrices=whole)  # SciPy's takes twice as long to ask
        return left, values, right
    except np.linalg.LinAlgError:  # divide and conquer, on some matrices with many equal singular values
        return scipy.linalg.svd(matrix, full_matrices=whole, lapack_driver="gesvd")


def factorised(system: np.ndarray, size: np.ndarray, ridge: float) -> Callable[[np.ndarray], np.ndarray]:
    """Solver of a system with unknowns of given sizes, and as much on its diagonal as that takes, at least.

    Shapes: system (n, n); size (n,).
    """
    # LAPACK by name: SciPy's wrappers take longer than matrices of this size.
    from scipy.linalg.lapack import dpotrf, dpotrs

    if len(system) == 0:
        return lambda slope: slope
    scaled = np.divide(system, size[:, np.newaxis] * size, order="C")
    diagonal = scaled.reshape(-1)[:: len(size) + 1]
    while ridge < 1.0:
        diagonal[:] = 1.0 + ridge
        factor, failed = dpotrf(scaled)
        if not failed:
            return lambda slope: dpotrs(factor, slope / size)[0] / size
        ridge = max(1e-14, 100.0 * ridge)
    return lambda slope: slope / size**2


def descent_solver(system: np.ndarray, ridge: float) -> Callable[[np.ndarray], np.ndarray]:
    """Solver of a system that is positive semidefinite up to rounding and scale. Shapes: system (K, K)."""
    size = np.sqrt(np.maximum(np.diag(system), 0.0))
    largest = float(size.max(initial=0.0))
    if not largest > 0.0:
        return np.array
    return factorised(system, np.maximum(size, 1e-12 * largest), ridge)

"""Singular values that are found even where LAPACK's quick method gives up."""

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

"""Cholesky factors while other threads use the interpreter, whose lock SciPy's calls of LAPACK hold."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

__all__ = ["cholesky", "solve_factorised"]

_WHOLE, _PLACE = ctypes.POINTER(ctypes.c_int), ctypes.c_void_p


@cache
def _routine(name: str, *kinds: Any) -> Any:
    """A function of LAPACK, from where SciPy publishes it for compiled code."""
    from fastadmm.kernels.blas import lapack

    return ctypes.CFUNCTYPE(None, ctypes.c_char_p, *kinds)(lapack(name))


def cholesky(matrix: np.ndarray) -> np.ndarray | None:
    """Factor of a positive definite matrix, in its place; None where it is not positive definite.

    Shapes: matrix, the result (n, n).
    """
    if not matrix.flags.c_contiguous:
        raise ValueError("only a C-contiguous matrix is factorised in its place")
    size, failed = ctypes.c_int(len(matrix)), ctypes.c_int(0)
    potrf = _routine("dpotrf", _WHOLE, _PLACE, _WHOLE, _WHOLE)
    potrf(b"L", size, matrix.ctypes.data, size, failed)
    return None if failed.value else matrix.T


def solve_factorised(factor: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Solve a system whose matrix :func:`cholesky` has factorised, for ``right`` of shape (n,)."""
    x = np.array(right)
    size, one, failed = ctypes.c_int(len(x)), ctypes.c_int(1), ctypes.c_int(0)
    potrs = _routine("dpotrs", _WHOLE, _WHOLE, _PLACE, _WHOLE, _PLACE, _WHOLE, _WHOLE)
    potrs(b"L", size, one, factor.ctypes.data, size, x.ctypes.data, size, failed)
    return x

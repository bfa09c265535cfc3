"""Rows of norm at most 1: what every bound on a record's influence starts from."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

__all__ = ["clip_rows"]


def clip_rows(matrix: Any) -> Any:
    r"""Rows of norm at most 1: each a becomes :math:`a / \max(1, \|a\|)`.

    A record is changed by itself alone, which is what the bounds need.

    Shapes: matrix, the result (N, d).
    """
    if sp.issparse(matrix):
        rows = sp.csr_array(matrix, dtype=np.float64, copy=True)
        lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
        rows.data /= np.repeat(np.maximum(lengths, 1.0), np.diff(rows.indptr))
        return rows
    dense = np.asarray(matrix, dtype=np.float64)
    return dense / np.maximum(np.linalg.norm(dense, axis=1, keepdims=True), 1.0)

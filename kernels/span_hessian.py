"""Hessian of the loss over the span of a few messages."""

from __future__ import annotations

import numpy as np
from fastadmm.kernels.policy import kernel

__all__ = ["span_hessian"]

#: Samples per block: scaled messages stay in the second-level cache, two of them in the first.
_BLOCK = 1024


@kernel
def span_hessian(messages, root, lead, out, start, stop):
    """Add the upper triangle of the Hessian over the span of messages and, first, of vectors of ones.

    Parameters
    ----------
    messages : ndarray of shape (K, N)
        V.
    root : ndarray of shape (N,)
        Square root of the curvature.
    lead : int
        1 with an intercept, else 0.
    out : ndarray of shape (lead + K, lead + K)
    start, stop : int
        Row range.
    """
    n = lead + len(messages)
    scaled = np.empty((n, _BLOCK))
    for begin in range(start, stop, _BLOCK):
        size = min(begin + _BLOCK, stop) - begin
        weight = root[begin : begin + size]
        for row in range(n):
            own = scaled[row, :size]
            if row < lead:
                for k in range(size):
                    own[k] = weight[k]
            else:
                message = messages[row - lead, begin : begin + size]
                for k in range(size):
                    own[k] = weight[k] * message[k]
        for row in range(n):
            for column in range(row, n):
                out[row, column] += np.dot(scaled[row, :size], scaled[column, :size])

"""How far a curvature has moved from the metric that parties have factorised."""

from __future__ import annotations

import numpy as np
from fastadmm.kernels.policy import kernel

__all__ = ["metric_drift"]

#: Samples per block: all that is computed of them stays in the first-level cache.
_BLOCK = 1024


@kernel
def metric_drift(curvature, metric, floor, out, start, stop):
    r"""Add weighted squares of the logarithm of curvature over metric, and the weights, to two sums.

    With t the smaller of the two over the larger, :math:`|\log t|` is taken as
    :math:`3 (1 - t^2) / (1 + 4 t + t^2)` (Padé), which is right to 1e-3 for
    factors up to 2.5 and never above 3: what is to be told is small from large.

    Parameters
    ----------
    curvature : ndarray of shape (N,)
        Raised to ``floor`` in place.
    metric : ndarray of shape (N,)
        Positive.
    floor : float
        Positive.
    out : ndarray of shape (2,)
        Sum of ``(curvature + metric) * log(curvature / metric)**2``, and of ``curvature + metric``.
    start, stop : int
        Row range.
    """
    squares, weights, ones = np.empty(_BLOCK), np.empty(_BLOCK), np.ones(_BLOCK)
    for begin in range(start, stop, _BLOCK):
        size = min(begin + _BLOCK, stop) - begin
        own, other = curvature[begin : begin + size], metric[begin : begin + size]
        for k in range(size):
            h, m = max(own[k], floor), other[k]
            own[k] = h
            t = min(h, m) / max(h, m)
            log = 3.0 * (1.0 - t * t) / (1.0 + t * (4.0 + t))
            squares[k] = log * log
            weights[k] = h + m
        out[0] += np.dot(squares[:size], weights[:size])
        out[1] += np.dot(weights[:size], ones[:size])

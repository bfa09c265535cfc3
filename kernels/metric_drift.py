"""How far a curvature has moved from the metric that parties have factorised."""

import numpy as np
from fastadmm.kernels.block_sum import BLOCK, block_sum
from fastadmm.kernels.exponential import log_positive
from fastadmm.kernels.policy import kernel


@kernel
def metric_drift(curvature, metric, floor, out, start, stop):
    """Add weighted squares of the logarithm of curvature over metric, and the weights, to two sums.

    Shapes: curvature (N,); metric (N,); out (3,).
    ``curvature``: taken as ``floor`` where it is less. ``metric``: positive. ``floor``: positive. ``out``:
    sum of ``(curvature + metric) * log(curvature / metric)**2``, of ``curvature + metric``, and of the
    curvature as it is.
    """
    work = np.empty((3, BLOCK))
    for begin in range(start, stop, BLOCK):
        size = min(begin + BLOCK, stop) - begin
        own, other = curvature[begin : begin + size], metric[begin : begin + size]
        for k in range(size):
            h = max(own[k], floor)
            log = log_positive(h / other[k])
            work[0, k], work[1, k], work[2, k] = (h + other[k]) * (log * log), h + other[k], own[k]
        for j in range(3):
            out[j] += block_sum(work, j, size)

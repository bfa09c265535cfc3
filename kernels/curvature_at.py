"""The curvature of a loss at a sum of messages, with what is wanted of it, in one pass over the rows."""

from __future__ import annotations

import numpy as np
from fastadmm.kernels.block_sum import BLOCK
from fastadmm.kernels.pieces import call_kernel
from fastadmm.kernels.policy import kernel
from fastadmm.kernels.vectors import total_and_size

__all__ = ["curvature_at"]


@kernel
def curvature_at(curve, base, total, intercept, target, weight, extra, bend, root, sums, start, stop):
    """Write a loss's curvature at ``base + total + intercept``, and add it up.

    Parameters
    ----------
    curve : int
        Address of the loss's ``curvature``.
    base, total : ndarray of shape (N,)
    intercept : float
    target, weight : ndarray of shape (N,)
    extra : tuple of float
        The loss's parameters.
    bend : ndarray of shape (N,)
        Written to.
    root : ndarray of shape (N,) or (0,)
        Written to, if it has room: the square root.
    sums : ndarray of shape (2,)
        The sum of the curvature is added, and that of its absolute values.
    start, stop : int
        Row range.
    """
    z = np.empty(BLOCK)
    for begin in range(start, stop, BLOCK):
        end = min(begin + BLOCK, stop)
        own_z, own_base, own_total = z[: end - begin], base[begin:end], total[begin:end]
        for k in range(end - begin):
            own_z[k] = (own_base[k] + own_total[k]) + intercept
        own = bend[begin:end]
        call_kernel(curve, (own_z, target[begin:end], weight[begin:end], *extra, own, 0, end - begin))
        if len(root) != 0:
            own_root = root[begin:end]
            for k in range(end - begin):
                own_root[k] = np.sqrt(own[k])
    total_and_size(bend, sums, start, stop)

"""A loss with its gradient, or its curvature, at a sum of messages: each in one pass over the rows.

What a loss's ``advance`` does without messages, which is not compiled for that.
"""

import numpy as np
from fastadmm.kernels.block_sum import BLOCK
from fastadmm.kernels.pieces import call_kernel
from fastadmm.kernels.policy import kernel
from fastadmm.kernels.vectors import total_and_size

__all__ = ["curvature_at", "loss_at"]

#: Rows that are added up at once.
_ROWS = 1 << 17


@kernel
def loss_at(evaluate, base, total, intercept, target, weight, extra, z, gradient, sums, start, stop):
    """Write a loss's gradient at ``base + total + intercept``, and add up both.

    Parameters
    ----------
    evaluate : int
        Address of the loss's ``evaluate``.
    base, total : ndarray of shape (N,)
    intercept : float
    target, weight : ndarray of shape (N,)
    extra : tuple of float
        The loss's parameters.
    z, gradient : ndarray of shape (N,)
        Written to: the predictor, and the weighted gradient.
    sums : ndarray of shape (3,)
        The loss is added, the sum of the gradient, and that of its absolute values.
    start, stop : int
        Row range.
    """
    value, own_sums = 0.0, sums[1:]
    for begin in range(start, stop, _ROWS):
        end = min(begin + _ROWS, stop)
        own_z, own_base, own_total = z[begin:end], base[begin:end], total[begin:end]
        for k in range(end - begin):
            own_z[k] = (own_base[k] + own_total[k]) + intercept
        value += call_kernel(evaluate, (z, target, weight, extra, gradient, begin, end))
        total_and_size(gradient, own_sums, begin, end)
    sums[0] += value


@kernel
def curvature_at(curve, base, total, intercept, target, weight, extra, bend, root, sums, start, stop):
    """Write a loss's curvature at ``base + total + intercept``, and add it up.

    Parameters
    ----------
    curve : int
        Address of the loss's ``curvature``.
    base, total, intercept, target, weight, extra, start, stop
        As for :func:`loss_at`.
    bend : ndarray of shape (N,)
        Written to.
    root : ndarray of shape (N,) or (0,)
        Written to, if it has room: the square root.
    sums : ndarray of shape (2,)
        The sum of the curvature is added, and that of its absolute values.
    """
    z = np.empty(BLOCK)
    for begin in range(start, stop, BLOCK):
        end = min(begin + BLOCK, stop)
        own_z, own_base, own_total = z[: end - begin], base[begin:end], total[begin:end]
        for k in range(end - begin):  # a function for this would cost both kernels compile time
            own_z[k] = (own_base[k] + own_total[k]) + intercept
        own = bend[begin:end]
        call_kernel(curve, (own_z, target[begin:end], weight[begin:end], extra, own, 0, end - begin))
        if len(root) != 0:
            own_root = root[begin:end]
            for k in range(end - begin):
                own_root[k] = np.sqrt(own[k])
    total_and_size(bend, sums, start, stop)

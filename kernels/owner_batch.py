"""Many repetitions of a simulation at once: one column per repetition.

The scores of a block of rows for all repetitions are one matrix product, and so
is the sum of gradients; between the two, this kernel turns scores into slopes.
"""

from __future__ import annotations

import math

from fastadmm.kernels.owner_gradient import owner_slope
from fastadmm.kernels.policy import kernel

__all__ = ["owner_batch_slopes"]


@kernel
def owner_batch_slopes(Z, y, norms, code, limit):
    """Replace scores by the slopes of the bounded gradients.

    Parameters
    ----------
    Z : ndarray of shape (k, R)
        Scores of k rows in R repetitions; overwritten.
    y : ndarray of shape (k,)
        Targets.
    norms : ndarray of shape (k,)
        Norm of each row, the constant included.
    code : int
        Loss, as in :func:`fastadmm.kernels.owner_gradient.owner_slope`.
    limit : float
        Bound on each record's gradient; infinite for none.
    """
    for i in range(Z.shape[0]):
        target = y[i]
        most = limit / norms[i] if norms[i] > 0.0 else math.inf
        for r in range(Z.shape[1]):
            Z[i, r] = min(max(owner_slope(code, Z[i, r], target), -most), most)

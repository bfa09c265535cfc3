r"""A number taken from the weights of a column in all classes: it changes the regulariser, not the loss.

.. math:: \min_t\; \alpha \sum_c |x_c - t| + \tfrac\beta2 \sum_c (x_c - t)^2

Each class by itself cannot find it: all weights of a column would have to move at once, past the kink of one.
Its minimiser is the median of the weights and of C + 1 numbers more (Li & Osher, *A new median formula with
applications to PDE based denoising*, 2009).
"""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def common_shift(weights: Array, alpha: float, beta: float) -> Array:
    """The best t of each column; where several are, the one nearest to zero.

    Shapes: weights (C, d); the result (d,).
    """
    n = len(weights)
    if beta == 0.0:
        ranked = np.sort(weights, axis=0)
        low, high = ranked[(n - 1) // 2], ranked[n // 2]
        nearest: Array = np.clip(0.0, low, high)
        return nearest
    pulls = (n - 2.0 * np.arange(n + 1)) * alpha / (beta * n)
    middle: Array = np.median(np.vstack([weights, weights.mean(axis=0) + pulls[:, np.newaxis]]), axis=0)
    return middle

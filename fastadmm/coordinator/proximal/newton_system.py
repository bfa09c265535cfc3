"""Gradient and Hessian of the loss over messages, at one point."""

from __future__ import annotations

import numpy as np

from fastadmm.engine.engine import Engine

Array = np.ndarray


def newton_system(
    messages: Array, gradient: Array, curvature: Array, extra: int, engine: Engine
) -> tuple[Array, Array]:
    """Gradient and Hessian of the loss in the coefficients of messages (and, last, the intercept).

    Shapes: messages (K, N); gradient, curvature (N,); slope (K + extra,); hessian (K + extra, K + extra).
    """
    k = len(messages)

    def piece(rows: tuple[int, int]) -> tuple[Array, Array]:
        part, g, h = (a[..., rows[0] : rows[1]] for a in (messages, gradient, curvature))
        slope, hessian = np.empty(k + extra), np.empty((k + extra, k + extra))
        slope[:k] = (part * g).sum(axis=1)  # BLAS takes another order of one row by its address
        curved = np.flatnonzero(h)
        if 2 * len(curved) <= len(h):  # a loss with flat pieces bends at few samples
            part, h = part[:, curved], h[curved]
        weighted = part * h
        hessian[:k, :k] = weighted @ part.T
        if extra:
            slope[k], hessian[k, k] = g.sum(), h.sum()
            hessian[k, :k] = hessian[:k, k] = weighted.sum(axis=1)
        return slope, hessian

    slope, hessian = engine.sums(piece, engine.leaves(messages.shape[1]), size=(k + extra) ** 2)
    return slope, 0.5 * (hessian + hessian.T)

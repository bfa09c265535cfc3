"""Combinations of the parties' points, and what the steps of searches among them are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastadmm.engine.engine import Engine

Array = np.ndarray

#: Multiplications that the systems of one step may take; cut short, it is a descent direction still.
WORK = 2e8

#: Decreases below this share of the value are lost in its rounding.
ROUNDING = 1e-13

#: Most that a weight moves in a step beyond the hull, where nothing bounds it.
MAX_MOVE = 30.0

#: Shares of the diagonal added to a step's system in turn, until its weights stay within that.
RIDGES = (1e-13, 1e-9)


@dataclass
class HullPoint:
    """A combination of points. Shapes: coefficients (K,); intercept (C,); total (N,) or (C N,)."""

    coefficients: Array  # of shape (K,)
    intercept: Any  # of shape (C,)
    total: Array  # of shape (N,) or (C N,): ``coefficients @ messages``, class by class


def bases_of(c: Array, owner: Array) -> Array:
    """For each point the one of its party with the largest weight.

    Weights of a party sum to one, so that only differences of points count. They are taken before
    products are, because those of points that lie close together differ in their last digits only.

    Shapes: c, owner (K,).
    """
    base = np.empty(len(owner), dtype=np.int64)
    for m in np.unique(owner):
        mine = np.flatnonzero(owner == m)
        base[mine] = mine[np.argmax(c[mine])]
    return base


def differences(square: Array, base: Array) -> Array:
    """A quadratic form of points, of shape (K, K), as that of their differences to their bases."""
    rows = square - square[base]
    return rows - rows[:, base]


def newton_system(
    messages: Array, gradient: Array, curvature: Array, extra: int, engine: Engine
) -> tuple[Array, Array]:
    """Gradient and Hessian of the loss in the coefficients of messages (and, last, the intercept).

    Shapes: messages (K, N); gradient, curvature (N,); slope (K + extra,); hessian (K + extra, K +
        extra).
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

    slope, hessian = engine.sums(piece, engine.leaves(messages.shape[1]), light=True, size=(k + extra) ** 2)
    return slope, 0.5 * (hessian + hessian.T)

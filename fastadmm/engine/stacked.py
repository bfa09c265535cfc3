"""Sums over rows of states that hold several vectors, one behind another."""

from __future__ import annotations

import numpy as np

from fastadmm.engine.engine import Engine

__all__ = ["StackedRows"]

Array = np.ndarray

#: Bytes that a cache holds: copying so few costs less than a call for each vector.
_CHEAP_COPY = 1 << 20


class StackedRows:
    """Inner products and combinations of vectors of several times N numbers.

    Parameters
    ----------
    engine : Engine
    n_rows : int
        N; what is left behind the last whole N numbers belongs to no row.
    """

    def __init__(self, engine: Engine, n_rows: int) -> None:
        self.engine, self.n_rows = engine, n_rows

    def dot(self, u: Array, v: Array) -> Array:
        """``u @ v`` for u of shape (K, s N) or (s N,) and v of shape (s N,)."""
        given = v.reshape(-1, self.n_rows)
        if u.ndim == 1 or u.nbytes <= _CHEAP_COPY:
            found: Array = self.engine.dot(u.reshape(*u.shape[:-1], -1, self.n_rows), given)
            return found
        # Parts of longer vectors would be copied to lie together.
        return np.array([self.engine.dot(own.reshape(-1, self.n_rows), given) for own in u])

    def norm(self, v: Array) -> float:
        """Euclidean norm of v, of shape (s N,)."""
        return float(np.sqrt(self.dot(v, v)))

    def combine(self, c: Array, rows: Array) -> Array:
        """``c @ rows`` for rows of shape (K, size)."""
        out = np.empty(rows.shape[1])
        whole = rows.shape[1] // self.n_rows * self.n_rows
        for start in range(0, whole, self.n_rows):
            part = slice(start, start + self.n_rows)
            out[part] = self.engine.combine(c, rows[:, part])
        out[whole:] = c @ rows[:, whole:]
        return out

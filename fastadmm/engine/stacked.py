"""Work over states that hold several vectors, one behind another."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.engine.tree import halved, leaves_of

Array = np.ndarray


class StackedRows:
    """Inner products and differences of vectors of several times N numbers."""

    def __init__(self, engine: Engine, n_rows: int) -> None:
        self.engine, self.n_rows = engine, n_rows

    def dot(self, u: Array, v: Array) -> float:
        """``u @ v``, of shape (s N,)."""
        return float(self.engine.dot(u.reshape(-1, self.n_rows), v.reshape(-1, self.n_rows)))

    def norm(self, v: Array) -> float:
        """Euclidean norm of v, of shape (s N,)."""
        return math.sqrt(self.dot(v, v))

    def weighted_products(self, rows: Array, v: Array, sections: Sequence[tuple[slice, Any]]) -> Array:
        """Products of rows, of shape (K, size), with a vector, weighted by sections of it.

        Shapes: rows (K, size); v (size,); each of sections (N,).
        """
        from fastadmm.kernels.stacked import products_in_metrics, weighted_products

        n, weights = self.n_rows, list[Any]()
        for part, weight in sections:
            weights += [weight] * ((part.stop - part.start) // n)
        leaves = self.engine.leaves(n)
        if isinstance(weights[0], np.ndarray):
            metrics = tuple({id(weight): weight for weight in weights}.values())
            places = {id(metric): k for k, metric in enumerate(metrics)}
            which = np.array([places[id(weight)] for weight in weights])
            told = rows, v, metrics, which, n
            return self.engine.sum_over_rows(products_in_metrics, leaves, (len(rows),), *told)
        given = rows, v, np.array(weights), n
        return self.engine.sum_over_rows(weighted_products, leaves, (len(rows),), *given)

    def difference(self, u: Array, v: Array) -> Array:
        """``u - v``, of shape (size,)."""
        from fastadmm.kernels.vectors import shifted_sum

        out = self.engine.vector(len(u))
        self.everywhere(shifted_sum, u, -1.0, v, 0.0, 1.0, out)
        return out

    def everywhere(self, kernel: Any, first: Array | tuple[Array, ...], *arguments: Any) -> None:
        """Call ``kernel(first, *arguments, start, stop)`` for all of the numbers of ``first``, in pieces.

        Shapes: first (size,).
        """
        size = len(first[0] if isinstance(first, tuple) else first)
        self.engine.over_rows(kernel, halved(size, leaves_of(size)), first, *arguments)

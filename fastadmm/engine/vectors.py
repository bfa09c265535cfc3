"""Sums and other work over vectors with a number for every row."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from fastadmm.engine.tree import Ranges, halved

#: Numbers in two cache lines, which processors fetch together.
CACHE_LINES = 16

#: Rows of a piece of :meth:`VectorWork.each`: a few vectors of so many fit into a second-level cache.
_EACH_ROWS = 1 << 15


class VectorWork:
    """What an engine does with vectors of shape (N,), by the jobs that it knows how to share."""

    #: Of :class:`fastadmm.engine.engine.Engine`.
    leaves: Callable[..., Ranges]
    all_rows: Callable[[int], int]
    over_rows: Callable[..., None]
    kernel_parts: Callable[..., list[Any]]
    parts: Callable[..., list[Any]]
    by_leaf: Callable[..., None]
    _shared: Callable[..., list[Any]]
    _across: Callable[[list[Any]], Any]

    def vector(self, size: int) -> np.ndarray:
        """Room for so many numbers, whatever stands there."""
        return np.empty(size)

    def total(self, v: np.ndarray) -> Any:
        """Sum over rows of v, of shape (N,) or (..., N)."""
        return self.total_and_size(v)[0]

    def total_and_size(self, v: np.ndarray) -> tuple[Any, Any]:
        """Sums over rows of v and of its absolute values, in one."""
        total, size = self._across(self.size_parts(v))
        return total, size

    def size_parts(self, v: np.ndarray) -> list[Any]:
        """What :meth:`total_and_size` adds up, for :meth:`together`."""
        from fastadmm.kernels.vectors import total_and_size

        given = np.ascontiguousarray(v, dtype=float)
        if v.ndim == 1:
            return self.kernel_parts(total_and_size, self._light(v), (2,), given)

        def piece(rows: tuple[int, int]) -> tuple[Any, Any]:
            sums = np.zeros((given.size // given.shape[-1], 2))
            for own, out in zip(given.reshape(len(sums), -1), sums):
                total_and_size(own, out, *rows)
            total, size = sums.T.reshape(2, *v.shape[:-1]).copy()
            return total, size

        return self.parts(piece, self._light(v))

    def plus(
        self,
        first: np.ndarray,
        second: np.ndarray,
        shift: float = 0.0,
        factor: float = 1.0,
        scale: float = 1.0,
        out: np.ndarray | None = None,
    ) -> np.ndarray:
        """``(first + factor * second + shift) * scale``, of shape (N,); ``out`` may be one of them."""
        from fastadmm.kernels.vectors import shifted_sum

        out = self.vector(len(first)) if out is None else out
        given = first, float(factor), second, float(shift), float(scale), out
        self.over_rows(shifted_sum, self._light(first), *given)
        return out

    def each(
        self, function: Callable[..., np.ndarray], *vectors: Any, out: np.ndarray | None = None
    ) -> np.ndarray:
        """What a function makes of vectors of shape (N,) number by number, in pieces that stay in a cache.

        Shapes: vectors, out (N,).
        """
        ranges = halved(len(vectors[0]), 1 << max(0, (len(vectors[0]) // _EACH_ROWS).bit_length() - 1))
        if len(ranges) == 1 and out is None:
            return function(*vectors)
        out = self.vector(len(vectors[0])) if out is None else out

        def piece(rows: tuple[int, int]) -> None:
            part = slice(*rows)
            out[part] = function(*(v[part] if isinstance(v, np.ndarray) else v for v in vectors))

        self._shared(piece, ranges)
        return out

    def times(self, first: np.ndarray, second: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Products of two vectors' numbers, of shape (N,); ``out`` may be one of them."""
        return self.each(np.multiply, first, second, out=out)

    def copy(self, v: np.ndarray, out: np.ndarray) -> None:
        """Write v, of shape (N,), to ``out``: memory that is new lies where its threads are."""
        from fastadmm.kernels.vectors import copy

        self.over_rows(copy, self._light(v), np.ascontiguousarray(v), out)

    def mean(self, v: np.ndarray) -> float:
        """Mean over rows of v, of shape (N,)."""
        return float(self.total(v)) / self.all_rows(len(v))

    def dot(self, u: np.ndarray, v: np.ndarray) -> Any:
        """Inner product over rows: u of shape (N,) or (K, N), v of shape (N,); or of s times N numbers."""
        found = self._across(self.dot_parts(u, v))
        return found if u.ndim > v.ndim else float(found[0])

    def dot_parts(self, u: np.ndarray, v: np.ndarray) -> list[Any]:
        """What :meth:`dot` adds up, for :meth:`together`: of shape (1,) or (K,)."""
        from fastadmm.kernels.vectors import products

        n = v.shape[-1]
        given = np.ascontiguousarray(v, dtype=float).reshape(-1, n)
        rows = np.ascontiguousarray(u, dtype=float).reshape(-1, len(given), n)
        return self.kernel_parts(products, self._light(v), (len(rows),), rows, given)

    def norm(self, v: np.ndarray) -> float:
        """Euclidean norm of v, of shape (N,)."""
        return math.sqrt(self.dot(v, v))

    def largest(self, v: np.ndarray) -> float:
        """Largest number in v, of shape (N,)."""
        return float(self.each_largest([v])[0])

    def each_largest(self, vectors: Iterable[np.ndarray], sign: float = 1.0) -> np.ndarray:
        """Largest number in each of several vectors of shape (N,), or with -1 in their negatives.

        Shapes: each of vectors (N,).
        """
        found = (v.max(initial=-np.inf) if sign > 0.0 else -v.min(initial=np.inf) for v in vectors)
        return self._maximum(np.array([float(most) for most in found]))

    def _maximum(self, numbers: np.ndarray) -> np.ndarray:
        """Largest of what all machines found, number by number."""
        return numbers

    def gather(self, *vectors: np.ndarray) -> list[np.ndarray]:
        """All rows of vectors of shape (N,): for what no sum can say, such as a quantile."""
        return list(vectors)

    def combine(self, c: np.ndarray, rows: np.ndarray, chosen: Any = slice(None)) -> np.ndarray:
        """``c @ rows[chosen]`` for rows of shape (K, N): leaf by leaf, for BLAS rounds by place."""
        if c.shape == (0,):
            return np.zeros(rows.shape[1])
        shape = *c.shape[:-1], rows.shape[1]
        out = self.vector(math.prod(shape)).reshape(shape)

        def piece(part: tuple[int, int]) -> None:
            out[..., part[0] : part[1]] = c @ rows[chosen, part[0] : part[1]]

        self.by_leaf(piece, self._light(rows))
        return out

    def _light(self, v: np.ndarray) -> Ranges:
        return self.leaves(v.shape[-1])

"""Vectors that come back: memory that nobody knows any more is lent again.

The system takes back large vectors, and sets pages to zero for the next, while all threads wait.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

__all__ = ["Vectors"]

#: Bytes from which on a vector is worth it: the largest pages that memory comes in.
_LARGE = 1 << 21

#: Vectors of a length that are kept while nobody has them.
_MOST = 2


class _Memory(np.ndarray):
    """Memory as such: of a type of its own, or NumPy would make it the base of an array that is lent."""


class _Left(list[np.ndarray]):
    """Memory that is to be given back, while somebody will do that."""

    awaited = True


class _Lent(np.ndarray):
    """Memory behind an array: when the last array over it goes, it is kept for the next, or to be given back.

    To give it back takes long, and here no signal would be heard.
    """

    kept: list[np.ndarray]
    left: _Left

    def __del__(self) -> None:
        if len(self.kept) < _MOST:
            self.kept.append(self.base)  # type: ignore[arg-type]
        elif self.left.awaited:
            self.left.append(self.base)  # type: ignore[arg-type]


class Vectors:
    """Lends vectors."""

    def __init__(self) -> None:
        self.kept: dict[int, list[np.ndarray]] = {}
        self.left = _Left()

    def lend(self, size: int) -> np.ndarray:
        """Room for so many numbers, whatever stands there."""
        if 8 * size < _LARGE:
            return np.empty(size)
        kept = self.kept.setdefault(size, [])
        try:
            memory = kept.pop() if kept else _Memory(size)
        except IndexError:  # another thread asked at the same time
            memory = _Memory(size)
        own = memory.view(_Lent)
        own.kept, own.left = kept, self.left
        return own.view(np.ndarray)

    def give_back(self, free: Callable[[list[np.ndarray]], None]) -> None:
        """Give back what is left over."""
        mine, self.left[:] = self.left[:], []  # `free` may have jobs done, which come back here
        free(mine)

    def forget(self, free: Callable[[list[np.ndarray]], None]) -> None:
        """Keep nothing of what there is, nor of what comes back later."""
        self.left.awaited = False
        for kept in self.kept.values():
            self.left += kept
            kept[:] = [np.empty(0)] * _MOST
        self.give_back(free)
        self.left, self.kept = _Left(), {}

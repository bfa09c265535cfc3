"""Large vectors: a pool of memory to use again, and what a run leaves behind, given back by all threads.

The system takes back large vectors, and sets pages to zero for the next, while all threads wait.
"""

import ctypes
import mmap
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from fastadmm.engine.rows import compiled
from fastadmm.engine.tree import even_ranges

#: Bytes of the largest pages that memory comes in, and of all arrays that one thread takes long to give back.
PAGE, _LARGE = 1 << 21, 1 << 26

#: Pieces of a job at most, about: there are some for every core, and few to describe.
_MOST = 256


@cache
def _madvise() -> int:
    """Address of the system's function; 0 where it is none that drops pages at once."""
    if not sys.platform.startswith("linux"):
        return 0
    return ctypes.cast(ctypes.CDLL(None).madvise, ctypes.c_void_p).value or 0


def free(memories: list[np.ndarray], engine: Any) -> None:
    """Give back arrays that nobody else knows, in one job; nothing of those that others know."""
    # The list's own reference and that of the question: a view anywhere would be one more.
    alone = [k for k in range(len(memories)) if sys.getrefcount(memories[k]) <= 2]
    owned = [memories[k] for k in alone if memories[k].flags.owndata and memories[k].nbytes >= PAGE]
    size = sum(memory.nbytes for memory in owned)
    if compiled() and size >= _LARGE and engine.n_threads > 1 and _madvise():
        from fastadmm.kernels.pages import discard

        step = -(-size // (_MOST * PAGE)) * PAGE
        places = np.array([(memory.ctypes.data, memory.nbytes) for memory in owned])
        numbers = even_ranges(*2 * [sum(memory.nbytes // step + 1 for memory in owned)])
        told = _madvise(), int(mmap.MADV_DONTNEED), places, step, mmap.PAGESIZE, PAGE
        engine.over_rows(discard, numbers, *told)
    memories.clear()


#: Vectors of a length that are kept while nobody has them.
_MOST_KEPT = 2


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
        if len(self.kept) < _MOST_KEPT:
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
        if 8 * size < PAGE:
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
            kept[:] = [np.empty(0)] * _MOST_KEPT
        self.give_back(free)
        self.left, self.kept = _Left(), {}

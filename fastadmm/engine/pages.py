"""Memory that a run leaves behind, given back by all threads: for one it is a hundredth of a large fit."""

from __future__ import annotations

import ctypes
import mmap
import sys
from functools import cache
from typing import Any

import numpy as np

from fastadmm.engine.rows import compiled
from fastadmm.engine.tree import even_ranges

__all__ = ["free"]

#: Bytes of the largest pages that memory comes in, and of all arrays that one thread takes long to give back.
_PAGE, _LARGE = 1 << 21, 1 << 26

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
    owned = [memories[k] for k in alone if memories[k].flags.owndata and memories[k].nbytes >= _PAGE]
    size = sum(memory.nbytes for memory in owned)
    if compiled() and size >= _LARGE and engine.n_threads > 1 and _madvise():
        from fastadmm.kernels.pages import discard

        step = -(-size // (_MOST * _PAGE)) * _PAGE
        places = np.array([(memory.ctypes.data, memory.nbytes) for memory in owned])
        numbers = even_ranges(*2 * [sum(memory.nbytes // step + 1 for memory in owned)])
        told = _madvise(), int(mmap.MADV_DONTNEED), places, step, mmap.PAGESIZE, _PAGE
        engine.over_rows(discard, numbers, *told)
    memories.clear()

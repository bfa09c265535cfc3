"""Memory that a run leaves behind, given back by all threads: for one it is a hundredth of a large fit."""

from __future__ import annotations

import ctypes
import mmap
import sys
from functools import cache
from typing import Any

import numpy as np

from fastadmm.engine.rows import compiled

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
    """Give back arrays that nobody else knows, in one job; nothing of those that others know.

    Parameters
    ----------
    memories : list of ndarray
        Empty afterwards.
    engine : Engine
    """
    # The list's own reference and that of the question: a view anywhere would be one more.
    alone = [k for k in range(len(memories)) if sys.getrefcount(memories[k]) <= 2]
    owned = [memories[k] for k in alone if memories[k].flags.owndata and memories[k].nbytes >= _PAGE]
    size = sum(memory.nbytes for memory in owned)
    if compiled() and size >= _LARGE and engine.n_threads > 1 and _madvise():
        from fastadmm.kernels.pages import discard

        step = -(-size // (_MOST * _PAGE)) * _PAGE
        pieces = np.concatenate([_pieces(memory, step) for memory in owned])
        engine.over_rows(
            discard,
            tuple((k, k + 1) for k in range(len(pieces))),
            _madvise(),
            int(mmap.MADV_DONTNEED),
            pieces,
        )
    memories.clear()


def _pieces(memory: np.ndarray, step: int) -> np.ndarray:
    """Address and bytes of pieces of an array: whole small pages at its ends, large ones between."""
    small, begin = mmap.PAGESIZE, memory.__array_interface__["data"][0]
    first, end = -(-begin // small) * small, (begin + memory.nbytes) // small * small
    large = -(-first // _PAGE) * _PAGE
    borders = np.array([*([first] if first < large else []), *range(large, end, step), end])
    return np.stack([borders[:-1], np.diff(borders)], axis=1)

"""Memory that a run leaves behind, given back by all threads: for one it is a hundredth of a large fit."""

from __future__ import annotations

import ctypes
import mmap
import sys
from functools import cache
from typing import Any

import numpy as np

from fastadmm.engine.rows import compiled
from fastadmm.engine.tree import halved

__all__ = ["free"]

#: Bytes of the largest pages that memory comes in, and of arrays that one thread takes long to give back.
_PAGE, _LARGE = 1 << 21, 1 << 26

#: Pieces of a job at most: there are some for every core, and few to describe.
_MOST = 256


@cache
def _madvise() -> int:
    """Address of the system's function; 0 where it is none that drops pages at once."""
    if not sys.platform.startswith("linux"):
        return 0
    return ctypes.cast(ctypes.CDLL(None).madvise, ctypes.c_void_p).value or 0


def free(rows: np.ndarray, engine: Any) -> None:
    """Drop the pages of an array that the caller alone knows, and forgets; nothing where others know it.

    Parameters
    ----------
    rows : ndarray
    engine : Engine
    """
    # The caller's name, ours and the question's argument: a view anywhere would be one more.
    alone = rows.flags.owndata and sys.getrefcount(rows) <= 3
    if not (compiled() and alone) or rows.nbytes < _LARGE or engine.n_threads == 1 or not _madvise():
        return
    from fastadmm.kernels.pages import discard

    begin = rows.__array_interface__["data"][0]
    first = -(-begin // _PAGE) * _PAGE
    pages = (begin + rows.nbytes - first) // _PAGE
    ranges = halved(pages, min(1 << max(0, pages.bit_length() - 1), _MOST))
    engine.over_rows(discard, ranges, _madvise(), int(mmap.MADV_DONTNEED), first, _PAGE)

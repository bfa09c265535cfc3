"""Arrays in a scratch file, of which little is in memory at a time."""

import mmap
import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

from fastadmm.engine.tree import leaves_of

#: Whether the system takes pages back that are in a file.
CAN_SPILL = hasattr(mmap, "MADV_DONTNEED") and hasattr(mmap.mmap, "madvise")

#: Bytes that a job may have in memory at a time.
_RESIDENT = 1 << 24

#: The system maps pages in windows of this many bytes around the one that is asked for.
_WINDOW = max(1 << 16, mmap.PAGESIZE)

#: The system is asked for so many bytes at a time, ahead of their use: it may leave out what is more.
_AHEAD = 1 << 17

#: Written at a time where the system cannot set aside space on a disk.
_ZEROS = 1 << 20


class _Map(mmap.mmap):
    """Of a scratch file: what is taken from memory stays in the file."""


class SpilledRows:
    """Vectors of equal length, one below another, in a scratch file that has no name.

    The file is mapped into memory, so its vectors are arrays like others. What a job is done with is taken
    from memory again (:class:`fastadmm.engine.engine.Engine` calls :meth:`let_go`): the system keeps
    it as long as it has room, in the file in any case. The file is gone with the process. The system is told
    what will be read, and reads no more by itself: what it reads together it maps together.

    Shapes: array (K, N).
    """

    def __init__(self, directory: Path, shape: tuple[int, int]) -> None:
        self._file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115 (open as long as this is)
        weakref.finalize(self, self._file.close)
        self._row_bytes, size = 8 * shape[1], 8 * shape[0] * shape[1]
        self._file.truncate(size)
        self._map, self._reserved = _Map(self._file.fileno(), size), 0
        self._map.madvise(mmap.MADV_RANDOM)
        self.array = np.frombuffer(self._map, dtype=np.float64).reshape(shape)
        self._address = self.array.__array_interface__["data"][0]

    def reserve(self, rows: int) -> None:
        """Set space on the disk aside for the first vectors: a full disk must not be noticed later."""
        start, stop = (self._row_bytes * k for k in (self._reserved, rows))
        if start >= stop:
            return
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._file.fileno(), start, stop - start)
        else:
            for place in range(start, stop, _ZEROS):
                os.pwrite(self._file.fileno(), bytes(min(_ZEROS, stop - place)), place)
        self._reserved = rows

    def among(self, things: Iterable[Any]) -> bool:
        """Whether one of some things is an array that begins in the file, or a function that knows one."""
        return any(self._knows(one) for one in things)

    def _knows(self, thing: Any) -> bool:
        if isinstance(thing, np.ndarray):
            return 0 <= thing.__array_interface__["data"][0] - self._address < self.array.nbytes
        if isinstance(thing, partial):
            return self.among((thing.func, *thing.args, *thing.keywords.values()))
        if isinstance(thing, FunctionType):
            return self.among(cell.cell_contents for cell in thing.__closure__ or ())
        return isinstance(thing, (list, tuple)) and self.among(thing)

    def portion(self, ranges: Sequence[tuple[int, int]], threads: int) -> int:
        """How many of some ranges of columns may be worked on at a time: a power of two."""
        length = (ranges[-1][1] - ranges[0][0]) // len(ranges) + 1
        return _portion(length * 8 * max(1, self._reserved), threads)

    def by_portions(
        self, work: Callable[[Any], Any], ranges: Sequence[tuple[int, int]], threads: int
    ) -> None:
        """Give ranges to a function, so many at a time."""
        most = self.portion(ranges, threads)
        for k in range(0, len(ranges), most):
            with self.held(ranges[k : k + most]) as part:
                work(part)

    @contextmanager
    def held(self, ranges: Any) -> Iterator[Any]:
        """Have columns in memory, ``ranges`` of them, consecutive."""
        self.ask_for(ranges)
        yield ranges
        self.let_go(ranges)

    def ask_for(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Let the system read columns, ``ranges`` of them, and as many behind them."""
        start, stop = ranges[0][0], ranges[-1][1]
        for first, last in self._windows(start, 2 * stop - start):
            for place in range(first, last, _AHEAD):
                self._map.madvise(mmap.MADV_WILLNEED, place, min(_AHEAD, last - place))

    def let_go(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Take columns from memory: ``ranges`` of them, consecutive."""
        for first, last in self._windows(ranges[0][0], ranges[-1][1]):
            self._map.madvise(mmap.MADV_DONTNEED, first, last - first)

    def _windows(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Where some columns of the vectors are in the file, in whole windows."""
        stop = min(8 * stop, self._row_bytes)
        for begin in range(0, self._reserved * self._row_bytes, self._row_bytes):
            first = (begin + 8 * start) // _WINDOW * _WINDOW
            last = min(-(-(begin + stop) // _WINDOW) * _WINDOW, len(self._map))
            if first < last:
                yield first, last


def let_go(array: np.ndarray) -> None:
    """Take all of a scratch file from memory, if an array lies in one."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, memoryview) and isinstance(base.obj, _Map):
        base.obj.madvise(mmap.MADV_DONTNEED)


def resident_bytes(n_vectors: int, length: int, threads: int) -> int:
    """What of spilled vectors is in memory at a time, about."""
    leaves = leaves_of(length)
    leaf = (-(-length // leaves)) * 8 * n_vectors
    # Of fewer vectors more leaves, up to the portion's size; and what pages of each lie in one more window.
    portion = max(_RESIDENT, leaf * _portion(leaf, threads))
    return min(8 * n_vectors * length, portion + _WINDOW * n_vectors)


def _portion(leaf_bytes: int, threads: int) -> int:
    wanted = max(_RESIDENT // max(1, leaf_bytes), 2 * threads - 1, 1)
    return 1 << (int(wanted).bit_length() - 1)

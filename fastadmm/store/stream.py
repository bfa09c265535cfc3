"""Reading a party's file tile by tile: buffers, what is read ahead, and kernels that read themselves."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from fastadmm.blocks.tiles import Rows
from fastadmm.errors import StorageError
from fastadmm.files.atomic import shown
from fastadmm.store.party_file import PartyData

_Tile = TypeVar("_Tile")

#: Takes a place's arguments, first and last row; returns the first row that it could not read.
Kernel = Callable[..., int]

#: Page-aligned buffers spare the system a partial page at both ends.
_ALIGNMENT = 4096

#: Tiles that a kernel reads and computes in one call, and that the system fetches ahead.
BATCH_TILES = 16


class BufferPool:
    """Buffers for streaming; there are as many as were ever in use at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[np.ndarray] = []
        self.nbytes = 0

    def take(self, size: int) -> np.ndarray:
        """A buffer of at least ``size`` bytes."""
        with self._lock:
            fitting = [k for k, buffer in enumerate(self._free) if buffer.nbytes >= size]
            if fitting:
                return self._free.pop(min(fitting, key=lambda k: self._free[k].nbytes))
            if self._free:  # too small for this one: replaced, so that their number cannot grow
                self.nbytes -= self._free.pop().nbytes
            size = -(-size // _ALIGNMENT) * _ALIGNMENT
            self.nbytes += size
        whole = np.empty(size + _ALIGNMENT, dtype=np.uint8)
        start = -whole.ctypes.data % _ALIGNMENT
        return whole[start : start + size]

    def give(self, buffer: np.ndarray) -> None:
        """Return a buffer."""
        with self._lock:
            self._free.append(buffer)


_POOL = BufferPool()


@dataclass(frozen=True)
class Place:
    """A buffer that kernels of :mod:`fastadmm.kernels.file_rows` read rows into, and what they need."""

    arguments: tuple[Any, ...]
    #: Reads the tile from a row to another at the latest in another way, which tells why it failed.
    read: Callable[[int, int], None]


class Stream:
    """What all kinds of block share: an open file, and reading it ahead."""

    def __init__(self, party: PartyData, keys: tuple[str, ...], pool: BufferPool | None = None) -> None:
        self.reader = party.reader(keys)
        self.direct = self.reader.direct
        self._pool = pool or _POOL
        self._lock = threading.Lock()
        self._thread: ThreadPoolExecutor | None = None
        self._owner = 0

    def read(self, key: str, start: int, stop: int, out: np.ndarray) -> None:
        """Read rows into a buffer, in one call where the file is read past HDF5."""
        if self.direct:
            from fastadmm.kernels.file_rows import read_range

            row_bytes = self.reader.dtypes[key].itemsize * self.reader.row_items[key]
            place = self.reader.place(key)
            if read_range(self.reader.descriptor, *place, row_bytes, start, stop, out.view(np.uint8)):
                return
        self.reader.read_into(key, start, stop, out)

    def _executor(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._thread is None or self._owner != os.getpid():  # threads do not survive a fork
                self._owner = os.getpid()
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="fastadmm-read")
            return self._thread

    @contextmanager
    def buffer(self, size: int) -> Iterator[np.ndarray]:
        """Lend a buffer of so many bytes."""
        buffer = self._pool.take(size)
        try:
            yield buffer
        finally:
            self._pool.give(buffer)

    def tiles(
        self,
        ranges: Iterable[Rows],
        size: int,
        read: Callable[[Rows, np.ndarray], _Tile],
        advise: Callable[[Rows], None],
    ) -> Generator[tuple[Rows, _Tile], None, None]:
        """Read ranges in turn."""
        self.reader.check_unchanged()
        return self._by_caller(ranges, size, read, advise) if self.direct else self._ahead(ranges, size, read)

    def _by_caller(
        self,
        ranges: Iterable[Rows],
        size: int,
        read: Callable[[Rows, np.ndarray], _Tile],
        advise: Callable[[Rows], None],
    ) -> Generator[tuple[Rows, _Tile], None, None]:
        """Each when it is asked for; the system has been told and fetches it from the disk meanwhile.

        A thread that reads ahead would leave a tile in the cache of another
        core, and take longer to wake than a tile takes to copy.
        """
        with self.buffer(size) as buffer:
            for rows in self.told(list(ranges), advise):
                yield rows, read(rows, buffer)

    @staticmethod
    def told(ranges: Sequence[Rows], advise: Callable[[Rows], None]) -> Iterator[Rows]:
        """The ranges; the system has been told of each but the first some time before."""
        told = 1
        for k, rows in enumerate(ranges):
            if told < len(ranges) and told - k <= BATCH_TILES // 2:
                until = min(k + 1 + BATCH_TILES, len(ranges))
                advise((ranges[told][0], ranges[until - 1][1]))
                told = until
            yield rows

    def _ahead(
        self, ranges: Iterable[Rows], size: int, read: Callable[[Rows, np.ndarray], _Tile]
    ) -> Generator[tuple[Rows, _Tile], None, None]:
        """Each by a thread, into one of two buffers while the other is in use: HDF5 decompresses them."""
        ranges = iter(ranges)
        pending: Future[_Tile] | None = None
        with self.buffer(size) as one, self.buffer(size) as other:
            try:
                rows = next(ranges, None)
                while rows is not None:
                    tile = read(rows, one) if pending is None else pending.result()
                    pending = None
                    following = next(ranges, None)
                    if following is not None:
                        one, other = other, one
                        pending = self._executor().submit(read, following, one)
                    yield rows, tile
                    rows = following
            finally:
                if pending is not None and not pending.cancel():
                    pending.exception()  # the thread still writes to the buffer

    def run(
        self, batches: Sequence[Rows], place: Place, kernel: Kernel, advise: Callable[[Rows], None]
    ) -> None:
        """Let a kernel read and compute batch after batch.

        Between two of them the interpreter has its turn: an interrupt is noticed.
        """
        self.reader.check_unchanged()
        for k, rows in enumerate(batches):
            if k + 1 < len(batches):
                advise(batches[k + 1])
            (row, stop), failed = rows, -1
            while (row := kernel(*place.arguments, row, stop)) < stop:
                place.read(row, stop)  # tells why
                if row == failed:  # and yet it can be read
                    raise StorageError(f"{shown(self.reader.path)}: cannot be read; try again")
                failed = row

    def close(self) -> None:
        """Close the file and stop the thread."""
        if self._thread is not None and self._owner == os.getpid():
            self._thread.shutdown()
        self._thread = None
        self.reader.close()

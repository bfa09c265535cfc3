"""Feature blocks that stay on disk: read tile by tile, one tile ahead of the computation.

Every tile holds the rows that the block in memory would compute on
(:mod:`fastadmm.tiles`), and the arithmetic is inherited: results are those of
the block in memory, to the last bit.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from fastadmm.blocks import CSRBlock, DenseBlock, FeatureBlock, as_block, unsigned_indices
from fastadmm.store.party_file import PARTY_TYPE, PARTY_VERSIONS, PartyData
from fastadmm.store.row_reader import RowReader
from fastadmm.tiles import TILE_BYTES, TILE_ENTRIES, Rows, csr_tiles, dense_tiles

__all__ = ["BufferPool", "StreamedCSR", "StreamedDense", "buffer_bytes", "load_block", "stream_block"]

_Tile = TypeVar("_Tile")

#: Row pointers, indices and values of some rows.
_SparseTile = tuple[np.ndarray, np.ndarray, np.ndarray]

#: Page-aligned buffers spare the system a partial page at both ends.
_ALIGNMENT = 4096


class BufferPool:
    """Buffers lent to whoever streams; as many exist as were ever in use at once.

    Attributes
    ----------
    nbytes : int
        Bytes of all buffers.
    """

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


class _Consumers:
    """The threads that compute on tiles at this moment."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._walks: dict[int, int] = {}
        self._cores = (
            len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        )

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """Count the calling thread while it walks."""
        thread = threading.get_ident()
        with self._lock:
            self._walks[thread] = self._walks.get(thread, 0) + 1
        try:
            yield
        finally:
            with self._lock:
                self._walks[thread] -= 1
                if self._walks[thread] == 0:
                    del self._walks[thread]

    def fill_the_cores(self) -> bool:
        """Whether there is one for every core."""
        return len(self._walks) >= self._cores


_CONSUMERS = _Consumers()


class _Stream:
    """What both kinds of block share: an open file, and reading it ahead."""

    def __init__(self, party: PartyData, keys: tuple[str, ...], pool: BufferPool | None = None) -> None:
        self.reader = RowReader(party.path, keys, PARTY_TYPE, PARTY_VERSIONS)
        self._pool = pool or _POOL
        self._lock = threading.Lock()
        self._thread: ThreadPoolExecutor | None = None
        self._owner = 0

    def _executor(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._thread is None or self._owner != os.getpid():  # threads do not survive a fork
                self._owner = os.getpid()
                self._thread = ThreadPoolExecutor(1, thread_name_prefix="fastadmm-read")
            return self._thread

    def ahead(
        self,
        ranges: Iterator[Rows],
        size: int,
        read: Callable[[Rows, np.ndarray], _Tile],
        advise: Callable[[Rows], None],
    ) -> Generator[tuple[Rows, _Tile], None, None]:
        """Read ranges in turn, each ahead of its use.

        Where a core is idle, a thread reads into one of two buffers while the
        other is in use. Where as many threads compute as there are cores, one
        more would only take turns with them: each reads its own tiles when it
        needs them, and has told the system one tile before, which reads from
        the disk without a thread.

        Parameters
        ----------
        ranges : iterator of (int, int)
        size : int
            Bytes of a buffer.
        read : callable
            Reads a range into a buffer and returns the tile in it.
        advise : callable
            Tells the system that a range will be read.

        Yields
        ------
        rows : (int, int)
        tile
            Valid until the next one is asked for.
        """
        self.reader.check_unchanged()
        direct = self.reader.direct
        buffers = [self._pool.take(size)]
        pending: Future[_Tile] | None = None
        turn = 0
        with _CONSUMERS.one_more():
            try:
                rows = next(ranges, None)
                while rows is not None:
                    tile = read(rows, buffers[turn]) if pending is None else pending.result()
                    pending = None
                    following = next(ranges, None)
                    if following is not None and direct and _CONSUMERS.fill_the_cores():
                        advise(following)
                    elif following is not None:
                        if len(buffers) == 1:
                            buffers.append(self._pool.take(size))
                        turn = 1 - turn
                        pending = self._executor().submit(read, following, buffers[turn])
                    yield rows, tile
                    rows = following
            finally:
                if pending is not None and not pending.cancel():
                    pending.exception()  # the thread still writes to the buffer
                for buffer in buffers:
                    self._pool.give(buffer)

    def close(self) -> None:
        """Close the file and stop the thread."""
        if self._thread is not None and self._owner == os.getpid():
            self._thread.shutdown()
        self._thread = None
        self.reader.close()


class StreamedDense(DenseBlock):
    """A dense block that is read from its party's file in every pass.

    Parameters
    ----------
    party : PartyData
        Of kind "dense", already validated (:func:`stream_block`).
    pool : BufferPool, optional
    """

    def __init__(self, party: PartyData, pool: BufferPool | None = None) -> None:
        self.shape = (party.n_samples, party.n_features)
        self.nbytes = 0
        self.density = 1.0
        self.stream = _Stream(party, ("X",), pool)
        self.factor = 1.0
        self._dtype = party.dtype

    def tiles(self, rows: Rows) -> Iterator[tuple[Rows, np.ndarray]]:
        d = self.shape[1]
        return self._read(dense_tiles(rows, d), _dense_values(d))

    def walk(self, ranges: Sequence[Rows]) -> Generator[tuple[Rows, np.ndarray], None, None]:
        return self._read(iter(ranges), max(stop - start for start, stop in ranges) * self.shape[1])

    def _read(self, ranges: Iterator[Rows], largest: int) -> Generator[tuple[Rows, np.ndarray], None, None]:
        """Tiles of given ranges, of at most so many values each."""
        d = self.shape[1]
        size = _buffer_size(largest, self._dtype.itemsize)

        def read(part: Rows, buffer: np.ndarray) -> np.ndarray:
            count = (part[1] - part[0]) * d
            stored = _view(buffer, 0, count, self._dtype)
            self.stream.reader.read_into("X", *part, stored)
            values = _as_float64(stored, buffer, _aligned(stored.nbytes))
            return _multiply(values, self.factor).reshape(-1, d)

        def advise(part: Rows) -> None:
            self.stream.reader.advise("X", *part)

        return self.stream.ahead(ranges, size, read, advise)


class StreamedCSR(CSRBlock):
    """A sparse block whose entries are read from its party's file in every pass; row pointers stay in memory.

    Parameters
    ----------
    party : PartyData
        Of kind "csr", already validated (:func:`stream_block`).
    indptr : ndarray of int64, shape (N + 1,)
        Checked row pointers.
    pool : BufferPool, optional
    """

    def __init__(self, party: PartyData, indptr: np.ndarray, pool: BufferPool | None = None) -> None:
        self.shape = (party.n_samples, party.n_features)
        self.indptr = indptr
        self.nbytes = indptr.nbytes
        self.density = int(indptr[-1]) / (self.shape[0] * self.shape[1])
        self.stream = _Stream(party, ("X/data", "X/indices"), pool)
        self.factor = 1.0
        # A tile holds as many entries as are meant, or one long row.
        self._longest = min(max(TILE_ENTRIES, int(np.diff(indptr).max())), int(indptr[-1]))

    def to_scipy(self) -> Any:
        raise TypeError("a streamed block is never whole in memory")

    def tiles(self, rows: Rows) -> Iterator[tuple[Rows, _SparseTile]]:
        return self._read(csr_tiles(rows, self.indptr), self._longest)

    def once(self, rows: Rows) -> Iterator[tuple[Rows, _SparseTile]]:
        return self.tiles(rows)

    def walk(self, ranges: Sequence[Rows]) -> Generator[tuple[Rows, _SparseTile], None, None]:
        largest = max(int(self.indptr[stop] - self.indptr[start]) for start, stop in ranges)
        return self._read(iter(ranges), largest)

    def _read(self, ranges: Iterator[Rows], largest: int) -> Generator[tuple[Rows, _SparseTile], None, None]:
        """Tiles of given ranges, of at most so many entries each."""
        indptr, reader = self.indptr, self.stream.reader
        types = [reader.dtypes["X/data"], reader.dtypes["X/indices"]]
        size = _buffer_size(largest, types[0].itemsize, types[1].itemsize)

        def read(part: Rows, buffer: np.ndarray) -> _SparseTile:
            own = indptr[part[0] : part[1] + 1]
            first, last = int(own[0]), int(own[-1])
            count = last - first
            indices = _view(buffer, 0, count, types[1])
            reader.read_into("X/indices", first, last, indices)
            stored = _view(buffer, _aligned(indices.nbytes), count, types[0])
            reader.read_into("X/data", first, last, stored)
            data = _as_float64(stored, buffer, _aligned(indices.nbytes) + _aligned(stored.nbytes))
            return own - first, unsigned_indices(indices, self.shape[1]), _multiply(data, self.factor)

        def advise(part: Rows) -> None:
            first, last = int(indptr[part[0]]), int(indptr[part[1]])
            reader.advise("X/indices", first, last)
            reader.advise("X/data", first, last)

        return self.stream.ahead(ranges, size, read, advise)


def _as_float64(stored: np.ndarray, buffer: np.ndarray, place: int) -> np.ndarray:
    """Values as the kernels take them: as they are, or widened at another place of the buffer."""
    if stored.dtype == np.float64:
        return stored
    wide = _view(buffer, place, stored.size, np.dtype(np.float64))
    wide[:] = stored
    return wide


def _multiply(values: np.ndarray, factor: float) -> np.ndarray:
    """Multiply values in place: in memory and streamed the same arithmetic, and no copy."""
    if factor != 1.0:
        with np.errstate(
            over="ignore", under="ignore"
        ):  # squares that overflow are refused with their column
            np.multiply(values, factor, out=values)
    return values


def _view(buffer: np.ndarray, start: int, count: int, dtype: np.dtype) -> np.ndarray:
    return buffer[start : start + count * dtype.itemsize].view(dtype)


def _aligned(size: int) -> int:
    return -(-size // 64) * 64


def _buffer_size(count: int, value_bytes: int, index_bytes: int = 0) -> int:
    """Bytes of a buffer for ``count`` values and indices as stored, and for the values as float64."""
    widened = 8 if value_bytes != 8 else 0
    return sum(_aligned(count * size) for size in (value_bytes, index_bytes, widened))


def _dense_values(n_columns: int) -> int:
    return max(1, TILE_BYTES // (8 * n_columns)) * n_columns


def buffer_bytes(party: PartyData, n_threads: int) -> int:
    """Memory that streaming a party takes beside its row pointers, with two buffers for each thread.

    Parameters
    ----------
    party : PartyData
    n_threads : int
    """
    if party.nnz is None:
        size = _buffer_size(_dense_values(party.n_features), party.dtype.itemsize)
    else:
        # A row is never divided; how long the longest is, only its row pointers tell.
        longest = min(max(TILE_ENTRIES, party.n_features), party.nnz)
        size = _buffer_size(longest, party.dtype.itemsize, 8)
    return 2 * n_threads * size


def stream_block(party: PartyData, pool: BufferPool | None = None) -> FeatureBlock:
    """Validate a party's file in one pass and open it for streaming.

    Parameters
    ----------
    party : PartyData
    pool : BufferPool, optional
        Where buffers come from; one of the process by default.

    Returns
    -------
    FeatureBlock

    Raises
    ------
    FormatError, InputError, StorageError
        As from :meth:`PartyData.load`: checksums, row pointers, order of the
        columns and finite values are all checked, once.
    """
    for _ in party.iter_rows():
        pass
    if party.nnz is None:
        return StreamedDense(party, pool)
    return StreamedCSR(party, party.row_pointers(), pool)


def load_block(party: PartyData, streamed: bool = False, factor: float = 1.0) -> FeatureBlock:
    """The feature block of a party, in memory or streamed.

    Parameters
    ----------
    party : PartyData
    streamed : bool
        Whether it stays on disk.
    factor : float
        What every column is multiplied by, after it was widened to float64; positive.

    Returns
    -------
    FeatureBlock
    """
    if streamed:
        block = stream_block(party)
        assert isinstance(block, StreamedDense | StreamedCSR)  # there is no other kind
        block.factor = factor
        return block
    block = as_block(party.load(), party.name)
    assert isinstance(block, DenseBlock | CSRBlock)
    _multiply(block.matrix if isinstance(block, DenseBlock) else block.data, factor)
    block.largest *= factor
    return block

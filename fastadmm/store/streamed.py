"""Feature blocks that stay on disk and are read tile by tile.

Every tile holds the rows that the block in memory would compute on
(:mod:`fastadmm.blocks.tiles`), and the arithmetic is inherited, or that of kernels
that read and add up in the same order (:mod:`fastadmm.kernels.file_rows`):
results are those of the block in memory, to the last bit.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from fastadmm.blocks.block import (
    CSRBlock,
    DenseBlock,
    FeatureBlock,
    as_block,
    fours,
    split_fours,
    unsigned_indices,
)
from fastadmm.blocks.tiles import TILE_ENTRIES, Rows, csr_tiles, dense_tiles, tile_rows
from fastadmm.engine.engine import Engine
from fastadmm.errors import StorageError
from fastadmm.files.atomic import shown
from fastadmm.store.party_file import PARTY_TYPE, PARTY_VERSIONS, PartyData
from fastadmm.store.row_reader import RowReader

__all__ = [
    "BufferPool",
    "StreamedCSR",
    "StreamedDense",
    "block_of",
    "buffer_bytes",
    "load_block",
    "stream_block",
]

_Tile = TypeVar("_Tile")

#: Takes a place's arguments, first and last row; returns the first row that it could not read.
_Kernel = Callable[..., int]

#: Row pointers, indices and values of some rows.
_SparseTile = tuple[np.ndarray, np.ndarray, np.ndarray]

#: Page-aligned buffers spare the system a partial page at both ends.
_ALIGNMENT = 4096

#: Tiles that a kernel reads and computes in one call, and that the system fetches ahead.
BATCH_TILES = 16


class BufferPool:
    """Buffers for streaming; there are as many as were ever in use at once.

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


@dataclass(frozen=True)
class _Place:
    """A buffer that kernels of :mod:`fastadmm.kernels.file_rows` read rows into, and what they need."""

    arguments: tuple[Any, ...]
    #: Reads the tile from a row to another at the latest in another way, which tells why it failed.
    read: Callable[[int, int], None]


class _Stream:
    """What both kinds of block share: an open file, and reading it ahead."""

    def __init__(self, party: PartyData, keys: tuple[str, ...], pool: BufferPool | None = None) -> None:
        self.reader = RowReader(party.path, keys, PARTY_TYPE, PARTY_VERSIONS)
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
        """Read ranges in turn.

        Parameters
        ----------
        ranges : iterable of (int, int)
            Consecutive.
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
        self, batches: Sequence[Rows], place: _Place, kernel: _Kernel, advise: Callable[[Rows], None]
    ) -> None:
        """Let a kernel read and compute batch after batch.

        Between two of them the interpreter has its turn: an interrupt is noticed.

        Parameters
        ----------
        batches : sequence of (int, int)
            Consecutive ranges of rows.
        place : _Place
        kernel : callable
            Takes the place's arguments and a range, and returns the first row that it could not read.
        advise : callable
            As in :meth:`tiles`.

        Raises
        ------
        FormatError, InputError, StorageError
            As in :meth:`RowReader.read_into`.
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


class StreamedDense(DenseBlock):
    """A dense block that is read from its party's file in every pass.

    Parameters
    ----------
    party : PartyData
        Of kind "dense", already validated (:func:`stream_block`).
    pool : BufferPool, optional
    """

    in_memory = False

    def __init__(self, party: PartyData, pool: BufferPool | None = None) -> None:
        self.shape = (party.n_samples, party.n_features)
        self.nbytes = 0
        self.density = 1.0
        self.stream = _Stream(party, ("X",), pool)
        self.factor = 1.0
        self._dtype = party.dtype

    def tiles(self, rows: Rows) -> Iterator[tuple[Rows, np.ndarray]]:
        d = self.shape[1]
        return self._read(dense_tiles(rows, d), tile_rows(d) * d)

    def once(self, rows: Rows) -> Iterator[tuple[Rows, np.ndarray]]:
        return self.tiles(rows)

    def _read(self, ranges: Iterable[Rows], largest: int) -> Generator[tuple[Rows, np.ndarray], None, None]:
        """Tiles of given ranges, of at most so many values each."""
        d = self.shape[1]
        size = _buffer_size(largest, self._dtype.itemsize)

        def read(part: Rows, buffer: np.ndarray) -> np.ndarray:
            count = (part[1] - part[0]) * d
            stored, values = self._views(buffer, count)
            self.stream.read("X", *part, stored)
            if values is not stored:
                values[:] = stored
            return _multiply(values, self.factor).reshape(-1, d)

        return self.stream.tiles(ranges, size, read, self._advise)

    def _advise(self, rows: Rows) -> None:
        self.stream.reader.advise("X", *rows)

    def _views(self, buffer: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Places in a buffer of so many values: as stored, and as float64, which may be the same."""
        stored = _view(buffer, 0, count, self._dtype)
        return stored, _widened(stored, buffer, _aligned(stored.nbytes))

    @contextmanager
    def _place(self, step: int) -> Iterator[_Place]:
        """A buffer of so many rows."""
        d, reader = self.shape[1], self.stream.reader
        with self.stream.buffer(_buffer_size(step * d, self._dtype.itemsize)) as buffer:
            stored, values = self._views(buffer, step * d)

            def read(row: int, stop: int) -> None:
                count = min(step, stop - row)
                reader.read_into("X", row, row + count, stored[: count * d])

            arguments = (reader.descriptor, *reader.place("X"), stored, values, self.factor, step)
            yield _Place(arguments, read)

    def _pass(self, rows: Rows, kernel: _Kernel) -> None:
        """Let a kernel of :mod:`fastadmm.kernels.file_rows` read and compute the rows of a range."""
        d = self.shape[1]
        with self._place(tile_rows(d)) as place:
            self.stream.run(list(dense_tiles(rows, d, BATCH_TILES)), place, kernel, self._advise)

    def product_into(self, x: np.ndarray, out: np.ndarray, engine: Engine) -> None:
        if not self.stream.direct:
            super().product_into(x, out, engine)
            return
        from fastadmm.kernels.file_rows import dense_product_from_file

        x = np.ascontiguousarray(x)

        def kernel(*place: Any) -> int:
            return dense_product_from_file(x, out[place[-2] : place[-1]], *place)

        def work(rows: Rows) -> None:
            self._pass(rows, kernel)

        engine.by_leaf(work, self._leaves(engine))

    def transposed_products(self, vectors: Sequence[np.ndarray], engine: Engine) -> list[np.ndarray]:
        if not self.stream.direct:
            return super().transposed_products(vectors, engine)
        from fastadmm.kernels.file_rows import dense_transposed_from_file

        def work(rows: Rows) -> np.ndarray:
            totals = np.zeros((len(vectors), self.shape[1]))

            def kernel(*place: Any) -> int:
                return dense_transposed_from_file(_stacked(vectors, *place[-2:]), totals, *place)

            self._pass(rows, kernel)
            return totals

        size = len(vectors) * self.shape[1]
        return list(engine.sums(work, self._leaves(engine, size), size=size))


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

    in_memory = False

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

    def _read(self, ranges: Iterable[Rows], largest: int) -> Generator[tuple[Rows, _SparseTile], None, None]:
        """Tiles of given ranges, of at most so many entries each."""
        indptr = self.indptr

        def read(part: Rows, buffer: np.ndarray) -> _SparseTile:
            own = indptr[part[0] : part[1] + 1]
            first, last = int(own[0]), int(own[-1])
            indices, stored, values = self._views(buffer, last - first)
            self.stream.read("X/indices", first, last, indices)
            self.stream.read("X/data", first, last, stored)
            if values is not stored:
                values[:] = stored
            return own - first, unsigned_indices(indices, self.shape[1]), _multiply(values, self.factor)

        return self.stream.tiles(ranges, self._size(largest), read, self._advise)

    def _advise(self, rows: Rows) -> None:
        first, last = int(self.indptr[rows[0]]), int(self.indptr[rows[1]])
        self.stream.reader.advise("X/indices", first, last)
        self.stream.reader.advise("X/data", first, last)

    def _size(self, count: int) -> int:
        """Bytes of a buffer for so many entries."""
        types = self.stream.reader.dtypes
        return _buffer_size(count, types["X/data"].itemsize, types["X/indices"].itemsize)

    def _views(self, buffer: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Places in a buffer of so many entries: indices, values as stored, and as float64."""
        types = self.stream.reader.dtypes
        indices = _view(buffer, 0, count, types["X/indices"])
        begin = _aligned(indices.nbytes)
        stored = _view(buffer, begin, count, types["X/data"])
        return indices, stored, _widened(stored, buffer, begin + _aligned(stored.nbytes))

    @contextmanager
    def _place(self, most: int) -> Iterator[_Place]:
        """A buffer of so many entries."""
        reader, indptr = self.stream.reader, self.indptr
        offsets, chunk_rows = zip(*[reader.place(key) for key in ("X/indices", "X/data")])
        with self.stream.buffer(self._size(most)) as buffer:
            indices, stored, values = self._views(buffer, most)
            unsigned = indices.view(f"u{indices.itemsize}")

            def read(row: int, stop: int) -> None:
                first = int(indptr[row])
                fitting = int(np.searchsorted(indptr, first + most, side="right")) - 1
                last = int(indptr[min(max(fitting, row + 1), stop)])
                reader.read_into("X/indices", first, last, indices[: last - first])
                reader.read_into("X/data", first, last, stored[: last - first])

            arguments = (
                reader.descriptor,
                offsets,
                chunk_rows,
                unsigned,
                stored,
                values,
                self.factor,
                indptr,
            )
            yield _Place(arguments, read)

    def _pass(self, rows: Rows, kernel: _Kernel) -> None:
        """Let a kernel of :mod:`fastadmm.kernels.file_rows` read and compute the rows of a range."""
        with self._place(self._longest) as place:
            self.stream.run(list(csr_tiles(rows, self.indptr, BATCH_TILES)), place, kernel, self._advise)

    def product_into(self, x: np.ndarray, out: np.ndarray, engine: Engine) -> None:
        if not self.stream.direct:
            super().product_into(x, out, engine)
            return
        from fastadmm.kernels.file_rows import csr_product_from_file

        def kernel(*place: Any) -> int:
            return csr_product_from_file(x, out[place[-2] : place[-1]], *place)

        def work(rows: Rows) -> None:
            self._pass(rows, kernel)

        engine.by_leaf(work, self._leaves(engine))

    def transposed_products(self, vectors: Sequence[np.ndarray], engine: Engine) -> list[np.ndarray]:
        if not self.stream.direct:
            return super().transposed_products(vectors, engine)
        from fastadmm.kernels.file_rows import csr_images_from_file, csr_transposed_from_file

        def alone(rows: Rows) -> np.ndarray:
            total, v = np.zeros(self.shape[1]), vectors[0]

            def kernel(*place: Any) -> int:
                return csr_transposed_from_file(v[place[-2] : place[-1]], total, *place)

            self._pass(rows, kernel)
            return total

        def by_four(rows: Rows) -> np.ndarray:
            totals = self._zero_fours(len(vectors))

            def kernel(*place: Any) -> int:
                return csr_images_from_file(fours(vectors, *place[-2:]), totals, *place)

            self._pass(rows, kernel)
            return totals

        if len(vectors) == 1:
            return [engine.sums(alone, self._leaves(engine, self.shape[1]), size=self.shape[1])]
        size = len(vectors) * self.shape[1]
        return split_fours(engine.sums(by_four, self._leaves(engine, size), size=size), len(vectors))


def _stacked(vectors: Sequence[np.ndarray], start: int, stop: int) -> np.ndarray:
    """Some rows of vectors as one array, without a copy of a single one."""
    if len(vectors) == 1:
        return np.ascontiguousarray(vectors[0][start:stop]).reshape(1, -1)
    return np.array([v[start:stop] for v in vectors])


def _widened(stored: np.ndarray, buffer: np.ndarray, place: int) -> np.ndarray:
    """Where values go as the kernels take them: nowhere else, or to another place of the buffer."""
    return stored if stored.dtype == np.float64 else _view(buffer, place, stored.size, np.dtype(np.float64))


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


def buffer_bytes(party: PartyData, n_threads: int) -> int:
    """Memory that streaming a party takes beside its row pointers, with two buffers for each thread."""
    if party.nnz is None:
        size = _buffer_size(tile_rows(party.n_features) * party.n_features, party.dtype.itemsize)
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
        Factor of every column, applied after conversion to float64; positive.
    """
    if streamed:
        block = stream_block(party)
        assert isinstance(block, StreamedDense | StreamedCSR)  # there is no other kind
        block.factor = factor
        return block
    return block_of(party.load(), party.name, factor)


def block_of(matrix: Any, name: str, factor: float = 1.0, engine: Engine | None = None) -> FeatureBlock:
    """The block in memory of what a party's file holds.

    Parameters
    ----------
    matrix : ndarray or scipy.sparse.csr_array, of shape (N, d)
        From :meth:`PartyData.load`.
    name : str
        Of the party.
    factor : float
        As in :func:`load_block`.
    engine : Engine, optional
        As in :func:`fastadmm.blocks.block.as_block`.
    """
    block = as_block(matrix, name, engine)
    assert isinstance(block, DenseBlock | CSRBlock)
    _multiply(block.matrix if isinstance(block, DenseBlock) else block.data, factor)
    block.largest *= factor
    return block

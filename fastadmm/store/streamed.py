"""Feature blocks that stay on disk and are read tile by tile.

Every tile holds the rows that the block in memory would compute on
(:mod:`fastadmm.blocks.tiles`), and the arithmetic is inherited: results are those of the block in memory, to
the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator
from copy import copy
from typing import Any, TypeVar

import numpy as np

from fastadmm.blocks.block import (
    CSRBlock,
    DenseBlock,
    FeatureBlock,
    as_block,
    mostly_zero,
    tell_of_all,
    unsigned_indices,
)
from fastadmm.blocks.tiles import TILE_ENTRIES, Rows, csr_tiles, dense_tiles, tile_rows
from fastadmm.engine.engine import Engine
from fastadmm.store.party_file import PartyData

_Tile = TypeVar("_Tile")

#: Row pointers, indices and values of some rows.
_SparseTile = tuple[np.ndarray, np.ndarray, np.ndarray]

#: Tiles that the system fetches ahead.
_AHEAD = 16


class Stream:
    """An open file, read tile by tile."""

    def __init__(self, party: PartyData, keys: tuple[str, ...]) -> None:
        self.reader = party.reader(keys)

    def tiles(
        self,
        ranges: Iterable[Rows],
        size: int,
        read: Callable[[Rows, np.ndarray], _Tile],
        advise: Callable[[Rows], None],
    ) -> Generator[tuple[Rows, _Tile], None, None]:
        """Read ranges in turn into one buffer of so many bytes; the system is told of them some time before.

        A thread that reads ahead would leave a tile in the cache of another
        core, and take longer to wake than a tile takes to copy.
        """
        self.reader.check_unchanged()
        wanted, told = list(ranges), 1
        buffer = np.empty(-(-size // 8), dtype=np.float64).view(np.uint8)  # aligned for any number
        for k, rows in enumerate(wanted):
            if told < len(wanted) and told - k <= _AHEAD // 2:
                until = min(k + 1 + _AHEAD, len(wanted))
                advise((wanted[told][0], wanted[until - 1][1]))
                told = until
            yield rows, read(rows, buffer)

    def close(self) -> None:
        """Close the file."""
        self.reader.close()


class StreamedDense(DenseBlock):
    """A dense block that is read from its party's file in every pass. Shapes: entries (N + 1,)."""

    in_memory = False
    entries: np.ndarray | None = None  # of shape (N + 1,)
    #: Subtracted from the columns as they are read.
    centre: np.ndarray | None = None

    def __init__(self, party: PartyData) -> None:
        self.shape = (party.n_samples, party.n_features)
        self.nbytes = 0
        self.density = 1.0
        self.stream = Stream(party, ("X",))
        self.factor = 1.0
        self.digest = party.content_digest
        self._dtype, self._first = party.dtype, party.first_row

    def of_rows(self, start: int, stop: int) -> StreamedDense:
        own = copy(self)
        own.shape, own._first = (stop - start, self.shape[1]), self._first + start
        return own

    def centred(self, centre: np.ndarray) -> StreamedDense:
        made = copy(self)
        made.centre, made.largest = centre, math.inf
        return made

    def tiles(self, rows: Rows) -> Iterator[tuple[Rows, np.ndarray]]:
        d, first, reader = self.shape[1], self._first, self.stream.reader

        def read(part: Rows, buffer: np.ndarray) -> np.ndarray:
            stored = _view(buffer, 0, (part[1] - part[0]) * d, self._dtype)
            reader.read_into("X", first + part[0], first + part[1], stored)
            found = _widened(stored, buffer, self.factor).reshape(-1, d)
            if self.centre is not None:
                found -= self.centre
            return found

        def advise(part: Rows) -> None:
            reader.advise("X", first + part[0], first + part[1])

        size = _buffer_size(tile_rows(d) * d, self._dtype.itemsize)
        return self.stream.tiles(dense_tiles(rows, d), size, read, advise)


class StreamedCSR(CSRBlock):
    """A sparse block whose entries are read from its party's file in every pass; row pointers stay in memory.

    Shapes: indptr (N + 1,).
    """

    in_memory = False

    def __init__(self, party: PartyData, indptr: np.ndarray) -> None:
        self.shape = (party.n_samples, party.n_features)
        self.indptr = indptr
        self.nbytes = indptr.nbytes
        self.n_entries = int(indptr[-1] - indptr[0])
        self.density = self.n_entries / (self.shape[0] * self.shape[1])
        self.stream = Stream(party, ("X/data", "X/indices"))
        self.factor = 1.0
        self.digest = party.content_digest
        # A tile holds as many entries as are meant, or one long row.
        self._longest = min(max(TILE_ENTRIES, int(np.diff(indptr).max())), self.n_entries)

    def of_rows(self, start: int, stop: int) -> StreamedCSR:
        own = copy(self)
        own.shape, own.indptr = (stop - start, self.shape[1]), self.indptr[start : stop + 1]
        own.nbytes, own.n_entries = own.indptr.nbytes, int(own.indptr[-1] - own.indptr[0])
        return own

    def tiles(self, rows: Rows) -> Iterator[tuple[Rows, _SparseTile]]:
        indptr, reader = self.indptr, self.stream.reader
        of_values, of_indices = reader.dtypes["X/data"], reader.dtypes["X/indices"]

        def read(part: Rows, buffer: np.ndarray) -> _SparseTile:
            own = indptr[part[0] : part[1] + 1]
            first, last = int(own[0]), int(own[-1])
            indices = _view(buffer, 0, last - first, of_indices)
            stored = _view(buffer, _aligned(indices.nbytes), last - first, of_values)
            reader.read_into("X/indices", first, last, indices)
            reader.read_into("X/data", first, last, stored)
            values = _widened(stored, buffer, self.factor)
            return own - first, unsigned_indices(indices, self.shape[1]), values

        def advise(part: Rows) -> None:
            for key in ("X/indices", "X/data"):
                reader.advise(key, int(indptr[part[0]]), int(indptr[part[1]]))

        size = _buffer_size(self._longest, of_values.itemsize, of_indices.itemsize)
        return self.stream.tiles(csr_tiles(rows, indptr), size, read, advise)


class CompressedRows(CSRBlock):
    """A dense block most of whose entries are zero: compressed, as it would be in memory, while it is read.

    Shapes: dense (N, d); indptr (N + 1,).
    """

    in_memory = False

    def __init__(self, dense: StreamedDense, indptr: np.ndarray, factor: float, entries: int) -> None:
        self.dense, self.indptr, self.factor = dense, indptr, factor
        self.shape, self.nbytes, self.all_rows = dense.shape, indptr.nbytes, dense.all_rows
        self.density = entries / (dense.whole_shape[0] * dense.shape[1])
        self.largest, self.digest = dense.largest, dense.digest

    def of_rows(self, start: int, stop: int) -> CompressedRows:
        own = copy(self)
        own.dense = self.dense.of_rows(start, stop)
        own.indptr = self.indptr[start : stop + 1]
        own.shape, own.nbytes = own.dense.shape, own.indptr.nbytes
        return own

    def tiles(self, rows: Rows) -> Iterator[tuple[Rows, _SparseTile]]:
        from fastadmm.kernels.csr import dense_compress

        indices, data = np.empty(0, dtype=np.uint16), np.empty(0)
        for start, stop in csr_tiles(rows, self.indptr):
            own = self.indptr[start : stop + 1] - self.indptr[start]
            if own[-1] > len(data):
                indices, data = np.empty(own[-1], dtype=np.uint16), np.empty(own[-1])
            for (first, last), part in self.dense.tiles((start, stop)):
                dense_compress(part, own[first - start : last - start + 1], indices, data, 0, last - first)
            if self.factor != 1.0:
                with np.errstate(over="ignore"):  # squares that overflow are refused with their column
                    data[: own[-1]] *= self.factor
            yield (start, stop), (own, indices, data)


def _widened(stored: np.ndarray, buffer: np.ndarray, factor: float) -> np.ndarray:
    """Stored values as the kernels take them, times a factor: in place, or at the end of the buffer."""
    values = stored
    if stored.dtype != np.float64:
        values = _view(buffer, buffer.nbytes - _aligned(8 * stored.size), stored.size, np.dtype(np.float64))
        values[:] = stored
    return _multiply(values, factor)


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
    """Memory that streaming a party takes beside its row pointers: two buffers a thread, for tile pairs."""
    if party.nnz is None:
        size = _buffer_size(tile_rows(party.n_features) * party.n_features, party.dtype.itemsize)
    else:
        # A row is never divided; how long the longest is, only its row pointers tell.
        longest = min(max(TILE_ENTRIES, party.n_features), party.nnz)
        size = _buffer_size(longest, party.dtype.itemsize, 8)
    return 2 * n_threads * size


def read_party(party: PartyData, streamed: bool) -> Any:
    """What :func:`block_of` makes a block of: a party's matrix, or its file, validated and open."""
    if not streamed:
        return party.load()
    if party.nnz is not None:
        for piece in party.iter_rows():
            del piece  # before the next one is read
        return StreamedCSR(party, party.row_pointers())
    entries = np.zeros(party.n_samples + 1, dtype=np.int64)
    for start, part in party.iter_rows():
        assert isinstance(part, np.ndarray)  # that is what dense means
        entries[start + 1 : start + 1 + len(part)] = np.count_nonzero(part, axis=1)
        del part  # before the next one is read
    block = StreamedDense(party)
    block.entries = np.cumsum(entries, out=entries)
    return block


def load_block(party: PartyData, streamed: bool = False, factor: float = 1.0) -> FeatureBlock:
    """The feature block of a party, in memory or streamed."""
    return block_of(read_party(party, streamed), party.name, factor)


def block_of(matrix: Any, name: str, factor: float = 1.0, engine: Engine | None = None) -> FeatureBlock:
    """The block of what a party's file holds. Shapes: matrix (N, d)."""
    if isinstance(matrix, StreamedDense | StreamedCSR):
        return _open_block(matrix, factor, engine)
    block = as_block(matrix, name, engine)
    assert isinstance(block, DenseBlock | CSRBlock)
    _multiply(block.matrix if isinstance(block, DenseBlock) else block.data, factor)
    block.largest *= factor
    return block


def _open_block(block: StreamedDense | StreamedCSR, factor: float, engine: Engine | None) -> FeatureBlock:
    """An open file as a block of the kind that its rows would be in memory."""
    if isinstance(block, StreamedCSR):
        block.factor = factor
        if engine is not None:
            tell_of_all(block, engine, block.n_entries)
        return block
    entries, block.entries = block.entries, None
    assert entries is not None  # counted when the file was opened
    of_all = int(entries[-1]) if engine is None else tell_of_all(block, engine, int(entries[-1]))
    if mostly_zero(block, of_all):
        return CompressedRows(block, entries, factor, of_all)
    block.factor = factor
    return block

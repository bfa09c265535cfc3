"""Feature blocks that stay on disk and are read tile by tile.

Every tile holds the rows that the block in memory would compute on
(:mod:`fastadmm.blocks.tiles`), and the arithmetic is inherited, or that of kernels
that read and add up in the same order (:mod:`fastadmm.kernels.file_rows`):
results are those of the block in memory, to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from typing import Any

import numpy as np

from fastadmm.blocks.block import (
    CSRBlock,
    DenseBlock,
    FeatureBlock,
    as_block,
    fours,
    mostly_zero,
    split_fours,
    tell_of_all,
    unsigned_indices,
)
from fastadmm.blocks.tiles import TILE_ENTRIES, Rows, csr_tiles, dense_tiles, tile_rows
from fastadmm.engine.engine import Engine
from fastadmm.store.party_file import PartyData
from fastadmm.store.stream import BATCH_TILES, BufferPool, Kernel, Place, Stream

__all__ = [
    "BufferPool",
    "CompressedRows",
    "StreamedCSR",
    "StreamedDense",
    "block_of",
    "buffer_bytes",
    "load_block",
    "read_party",
    "stream_block",
]

#: Row pointers, indices and values of some rows.
_SparseTile = tuple[np.ndarray, np.ndarray, np.ndarray]


class StreamedDense(DenseBlock):
    """A dense block that is read from its party's file in every pass. Shapes: entries (N + 1,)."""

    in_memory = False
    entries: np.ndarray | None = None  # of shape (N + 1,)
    #: Subtracted from the columns as they are read.
    centre: np.ndarray | None = None

    def __init__(self, party: PartyData, pool: BufferPool | None = None) -> None:
        self.shape = (party.n_samples, party.n_features)
        self.nbytes = 0
        self.density = 1.0
        self.stream = Stream(party, ("X",), pool)
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

    @property
    def _direct(self) -> bool:
        """Whether kernels read the file themselves."""
        return self.stream.direct and self.centre is None

    def tiles(self, rows: Rows) -> Iterator[tuple[Rows, np.ndarray]]:
        d = self.shape[1]
        return self._read(dense_tiles(rows, d), tile_rows(d) * d)

    def _read(self, ranges: Iterable[Rows], largest: int) -> Generator[tuple[Rows, np.ndarray], None, None]:
        """Tiles of given ranges, of at most so many values each."""
        d = self.shape[1]
        size = _buffer_size(largest, self._dtype.itemsize)

        def read(part: Rows, buffer: np.ndarray) -> np.ndarray:
            count = (part[1] - part[0]) * d
            stored, values = self._views(buffer, count)
            self.stream.read("X", *self._in_file(part), stored)
            if values is not stored:
                values[:] = stored
            found = _multiply(values, self.factor).reshape(-1, d)
            if self.centre is not None:
                found -= self.centre
            return found

        return self.stream.tiles(ranges, size, read, lambda part: self._advise(self._in_file(part)))

    def _in_file(self, rows: Rows) -> Rows:
        return rows[0] + self._first, rows[1] + self._first

    def _advise(self, rows: Rows) -> None:
        """Of rows as the file counts them."""
        self.stream.reader.advise("X", *rows)

    def _views(self, buffer: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Places in a buffer of so many values: as stored, and as float64, which may be the same."""
        stored = _view(buffer, 0, count, self._dtype)
        return stored, _widened(stored, buffer, _aligned(stored.nbytes))

    @contextmanager
    def _place(self, step: int) -> Iterator[Place]:
        """A buffer of so many rows."""
        d, reader = self.shape[1], self.stream.reader
        with self.stream.buffer(_buffer_size(step * d, self._dtype.itemsize)) as buffer:
            stored, values = self._views(buffer, step * d)

            def read(row: int, stop: int) -> None:
                count = min(step, stop - row)
                reader.read_into("X", row, row + count, stored[: count * d])

            arguments = (reader.descriptor, *reader.place("X"), stored, values, self.factor, step)
            yield Place(arguments, read)

    def _pass(self, rows: Rows, kernel: Kernel) -> None:
        """Let a kernel of :mod:`fastadmm.kernels.file_rows` read and compute the rows of a range.

        It is told rows as the file counts them.
        """
        d = self.shape[1]
        with self._place(tile_rows(d)) as place:
            batches = [self._in_file(part) for part in dense_tiles(rows, d, BATCH_TILES)]
            self.stream.run(batches, place, kernel, self._advise)

    def product_into(self, x: np.ndarray, out: np.ndarray, engine: Engine) -> None:
        if not self._direct:
            super().product_into(x, out, engine)
            return
        from fastadmm.kernels.file_rows import dense_product_from_file

        x, first = np.ascontiguousarray(x), self._first

        def kernel(*place: Any) -> int:
            return dense_product_from_file(x, out[place[-2] - first : place[-1] - first], *place)

        def work(rows: Rows) -> None:
            self._pass(rows, kernel)

        engine.by_leaf(work, self._leaves(engine))

    def transposed_products(self, vectors: Sequence[np.ndarray], engine: Engine) -> list[np.ndarray]:
        if not self._direct:
            return super().transposed_products(vectors, engine)
        from fastadmm.kernels.file_rows import dense_transposed_from_file

        first = self._first

        def work(rows: Rows) -> np.ndarray:
            totals = np.zeros((len(vectors), self.shape[1]))

            def kernel(*place: Any) -> int:
                own = _stacked(vectors, place[-2] - first, place[-1] - first)
                return dense_transposed_from_file(own, totals, *place)

            self._pass(rows, kernel)
            return totals

        size = len(vectors) * self.shape[1]
        return list(engine.sums(work, self._leaves(engine, size), size=size))


class StreamedCSR(CSRBlock):
    """A sparse block whose entries are read from its party's file in every pass; row pointers stay in memory.

    Shapes: indptr (N + 1,).
    """

    in_memory = False

    def __init__(self, party: PartyData, indptr: np.ndarray, pool: BufferPool | None = None) -> None:
        self.shape = (party.n_samples, party.n_features)
        self.indptr = indptr
        self.nbytes = indptr.nbytes
        self.n_entries = int(indptr[-1] - indptr[0])
        self.density = self.n_entries / (self.shape[0] * self.shape[1])
        self.stream = Stream(party, ("X/data", "X/indices"), pool)
        self.factor = 1.0
        self.digest = party.content_digest
        # A tile holds as many entries as are meant, or one long row.
        self._longest = min(max(TILE_ENTRIES, int(np.diff(indptr).max())), self.n_entries)

    def of_rows(self, start: int, stop: int) -> StreamedCSR:
        own = copy(self)
        own.shape, own.indptr = (stop - start, self.shape[1]), self.indptr[start : stop + 1]
        own.nbytes, own.n_entries = own.indptr.nbytes, int(own.indptr[-1] - own.indptr[0])
        return own

    def to_scipy(self) -> Any:
        raise TypeError("a streamed block is never whole in memory")

    def tiles(self, rows: Rows) -> Iterator[tuple[Rows, _SparseTile]]:
        return self._read(csr_tiles(rows, self.indptr), self._longest)

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
    def _place(self, most: int) -> Iterator[Place]:
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
            yield Place(arguments, read)

    def _pass(self, rows: Rows, kernel: Kernel) -> None:
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

    def to_scipy(self) -> Any:
        raise TypeError("a streamed block is never whole in memory")

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


def read_party(party: PartyData, streamed: bool, pool: BufferPool | None = None) -> Any:
    """What :func:`block_of` makes a block of: a party's matrix, or its file, validated and open."""
    if not streamed:
        return party.load()
    if party.nnz is not None:
        for piece in party.iter_rows():
            del piece  # before the next one is read
        return StreamedCSR(party, party.row_pointers(), pool)
    entries = np.zeros(party.n_samples + 1, dtype=np.int64)
    for start, part in party.iter_rows():
        assert isinstance(part, np.ndarray)  # that is what dense means
        entries[start + 1 : start + 1 + len(part)] = np.count_nonzero(part, axis=1)
        del part  # before the next one is read
    block = StreamedDense(party, pool)
    block.entries = np.cumsum(entries, out=entries)
    return block


def stream_block(party: PartyData, pool: BufferPool | None = None) -> FeatureBlock:
    """A party's block that stays on disk."""
    return block_of(read_party(party, True, pool), party.name)


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

"""Party files read in part: feature blocks tile by tile, and the columns of a party's table some at a time.

Every tile holds the rows that the block in memory would compute on
(:mod:`fastadmm.blocks.tiles`), and the arithmetic is inherited: results are those of the block in memory, to
the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse

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
from fastadmm.errors import InputError
from fastadmm.files.atomic import shown
from fastadmm.store.encoder import Bins
from fastadmm.store.party_file import PartyData, RowReader
from fastadmm.store.transform import Transform

#: Row pointers, indices and values of some rows.
_SparseTile = tuple[np.ndarray, np.ndarray, np.ndarray]

#: Tiles that the system fetches ahead.
_AHEAD = 16


class _Streamed:
    """A block that stays in its party's file."""

    in_memory = False
    factor = 1.0
    _ranges: Callable[[Rows], Iterator[Rows]]  # tiles of a range of rows
    _span: Callable[[Rows], Rows]  # where rows are in the file's datasets
    _longest: int  # values that any tile has at most
    _tile: Callable[..., Any]

    def __init__(self, party: PartyData, *keys: str) -> None:
        self.shape = (party.n_samples, party.n_features)
        self.keys, self.reader = keys, RowReader(party.path, keys)
        self.digest: str | None = party.content_digest

    def tiles(self, rows: Rows) -> Generator[tuple[Rows, Any], None, None]:
        """Read ranges of rows in turn into one buffer; the system is told of them some time before.

        A thread that reads ahead would leave a tile in the cache of another
        core, and take longer to wake than a tile takes to copy.
        """
        self.reader.check_unchanged()
        wanted, told = list(self._ranges(rows)), 1
        stored = [np.empty(self._longest, dtype=self.reader.dtypes[key]) for key in self.keys]
        # As the kernels take them: in place, where they are stored so.
        values = stored[-1] if stored[-1].dtype == np.float64 else np.empty(self._longest)
        for k, part in enumerate(wanted):
            if told < len(wanted) and told - k <= _AHEAD // 2:
                until = min(k + 1 + _AHEAD, len(wanted))
                for key in self.keys:
                    self.reader.advise(key, *self._span((wanted[told][0], wanted[until - 1][1])))
                told = until
            yield part, self._tile(part, values, *stored)


class StreamedDense(_Streamed, DenseBlock):
    """A dense block that is read from its party's file in every pass. Shapes: entries (N + 1,)."""

    nbytes = 0
    density = 1.0
    entries: np.ndarray | None = None  # of shape (N + 1,)
    #: Subtracted from the columns as they are read.
    centre: np.ndarray | None = None

    def __init__(self, party: PartyData) -> None:
        super().__init__(party, "X")
        self._first, self._longest = party.first_row, tile_rows(self.shape[1]) * self.shape[1]

    def of_rows(self, start: int, stop: int) -> StreamedDense:
        own = copy(self)
        own.shape, own._first = (stop - start, self.shape[1]), self._first + start
        return own

    def centred(self, centre: np.ndarray) -> StreamedDense:
        made = copy(self)
        made.centre, made.largest = centre, math.inf
        return made

    def _ranges(self, rows: Rows) -> Iterator[Rows]:
        return dense_tiles(rows, self.shape[1])

    def _span(self, rows: Rows) -> Rows:
        return self._first + rows[0], self._first + rows[1]

    def _tile(self, rows: Rows, values: np.ndarray, stored: np.ndarray) -> np.ndarray:
        count = (rows[1] - rows[0]) * self.shape[1]
        self.reader.read_into("X", *self._span(rows), stored[:count])
        found = _widened(stored[:count], values[:count], self.factor).reshape(-1, self.shape[1])
        if self.centre is not None:
            found -= self.centre
        return found


class StreamedCSR(_Streamed, CSRBlock):
    """A sparse block whose entries are read from its party's file in every pass; row pointers stay in memory.

    Shapes: indptr (N + 1,).
    """

    def __init__(self, party: PartyData, indptr: np.ndarray) -> None:
        super().__init__(party, "X/indices", "X/data")
        self._point_at(indptr)
        self.density = self.n_entries / (self.shape[0] * self.shape[1])
        # A tile holds as many entries as are meant, or one long row.
        self._longest = min(max(TILE_ENTRIES, int(np.diff(indptr).max())), self.n_entries)

    def _point_at(self, indptr: np.ndarray) -> None:
        self.indptr, self.nbytes, self.n_entries = indptr, indptr.nbytes, int(indptr[-1] - indptr[0])

    def of_rows(self, start: int, stop: int) -> StreamedCSR:
        own = copy(self)
        own.shape = (stop - start, self.shape[1])
        own._point_at(self.indptr[start : stop + 1])
        return own

    def _ranges(self, rows: Rows) -> Iterator[Rows]:
        return csr_tiles(rows, self.indptr)

    def _span(self, rows: Rows) -> Rows:
        return int(self.indptr[rows[0]]), int(self.indptr[rows[1]])

    def _tile(self, rows: Rows, values: np.ndarray, indices: np.ndarray, stored: np.ndarray) -> _SparseTile:
        first, last = self._span(rows)
        indices, stored = indices[: last - first], stored[: last - first]
        self.reader.read_into("X/indices", first, last, indices)
        self.reader.read_into("X/data", first, last, stored)
        values = _widened(stored, values[: last - first], self.factor)
        pointers = self.indptr[rows[0] : rows[1] + 1] - first
        return pointers, unsigned_indices(indices, self.shape[1]), values


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
            _multiply(data[: own[-1]], self.factor)
            yield (start, stop), (own, indices, data)


def _widened(stored: np.ndarray, values: np.ndarray, factor: float) -> np.ndarray:
    """Stored values as the kernels take them, times a factor."""
    if stored.dtype != np.float64:
        values[:] = stored
    return _multiply(values, factor)


def _multiply(values: np.ndarray, factor: float) -> np.ndarray:
    """Multiply values in place: in memory and streamed the same arithmetic, and no copy."""
    if factor != 1.0:
        with np.errstate(over="ignore", under="ignore"):  # what overflows is refused with its column
            np.multiply(values, factor, out=values)
    return values


def buffer_bytes(party: PartyData, n_threads: int) -> int:
    """Memory that streaming a party takes beside its row pointers: two buffers a thread, for tile pairs."""
    size = party.dtype.itemsize
    entry = size if size == 8 else size + 8  # as stored, and as float64
    if party.nnz is None:
        count = tile_rows(party.n_features) * party.n_features
    else:
        # A row is never divided; how long the longest is, only its row pointers tell.
        count, entry = min(max(TILE_ENTRIES, party.n_features), party.nnz), entry + 8
    return 2 * n_threads * count * entry


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


# --- columns of the table, one at a time: numbers as stored, categories put together again --------------


Array = np.ndarray

#: Bytes of columns that are held at a time.
_BYTES = 128 << 20


@dataclass(frozen=True)
class TableColumn:
    """A column of a party's table."""

    name: str  # of the table's column, or of the feature where the file does not know its table
    features: range  # numbers of the features that it became
    levels: tuple[str, ...] | None = None  # categories; None for a column of numbers
    bins: Bins | None = None  # where its numbers are weights of evidence


def table_columns(party: PartyData) -> list[TableColumn]:
    """The columns of a party's table; what marks missing cells is a column of its own."""
    if party.encoder is None:
        return [TableColumn(name, range(j, j + 1)) for j, name in enumerate(party.feature_names)]
    found, at = [], 0
    for column in party.encoder.columns:
        width = 1 if column.one_hot is None else len(column.one_hot)
        if width:
            name, features = party.encoder.prefix + column.name, range(at, at + width)
            found.append(TableColumn(name, features, column.one_hot, column.bins))
        at += width
        if column.indicator:
            found.append(TableColumn(party.feature_names[at], range(at, at + 1)))
            at += 1
    return found


def transform_for(party: PartyData, reference: PartyData) -> Transform | None:
    """What brings a party's rows to the scale of a reference; None where they have it."""
    if party.name != reference.name:
        place = shown(party.path)
        raise InputError(f"{place}: the party is {party.name}, but the reference is {reference.name}")
    names, transform = reference.feature_names, reference.transform
    needed = party.needs_transform(names, transform, reference.name, "convert with --like the reference")
    return transform if needed else None


def column_values(
    party: PartyData, columns: list[TableColumn], like: Transform | None = None
) -> Iterator[tuple[TableColumn, Array]]:
    """Read columns, as many at a time as memory allows. Shapes: values (N,)."""
    transform = party.transform if like is None else like
    room = max(1, _BYTES // (8 * max(party.n_samples, 1)))
    while columns:
        low = columns[0].features.start
        fitting = [column for column in columns if column.features.stop - low <= room]
        some, columns = fitting or columns[:1], columns[max(1, len(fitting)) :]
        held = _read(party, low, some[-1].features.stop, like)
        for column in some:
            own = held[:, column.features.start - low : column.features.stop - low]
            yield column, own[:, 0] if column.levels is None else _codes(own, column, transform)


def _read(party: PartyData, low: int, high: int, like: Transform | None) -> Array:
    out = np.empty((party.n_samples, high - low))
    for start, rows in party.iter_rows(max(1, _BYTES // (32 * party.n_features))):
        block: Any = rows
        if like is not None:
            block = like.apply(block.toarray() if issparse(block) and like.center is not None else block)
        block = block[:, low:high]
        out[start : start + block.shape[0]] = block.toarray() if issparse(block) else block
    return out


def _codes(block: Array, column: TableColumn, transform: Transform) -> Array:
    """Which level a row has: the feature that is 1 before the transform."""
    own = slice(column.features.start, column.features.stop)
    center = np.zeros(len(column.features)) if transform.center is None else transform.center[own]
    # Scales are positive: what is above the centre was 1. A level that all rows have is its own centre.
    on = np.where(center < 1.0, block > 0.0, block >= 0.0)
    return np.where(on.any(axis=1), np.argmax(on, axis=1), len(column.features)).astype(np.float64)

"""Tables with ids, one per party: CSV and Parquet, in one file or many, cells typed column by column."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from fastadmm.data_tools.blocks import OnRead
from fastadmm.data_tools.building import (
    Builder,
    Cells,
    Chunk,
    IdBuilder,
    Numbers,
    Places,
    Whole,
    Words,
    words_of,
)
from fastadmm.data_tools.columns import MISSING, Column, Scratch, canonical_text
from fastadmm.data_tools.csv_table import (
    SEPARATORS,
    CsvFile,
    check_separator,
    is_number,
    one_byte_encoding,
    read_as,
)
from fastadmm.data_tools.opening import NotUtf8, SourceFile, is_parts, part_files
from fastadmm.data_tools.parquet import ParquetTable
from fastadmm.data_tools.plain_text import PlainText, read_frame
from fastadmm.data_tools.suggest import nearest
from fastadmm.data_tools.threads import in_order
from fastadmm.errors import InputError
from fastadmm.files.atomic import shown

#: Also names that other modules take from here.
__all__ = ["Cells", "Column", "Layout", "Table", "canonical_text", "csv_chunks", "read_table",
           "table_of_rows"]  # fmt: skip


#: Bytes on disk from which pandas is worth its loading.
LARGE = 4 << 20

#: What pandas reads the cells of a column as, by what is wanted.
_TYPES: dict[str, Any] = {"numbers": np.float64, "ids": np.int64, "words": str}


def csv_chunks(
    source: CsvFile, wanted: Mapping[str, str], on_read: OnRead | None = None
) -> Iterator[tuple[np.ndarray, Chunk] | None]:
    """Cells of a CSV table, block by block."""

    def apart(block: tuple[int, bytes]) -> tuple[np.ndarray, Chunk] | None:
        return _take_apart(*block, source, dict(wanted))

    for found in in_order(apart, source.file.line_blocks(on_read=on_read)):
        if found is None:
            yield None
            return
        if len(found[0]):
            yield found


def _take_apart(
    first_line: int, raw: bytes, source: CsvFile, wanted: dict[str, str]
) -> tuple[np.ndarray, Chunk] | None:
    """The lines of a block's rows, and their cells; None where the block is not plain."""
    names = source.columns
    body = source.body(first_line, raw)
    text = None if body is None else PlainText.of(body, source.separator, len(names))
    if body is None or text is None:
        return None
    lines = text.lines + max(first_line, source.header_end + 1)
    if not len(lines):
        return lines, {}
    place = {name: i for i, name in enumerate(names)}
    for name, how in wanted.items():
        cell = text.cell(0, place[name])
        if how == "numbers" and not is_number(cell) and cell.lower() not in MISSING:
            wanted[name] = "words"
    numbers, ids = ([name for name, how in wanted.items() if how == kind] for kind in ("numbers", "ids"))
    frame = read_frame(body, source.separator, names, {n: _TYPES[how] for n, how in wanted.items()}, numbers)
    cells: dict[str, Numbers | Words | Whole] = {}
    if frame is not None and len(frame) == len(lines):
        values = frame[numbers].to_numpy(np.float64)
        whole, decimal = text.are_sure(values, [place[name] for name in numbers])
        for j in np.flatnonzero(whole | decimal).tolist():
            pointed = bool(decimal[j])
            cells[numbers[j]] = Numbers(np.ascontiguousarray(values[:, j]), "", pointed, pointed)
        for name in ids:
            own = frame[name].to_numpy()
            if (np.abs(own) < _LONG_ID).all() and not text.surplus(own[:, None], [place[name]]).any():
                cells[name] = Whole(own)
    # The text of the other columns decides what they are.
    rest = [name for name in wanted if name not in cells]
    if frame is None or any(wanted[name] != "words" for name in rest):
        frame = read_frame(body, source.separator, names, dict.fromkeys(rest, str))
    if frame is None or len(frame) != len(lines):
        return None
    cells |= {name: _words(frame[name]) for name in rest}
    return lines, cells


def _words(cells: Any) -> Words:
    codes, words = cells.factorize()
    return Words(codes.astype(np.int32), words.tolist())


#: Longer whole numbers are no ids that are kept as numbers.
_LONG_ID = 10**18

#: Rows of cells in Python at a time.
CHUNK_ROWS = 1 << 14


@dataclass(frozen=True)
class Layout:
    """How the text of a table is laid out; None is recognised."""

    separator: str | None = None  # between CSV cells
    encoding: str | None = None
    header: bool = True  # whether a CSV file begins with column names; otherwise they are ``c1``, ``c2``,


FOUND, PLAIN = Layout(), Cells()


@dataclass(frozen=True)
class Table:
    """One party's table."""

    path: str  # for messages
    names: list[str]  # columns in the order of the file, without those dropped
    columns: dict[str, Column]
    places: Places  # where its rows stand
    notes: list[str] = field(default_factory=list)  # how the text was read, where that was recognised
    every: list[str] = field(default_factory=list)  # columns of the file, also those dropped

    @property
    def n_rows(self) -> int:
        """Number of rows N."""
        return self.places.n_rows

    def where(self, row: int) -> str:
        """Place of a zero-based row for messages, such as ``"line 12"`` or ``"part-2.csv: line 12"``."""
        return self.places.of(row)

    def require(self, name: str, what: str) -> Column:
        """The column `name`."""
        if name not in self.columns:
            raise _absent(self.path, self.names, name, what)
        return self.columns[name]


def _absent(path: str, names: Sequence[str], name: str, what: str) -> InputError:
    return InputError(f"{path}: no {what} {name!r}{nearest(name, names)}")


def read_table(
    path: str | Path,
    layout: Layout = FOUND,
    cells: Cells = PLAIN,
    *,
    drop: Sequence[str] = (),
    only: str | None = None,
    scratch: str | Path | None = None,
    on_read: OnRead | None = None,
) -> Table:
    """Read a CSV or Parquet table."""
    parts = [SourceFile(part) for part in part_files(path)]
    for file in parts:
        if file.is_zip:
            raise InputError(
                f"{file.shown}: is a zip archive or an Excel workbook: unpack it, or save the sheet as CSV"
            )
    check_separator(layout.separator)
    reading = _Reading(shown(path), is_parts(path), Scratch(scratch), on_read or (lambda _: None))
    for file in parts:
        file.encoding = layout.encoding
    notes: list[str] = []
    while True:
        try:
            table = reading.table(parts, layout, cells, drop, only)
        except NotUtf8 as error:
            current = reading.current
            if layout.encoding is not None or current is None or current.encoding is not None:
                raise error
            current.encoding = one_byte_encoding(current)
            notes.append(read_as(current))
            continue
        return replace(table, notes=notes + table.notes)


def table_of_rows(
    name: str, columns: Sequence[str], rows: Sequence[Sequence[str]], cells: Cells = PLAIN
) -> Table:
    """A table of rows that are in memory, typed as those of a file are."""
    reading = _Reading(name, False, Scratch(), lambda _: None)

    def chunks(wanted: dict[str, str]) -> Iterator[_Rows]:
        numbered = iter(enumerate(rows, start=1))
        return (_Rows("row ", *own) for own in _python_chunks(numbered, columns, list(wanted)))

    return reading.assemble(list(columns), cells, chunks)


@dataclass(frozen=True)
class _Rows:
    """Some rows: what stands before their numbers, these numbers, how many they are, and their cells."""

    before: str
    numbers: np.ndarray | int
    count: int
    cells: Chunk


class _Reading:
    """One table on its way from files to columns."""

    def __init__(self, path: str, many: bool, scratch: Scratch, on_read: OnRead) -> None:
        self.path, self.many = path, many
        self.current: SourceFile | None = None
        self._large = False
        self._scratch, self._on_read = scratch, on_read

    def table(
        self, parts: Sequence[SourceFile], layout: Layout, cells: Cells, drop: Sequence[str], only: str | None
    ) -> Table:
        opened: list[CsvFile | ParquetTable] = []
        self._large = sum(file.size for file in parts) >= LARGE
        how: dict[str, Any] = {"drop": drop, "header": layout.header, "separator": layout.separator}
        for file in parts:
            self.current = file
            opened.append(ParquetTable(file) if file.is_parquet else CsvFile(file, **how))
        names = opened[0].columns
        for part in opened[1:]:
            _check_columns(opened[0], part)
        if only is not None and only not in names:
            raise _absent(self.path, names, only, "id column")
        kept = [name for name in names if (name not in set(drop) if only is None else name == only)]
        typed = [part for part in opened if isinstance(part, ParquetTable)]
        for part in typed:
            part.check_types(kept)
        _check_truth(typed, kept)

        def chunks(wanted: dict[str, str]) -> Iterator[_Rows]:
            return itertools.chain.from_iterable(self._part(part, wanted) for part in opened)

        table = self.assemble(kept, cells, chunks)
        return replace(table, notes=[note for part in opened for note in part.notes], every=names)

    def assemble(
        self, kept: list[str], cells: Cells, chunks: Callable[[dict[str, str]], Iterator[_Rows]]
    ) -> Table:
        """The columns of all chunks."""
        if not kept:
            raise InputError(f"{self.path}: no column left after --drop")
        builders = {name: self._builder(name, cells) for name in kept}
        places = self._collect(chunks, builders)
        if not places.n_rows:
            raise InputError(f"{self.path}: no data rows, only the header")
        # Earlier cells of a column that turns out to be text have become numbers: they are read once more.
        if late := {name for name, builder in builders.items() if builder.turned}:
            again = {name: Builder(self.path, name, replace(cells, raw=late), self._scratch) for name in late}
            self._collect(chunks, again)
            for name in late:
                builder = builders[name]
                assert isinstance(builder, Builder)
                builder.codes, builder.words = again[name].codes, again[name].words
        return Table(self.path, kept, {name: builder.finish() for name, builder in builders.items()}, places)

    def _builder(self, name: str, cells: Cells) -> Builder | IdBuilder:
        if name == cells.id and name not in cells.text:
            return IdBuilder(self.path, name, cells)
        return Builder(self.path, name, cells, self._scratch)

    def _collect(
        self, chunks: Callable[[dict[str, str]], Iterator[_Rows]], builders: Mapping[str, Builder | IdBuilder]
    ) -> Places:
        """Give cells to their builders."""
        places = Places()
        wanted = {name: _mode(builder) for name, builder in builders.items()}
        for rows in chunks(wanted):
            first = places.n_rows
            places.add(rows.before, rows.numbers, rows.count)
            for name, builder in builders.items():
                builder.add(rows.cells[name], lambda i, first=first: places.of(first + i))  # type: ignore[misc]
                wanted[name] = _mode(builder)
        return places

    def _part(self, part: CsvFile | ParquetTable, wanted: dict[str, str]) -> Iterator[_Rows]:
        """Chunks of one file."""
        self.current = part.file
        before = f"{part.file.name}: " if self.many else ""
        if isinstance(part, CsvFile):
            own = _csv_part(part, wanted, self._on_read, self._large)
        else:
            own = self._parquet(part, wanted)
        for rows in own:
            yield replace(rows, before=before + rows.before)

    def _parquet(self, part: ParquetTable, wanted: dict[str, str]) -> Iterator[_Rows]:
        done = 0
        for count, cells in part.chunks(wanted):
            yield _Rows("row ", done + 1, count, cells)
            size, n, before = part.file.size, part.n_rows, done
            done += count
            self._on_read(size * done // n - size * before // n)


def _mode(builder: Builder | IdBuilder) -> str:
    if isinstance(builder, IdBuilder):
        return "words" if builder.na else "ids"
    return "numbers" if builder.plain else "words"


def _check_columns(first: CsvFile | ParquetTable, part: CsvFile | ParquetTable) -> None:
    """Refuse a part whose columns are not those of the first."""
    where, known = part.path, first.path
    for one, other, what in ((first, part, "no column"), (part, first, "a column")):
        if lost := [name for name in one.columns if name not in set(other.columns)]:
            has = "as the first part has" if one is first else "that the first part does not have"
            raise InputError(f"{where}: {what} {lost[0]!r}, {has} ({known}): parts need the same columns")


def _check_truth(parts: Sequence[ParquetTable], names: Sequence[str]) -> None:
    """Refuse columns of truth values in some parts alone: elsewhere 1 and 'True' would be two values."""
    for name in names:
        known = [(part, kind) for part in parts if (kind := part.kind_of(name)) is not None]
        for part, kind in known:
            first, usual = known[0]
            if (kind == "bool") != (usual == "bool"):
                raise InputError(
                    f"{part.file.shown}: column {name!r} is {kind}, but {usual} in {first.file.shown}: "
                    "write it alike in all parts"
                )


def _csv_part(
    part: CsvFile, wanted: dict[str, str], on_read: Callable[[int], None], large: bool
) -> Iterator[_Rows]:
    """Chunks of a CSV file: by pandas where its table is large and it is plain, otherwise in Python."""
    done = 0
    if large and part.separator in SEPARATORS:
        for found in csv_chunks(part, wanted, on_read):
            if found is None:
                break
            yield _Rows("line ", found[0], len(found[0]), found[1])
            done += len(found[0])
        else:
            return
    rows = itertools.islice(_csv_rows(part, on_read), done, None)
    for own in _python_chunks(rows, part.columns, list(wanted)):
        yield _Rows("line ", *own)


def _csv_rows(source: CsvFile, on_read: Callable[[int], None]) -> Iterator[tuple[int, Sequence[str]]]:
    width = len(source.columns)
    for line, cells in itertools.islice(source.rows(on_read), 1 if source.header else 0, None):
        if len(cells) != width:
            raise InputError(
                f"{source.path}: line {line}: {len(cells)} cells, but there are {width} columns: correct it, "
                "or quote cells that hold the separator"
            )
        yield line, cells


def _python_chunks(
    rows: Iterator[tuple[int, Sequence[str]]], columns: Sequence[str], kept: Sequence[str]
) -> Iterator[tuple[np.ndarray, int, Chunk]]:
    at = [list(columns).index(name) for name in kept]
    while chunk := list(itertools.islice(rows, CHUNK_ROWS)):
        numbers = np.array([number for number, _ in chunk], dtype=np.int64)
        cells = {name: words_of([own[i] for _, own in chunk]) for i, name in zip(at, kept)}
        yield numbers, len(chunk), cells

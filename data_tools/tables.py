"""Tables with ids, one per party: CSV and Parquet, in one file or many, cells typed column by column."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from fastadmm.data_tools import columns
from fastadmm.data_tools.cell_text import KNOWN_UNITS, candidates, value_of, written
from fastadmm.data_tools.columns import (
    EXACT,
    MISSING,
    NOT_FINITE,
    QUOTED,
    TOO_LARGE,
    Chunk,
    Column,
    Growing,
    Numbers,
    Whole,
    Words,
    canonical_text,
    in_quotes,
    is_merging,
    is_number,
    keys_of,
    nearest,
)
from fastadmm.data_tools.csv_table import FOUND, CsvFile, Layout, is_text, one_byte_encoding, python_chunks
from fastadmm.data_tools.opening import NotUtf8, OnRead, SourceFile, is_parts, part_files
from fastadmm.data_tools.parquet import ParquetTable
from fastadmm.errors import InputError
from fastadmm.files.atomic import shown

#: Bytes on disk from which pandas is worth its loading.
LARGE = 4 << 20

_LEADING_ZERO = re.compile(r"\n[-+]?(0\d+)(?=\n)")
_NO_GROUPS = re.compile(r"\.(?!\d{3}\n)|\n[-+]?0?\.|\d{4}\.")


@dataclass(frozen=True)
class Cells:
    """What cells of a table are kept as."""

    text: Collection[str] = ()  # columns kept as text even if all their cells are numbers (categories)
    raw: Collection[str] = ()  # columns kept letter by letter, because their numbers are not written plainly
    all_raw: bool = False  # all columns are, besides those of `text`
    na: Mapping[str, Collection[str]] = field(default_factory=dict)  # words for "no value"; ``""``: in all
    id: str | None = None  # the column of ids


PLAIN = Cells()


class Places:
    """Where the rows of a table stand: in which part, in which line."""

    def __init__(self) -> None:
        self._rows: list[int] = []  # first row of each chunk
        self._chunks: list[tuple[str, np.ndarray | int]] = []  # before numbers; these, or the first
        self.n_rows = 0

    def add(self, before: str, numbers: np.ndarray) -> None:
        """Add rows."""
        if not len(numbers):
            return
        one_after_another = numbers[-1] - numbers[0] == len(numbers) - 1  # as nearly always
        self._rows.append(self.n_rows)
        self._chunks.append((before, int(numbers[0]) if one_after_another else numbers))
        self.n_rows += len(numbers)

    def last(self, row: int) -> str:
        """Place of a row of the last chunk."""
        return self.of(self._rows[-1] + row)

    def of(self, row: int) -> str:
        """Place of a row, such as ``"line 12"``."""
        at = bisect_right(self._rows, row) - 1
        before, numbers = self._chunks[at]
        row -= self._rows[at]
        return f"{before}{numbers + row if isinstance(numbers, int) else numbers[row]}"


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

    def refuse_missing(
        self, name: str, rows: np.ndarray, what: str, remedy: str = "remove these rows"
    ) -> None:
        """Refuse a column without a value in some of the rows."""
        count, at = self.columns[name].first_missing(rows)
        if count:
            problem = f"missing {what} ({count} of {len(rows)} rows): {remedy}"
            raise self.refused(name, problem, at, "" if what == "value" else what)

    def refused(self, name: str, problem: str, row: int | None = None, what: str = "") -> InputError:
        """The error about a column, or a cell of it; `what` says what kind of column it is."""
        place = "" if row is None else f"{self.where(row)}, "
        return InputError(f"{self.path}: {place}{what and what + ' '}column {name!r}: {problem}")


def _absent(path: str, names: Sequence[str], name: str, what: str) -> InputError:
    return InputError(f"{path}: no {what} {name!r}{nearest(name, names)}")


# --- reading files ---------------------------------------------------------------------------------------


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
            raise file.refused("is a zip archive or an Excel workbook: unpack it, or save the sheet as CSV")
        file.encoding = layout.encoding
    many, large = is_parts(path), sum(file.size for file in parts) >= LARGE
    opened: list[CsvFile | ParquetTable] = []
    notes: list[str] = []
    current = parts[0]

    def chunks(wanted: dict[str, str]) -> Iterator[Chunk]:
        nonlocal current
        for current, part in zip(parts, opened):
            for chunk in part.chunks(wanted, on_read or (lambda _: None), large):
                yield replace(chunk, what=f"{current.name}: {chunk.what}") if many else chunk

    while True:
        try:
            opened.clear()
            for current in parts:
                opened.append(ParquetTable(current) if current.is_parquet else CsvFile(current, layout, drop))
            names = _common_columns(opened)
            if only is not None and only not in names:
                raise _absent(shown(path), names, only, "id column")
            kept = [name for name in names if (name not in set(drop) if only is None else name == only)]
            _check_types((part for part in opened if isinstance(part, ParquetTable)), kept)
            table = _collected(shown(path), kept, cells, chunks, scratch)
        except NotUtf8 as error:
            if layout.encoding is not None or current.encoding is not None:
                raise error
            current.encoding = one_byte_encoding(current)
            notes.append(
                f"{current.shown}: not UTF-8, so read as {current.encoding}; pass --encoding if it is another"
            )
            continue
        return replace(table, notes=notes + [note for part in opened for note in part.notes], every=names)


def table_of_rows(
    name: str, columns: Sequence[str], rows: Sequence[Sequence[str]], cells: Cells = PLAIN
) -> Table:
    """A table of rows that are in memory, typed as those of a file are."""

    def chunks(wanted: dict[str, str]) -> Iterator[Chunk]:
        return python_chunks("row ", enumerate(rows, start=1), columns, wanted)

    return _collected(name, list(columns), cells, chunks)


def _common_columns(parts: Sequence[CsvFile | ParquetTable]) -> list[str]:
    """The columns of all parts; one with other columns than the first is refused."""
    first = parts[0]
    for part in parts[1:]:
        for one, other, what in ((first, part, "no column"), (part, first, "a column")):
            if lost := [name for name in one.columns if name not in set(other.columns)]:
                has = "as the first part has" if one is first else "that the first part does not have"
                raise InputError(
                    f"{part.path}: {what} {lost[0]!r}, {has} ({first.path}): parts need the same columns"
                )
    return first.columns


def _check_types(parts: Iterable[ParquetTable], names: list[str]) -> None:
    """Refuse unknown types, and truth values in some parts alone: there 1 and 'True' would be two values."""
    usual: dict[str, tuple[str, str]] = {}
    for part in parts:
        for name, kind in part.kinds(names).items():
            known, path = usual.setdefault(name, (kind, part.path))
            if (kind == "bool") != (known == "bool"):
                problem = f"is {kind}, but {known} in {path}: write it alike in all parts"
                raise InputError(f"{part.path}: column {name!r} {problem}")


#: Makes the chunks of a table; as what cells are wanted may change meanwhile.
_Chunks: TypeAlias = Callable[[dict[str, str]], Iterator[Chunk]]

#: Makes an array of a type.
_Grow: TypeAlias = Callable[[Any], Growing]


def _collected(
    path: str, kept: list[str], cells: Cells, chunks: _Chunks, scratch: str | Path | None = None
) -> Table:
    """The table of all chunks."""
    if not kept:
        raise InputError(f"{path}: no column left after --drop")

    def collect(names: Iterable[str], cells: Cells) -> tuple[Places, dict[str, Any]]:
        places, growing = Places(), partial(Growing, scratch, columns.IN_MEMORY // len(kept))
        builders: dict[str, _Cells | _Ids] = {
            name: (_Ids if name == cells.id and name not in cells.text else _Cells)(
                path, name, cells, growing, places
            )
            for name in names
        }
        wanted = {name: builder.wanted for name, builder in builders.items()}
        for chunk in chunks(wanted):
            places.add(chunk.what, chunk.numbers)
            for name, builder in builders.items():
                builder.add(chunk.cells[name])
                wanted[name] = builder.wanted
        return places, builders

    places, builders = collect(kept, cells)
    if not places.n_rows:
        raise InputError(f"{path}: no data rows, only the header")
    # Earlier cells of a column that turns out to be text have become numbers: they are read once more.
    if late := [name for name, builder in builders.items() if builder.turned]:
        _, again = collect(late, replace(cells, raw=late))
        for name in late:
            builders[name].codes, builders[name].words = again[name].codes, again[name].words
    return Table(path, kept, {name: builder.finish() for name, builder in builders.items()}, places)


# --- one column ------------------------------------------------------------------------------------------


def missing_numbers(words: Iterable[str]) -> set[float]:
    """Numbers among words for "no value", however they are written; those with leading zeros are codes."""
    plain = (word for word in words if not _LEADING_ZERO.search(f"\n{word}\n"))
    return {number for word in plain if (number := _only_number(word)) is not None}


def _only_number(cell: str) -> float | None:
    """The number that a cell can be, whatever the marks of its column; None where it may be two, or none."""
    if is_number(cell):
        return float(cell)
    parts = written(cell)
    if parts is None or parts.unit not in KNOWN_UNITS:
        return None
    readings = candidates([parts])
    return value_of(parts, readings[0]) if len(readings) == 1 else None


class _Builder:
    """Collects one column."""

    #: Numbers have come before text, or after it: the column is read once more, as text.
    turned = False

    def __init__(self, path: str, name: str, cells: Cells, growing: _Grow, places: Places) -> None:
        self.path, self.name, self._places = path, name, places
        self.text = name in cells.text or name == cells.id
        self.raw = not self.text and (cells.all_raw or name in cells.raw)
        self.na = {*cells.na.get("", ()), *cells.na.get(name, ())}
        self._na_numbers = set() if self.text else missing_numbers(self.na)

    def stripped(self, words: Sequence[str]) -> list[str]:
        """Texts without spaces around; ``""`` for those that mean "no value"."""
        cells = [word.strip() for word in words]
        if not self.text:
            cells = ["" if cell.lower() in MISSING else cell for cell in cells]
        if self.na:
            cells = ["" if self._means_missing(cell) else cell for cell in cells]
        return cells

    def _means_missing(self, cell: str) -> bool:
        """Whether a cell is one of the words for "no value", or a number that is."""
        if cell in self.na or canonical_text(cell) in self.na:
            return True
        return bool(self._na_numbers) and _only_number(cell) in self._na_numbers

    def refuse(self, cell: str, row: int, why: str, kind: type[InputError] = InputError) -> None:
        """Refuse a cell of a row of the last chunk."""
        raise kind(f"{self.path}: {self._places.last(row)}, column {self.name!r}: {cell[:40]!a} {why}")

    def kept(self, words: Sequence[str], codes: np.ndarray) -> list[str]:
        """Stripped texts as they are kept; refuses what cannot be stored, or other readers would change."""
        for k, cell in enumerate(words):
            quotes = in_quotes(cell)
            if is_text(cell) and "\0" not in cell and not quotes:
                continue
            row = int(np.flatnonzero(codes == k)[0])
            if quotes:
                self.refuse(cell, row, QUOTED)
            if is_text(cell):
                self.refuse(cell, row, "holds a NUL character; remove it")
            self.refuse(cell, row, "is not UTF-8 text: convert the file to UTF-8", NotUtf8)
        if not self.text:
            return list(words)
        return [canonical_text(word) if word.lower() not in MISSING else "" for word in words]


class _Cells(_Builder):
    """Collects cells as numbers for as long as all are numbers or missing."""

    def __init__(self, path: str, name: str, cells: Cells, growing: _Grow, places: Places) -> None:
        super().__init__(path, name, cells, growing, places)
        self.codes, self.words = growing(np.int32), dict[str, int]()
        self.numbers: Growing | None = growing(np.float64)
        self.zeros, self.points, self._kept_number = "", 0, False
        self._seen = set[bool]()  # whether cells were numbers

    @property
    def wanted(self) -> str:
        """What the next cells are wanted as, where that can be."""
        return "words" if self.text or self.raw or self.na or self.numbers is None else "numbers"

    def add(self, cells: Numbers | Words | Whole) -> None:
        """Add cells."""
        assert not isinstance(cells, Whole)
        if isinstance(cells, Numbers):
            self._add_numbers(cells)
            return
        words = self.stripped(cells.words)
        if self.numbers is not None and not (self.text or self.raw) and (found := _as_numbers(words)):
            for k in np.flatnonzero(np.abs(found.values) >= EXACT).tolist():
                if np.isinf(found.values[k]) or is_merging(words[k]):
                    why = NOT_FINITE if np.isinf(found.values[k]) else TOO_LARGE
                    self.refuse(words[k], int(np.flatnonzero(cells.codes == k)[0]), why)
            self._add_numbers(replace(found, values=found.values[cells.codes]))
            return
        words = self.kept(words, cells.codes)
        self._seen |= {is_number(word) for word in set(words) - {""}}
        if self.numbers is not None:
            self.turned |= self._kept_number
            self._add_missing(self.numbers.size)
            self.numbers = None
        table = np.array([self.words.setdefault(word, len(self.words)) for word in words], dtype=np.int32)
        self.codes.append(table[cells.codes])

    def _add_missing(self, count: int) -> None:
        if count:
            self.codes.append(np.full(count, self.words.setdefault("", len(self.words)), dtype=np.int32))

    def _add_numbers(self, cells: Numbers) -> None:
        if (infinite := np.flatnonzero(np.isinf(cells.values))).size:
            self.refuse(repr(float(cells.values[infinite[0]])), int(infinite[0]), NOT_FINITE)
        any_number = not bool(np.isnan(cells.values).all())
        self._seen |= {True} if any_number else set()
        self.zeros = self.zeros or cells.zeros
        self.points = max(self.points, cells.points)
        if self.numbers is None:
            self.turned |= any_number
            self._add_missing(len(cells.values))
        else:
            self._kept_number |= any_number
            self.numbers.append(cells.values)

    def finish(self) -> Column:
        """The column."""
        if self.numbers is not None and not self.text:
            return Column("number", self.numbers.array(), zeros=self.zeros, grouped=self.points == 1)
        mixed = len(self._seen) > 1 and not self.text
        kind = "raw" if self.raw else "mixed" if mixed else "text"
        return Column(kind, self.codes.array(), tuple(self.words))


def _as_numbers(words: Sequence[str]) -> Numbers | None:
    """Texts as numbers; None if one of them is none."""
    joined = "\n".join(words)
    if "_" in joined:
        return None
    try:
        values = np.array([word or "nan" for word in words], dtype=object).astype(np.float64)
    except ValueError:
        return None
    joined = f"\n{joined}\n"
    match = _LEADING_ZERO.search(joined) if "\n0" in joined or "\n-0" in joined or "\n+0" in joined else None
    points = 2 if _NO_GROUPS.search(joined) else 1
    return Numbers(values, match[1] if match else "", points if "." in joined else 0)


class _Ids(_Builder):
    """Collects ids: whole numbers, or the text of each row."""

    def __init__(self, path: str, name: str, cells: Cells, growing: _Grow, places: Places) -> None:
        super().__init__(path, name, cells, growing, places)
        self._chunks: list[np.ndarray] = []  # int64 or bytes
        self.wanted = "words" if self.na else "ids"

    def add(self, cells: Numbers | Words | Whole) -> None:
        """Add cells."""
        assert not isinstance(cells, Numbers)
        if isinstance(cells, Whole):
            self._chunks.append(cells.values)
            return
        words = self.kept(self.stripped(cells.words), cells.codes)
        self._chunks.append(keys_of(words)[cells.codes])

    def finish(self) -> Column:
        """The column."""
        whole = all(chunk.dtype.kind == "i" for chunk in self._chunks)
        return Column("ids", np.concatenate([own if whole else own.astype("S") for own in self._chunks]))

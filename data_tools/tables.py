"""Tables with ids, one per party: CSV and Parquet, read whole, cells typed column by column."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
from fastadmm.data_tools.csv_table import MISSING, CsvFile, is_number, is_text
from fastadmm.data_tools.number_text import KNOWN_UNITS, candidates, value_of, written
from fastadmm.data_tools.opening import NotUtf8, SourceFile, check_names
from fastadmm.data_tools.sniffing import check_separator, one_byte_encoding, read_as
from fastadmm.data_tools.suggest import nearest
from fastadmm.errors import ConfigError, InputError

__all__ = ["Cells", "Column", "Layout", "Table", "canonical_text", "read_ids", "read_table", "table_of_rows"]

#: Rows turned into arrays at a time; numbers need 8 bytes a cell afterwards, text one pointer.
CHUNK_ROWS = 1 << 14

_WHOLE = re.compile(r"\+?(-?\d+)(?:\.0*)?\Z")

_LEADING_ZERO = re.compile(r"\n[-+]?(0\d+)(?=\n)")
_NO_GROUPS = re.compile(r"\.(?!\d{3}\n)|\n[-+]?0?\.|\d{4}\.")


@dataclass(frozen=True)
class Layout:
    """How the text of a table is laid out; None is recognised.

    Attributes
    ----------
    separator : str or None
        Between CSV cells.
    encoding : str or None
    header : bool
        Whether a CSV file begins with column names; otherwise they are ``c1``, ``c2``, ...
    """

    separator: str | None = None
    encoding: str | None = None
    header: bool = True


@dataclass(frozen=True)
class Cells:
    """What cells of a table are kept as.

    Attributes
    ----------
    text : collection of str
        Columns kept as text even if all their cells are numbers (ids, categories).
    raw : collection of str
        Columns kept letter by letter, because their numbers are not written plainly.
    all_raw : bool
        All columns are, besides those of `text`.
    na : dict of str to collection of str
        Words that mean "no value", by column; ``""`` stands for all columns.
    """

    text: Collection[str] = ()
    raw: Collection[str] = ()
    all_raw: bool = False
    na: Mapping[str, Collection[str]] = field(default_factory=dict)

    def words(self, name: str) -> frozenset[str]:
        """Words that mean "no value" in a column."""
        return frozenset(self.na.get("", ())) | frozenset(self.na.get(name, ()))


FOUND, PLAIN = Layout(), Cells()


@dataclass(frozen=True)
class Column:
    """Cells of one column.

    Attributes
    ----------
    kind : {"number", "text", "mixed", "raw"}
        All cells that are not missing are numbers; none is; some are; "raw": text that nobody has looked at.
    values : ndarray
        ``(N,)`` float64 with NaN for missing cells, or object (str, stripped) with ``""`` for them.
    zeros : str
        A number with leading zeros, as codes have them; ``""``: none.
    grouped : bool
        Whether all points stand before exactly three digits, as points that group thousands do.
    """

    kind: str
    values: np.ndarray
    zeros: str = ""
    grouped: bool = False

    @property
    def missing(self) -> np.ndarray:
        """``(N,)`` mask of the missing cells."""
        return np.isnan(self.values) if self.kind == "number" else self.values == ""

    def as_text(self) -> np.ndarray:
        """``(N,)`` cells as text, whole numbers without a fraction; ``""`` where missing."""
        if self.kind == "number":
            return np.array(
                ["" if isnan(v) else canonical_text(repr(v)) for v in self.values.tolist()], object
            )
        if self.kind == "raw":
            return np.array([canonical_text(cell) for cell in self.values], object)
        return self.values


@dataclass(frozen=True)
class Table:
    """One party's table.

    Attributes
    ----------
    path : str
        For messages.
    names : list of str
        Columns in the order of the file, without those dropped.
    columns : dict of str to Column
    lines : ndarray or None
        ``(N,)`` line of each row in a text file; None: rows are counted from 1.
    notes : list of str
        How the text was read, where that was recognised.
    """

    path: str
    names: list[str]
    columns: dict[str, Column]
    lines: np.ndarray | None
    notes: list[str] = field(default_factory=list)

    @property
    def n_rows(self) -> int:
        """Number of rows N."""
        return len(next(iter(self.columns.values())).values)

    def where(self, row: int) -> str:
        """Place of a zero-based row for messages, such as ``"line 12"``."""
        return f"row {row + 1}" if self.lines is None else f"line {self.lines[row]}"

    def require(self, name: str, what: str) -> Column:
        """The column `name`.

        Parameters
        ----------
        name : str
            Column that must be there.
        what : str
            What it is, for the message (``"id column"``).

        Raises
        ------
        InputError
            There is none; similar names are shown.
        """
        if name not in self.columns:
            raise _absent(self.path, self.names, name, what)
        return self.columns[name]


def _absent(path: str, names: Sequence[str], name: str, what: str) -> InputError:
    return InputError(f"{path}: no {what} {name!r}{nearest(name, names)}")


def canonical_text(cell: str) -> str:
    """Text of a category or id: ``"1"`` for ``1``, ``+1`` and ``1.0``; all other text is kept."""
    match = _WHOLE.match(cell)
    return match[1] if match else cell


def _only_number(cell: str) -> float | None:
    """The number that a cell can be, whatever the marks of its column; None where it may be two, or none."""
    if is_number(cell):
        return float(cell)
    parts = written(cell)
    if parts is None or parts.unit not in KNOWN_UNITS:
        return None
    readings = candidates([parts])
    return value_of(parts, readings[0]) if len(readings) == 1 else None


def read_ids(path: str | Path, name: str, layout: Layout = FOUND) -> Table:
    """Read only the id column of a table; the others are not looked at.

    Parameters
    ----------
    path : path
        As in :func:`read_table`.
    name : str
        The id column.
    layout : Layout

    Returns
    -------
    Table
        With that column alone, or without it where there is none of that name.
    """
    return read_table(path, layout, Cells(text=[name]), only=name)


def read_table(
    path: str | Path,
    layout: Layout = FOUND,
    cells: Cells = PLAIN,
    *,
    drop: Sequence[str] = (),
    only: str | None = None,
) -> Table:
    """Read a CSV or Parquet table.

    Parameters
    ----------
    path : path
        CSV (also compressed by gzip, bzip2, xz) or Parquet, told apart by content.
    layout : Layout
        Of the text; UTF-8, UTF-16, and one byte for each Western European letter are recognised.
    cells : Cells
    drop : sequence of str
        Columns left out; ones that are not there do not matter.
    only : str, optional
        The one column that is read.

    Raises
    ------
    InputError
        Naming file, line and column: empty file, ragged rows, text of several encodings, infinite numbers.
    ConfigError
        A Parquet file, but the extra ``fastadmm[parquet]`` is not installed.
    StorageError
        The file is absent or unreadable.
    """
    file = SourceFile(path, parquet=True)
    if file.magic.startswith(b"PAR1"):
        return _read_parquet(file, cells, set(drop), only)
    if file.is_zip:
        raise InputError(
            f"{file.shown}: is a zip archive or an Excel workbook: unpack it, or save the sheet as CSV"
        )
    check_separator(layout.separator)
    file.encoding = layout.encoding
    notes = []
    try:
        table = _read_text(file, layout, cells, drop, only)
    except NotUtf8:
        if layout.encoding is not None:
            raise
        file.encoding = one_byte_encoding(file)
        table = _read_text(file, layout, cells, drop, only)
        notes.append(read_as(file))
    return replace(table, notes=notes + table.notes)


def table_of_rows(
    name: str, columns: Sequence[str], rows: Sequence[Sequence[str]], cells: Cells = PLAIN
) -> Table:
    """A table of rows that are in memory, typed as those of a file are.

    Parameters
    ----------
    name : str
        For messages.
    columns : sequence of str
    rows : sequence of sequence of str
        Cells as text, ``""`` where missing.
    cells : Cells

    Raises
    ------
    InputError
        Naming row and column: infinite numbers, text that is no Unicode.
    """
    return _assemble(name, columns, lambda: iter(enumerate(rows, start=1)), cells, set(), False)


def _read_text(
    file: SourceFile, layout: Layout, cells: Cells, drop: Sequence[str], only: str | None
) -> Table:
    source = CsvFile(file, drop=drop, header=layout.header, separator=layout.separator)
    left_out = _left_out(source.path, source.columns, drop, only)
    table = _assemble(source.path, source.columns, lambda: _csv_rows(source), cells, left_out, True)
    return replace(table, notes=source.notes)


def _left_out(path: str, names: Sequence[str], drop: Sequence[str] | set[str], only: str | None) -> set[str]:
    if only is None:
        return set(drop)
    if only not in names:
        raise _absent(path, names, only, "id column")
    return set(names) - {only}


def _csv_rows(source: CsvFile) -> Iterator[tuple[int, Sequence[str]]]:
    width = len(source.columns)
    for line, cells in itertools.islice(source.rows(), 1 if source.header else 0, None):
        if len(cells) != width:
            raise InputError(
                f"{source.path}: line {line}: {len(cells)} cells, but there are {width} columns: quote cells "
                "that hold the separator"
            )
        yield line, cells


def _assemble(
    path: str,
    names: Sequence[str],
    rows: Callable[[], Iterator[tuple[int, Sequence[str]]]],
    cells: Cells,
    drop: set[str],
    lines: bool,
) -> Table:
    kept = [(i, name) for i, name in enumerate(names) if name not in drop]
    if not kept:
        raise InputError(f"{path}: no column left after --drop")
    builders = {name: _Builder(path, name, cells) for _, name in kept}
    numbers = _collect(rows(), kept, builders, lines)
    if not numbers:
        raise InputError(f"{path}: no data rows, only the header")
    # Earlier cells of a column that turns out to be text have become numbers: they are read once more.
    late = {name for name, builder in builders.items() if builder.turned}
    if late:
        again = {name: _Builder(path, name, replace(cells, raw=late)) for name in late}
        _collect(rows(), [(i, name) for i, name in kept if name in late], again, lines)
        for name in late:
            builders[name].chunks = again[name].chunks
    columns = {name: builder.finish() for name, builder in builders.items()}
    return Table(path, [name for _, name in kept], columns, np.concatenate(numbers) if lines else None)


def _collect(
    rows: Iterator[tuple[int, Sequence[str]]],
    kept: list[tuple[int, str]],
    builders: Mapping[str, _Builder],
    lines: bool,
) -> list[np.ndarray]:
    """Give the cells to their builders; the lines of all rows."""
    numbers = []
    while chunk := list(itertools.islice(rows, CHUNK_ROWS)):
        places = [line for line, _ in chunk]
        numbers.append(np.array(places, dtype=np.int64))
        for i, name in kept:
            builders[name].append([cells[i] for _, cells in chunk], places, "line" if lines else "row")
    return numbers


class _Builder:
    """Collects one column, as numbers for as long as all its cells are numbers or missing."""

    def __init__(self, path: str, name: str, cells: Cells) -> None:
        self.path, self.name = path, name
        self.text = name in cells.text
        self.raw = not self.text and (cells.all_raw or name in cells.raw)
        self.na = cells.words(name)
        # Codes are texts, as words with leading zeros are; numbers may be written in several ways.
        words = () if self.text else (word for word in self.na if not _LEADING_ZERO.search(f"\n{word}\n"))
        self.na_numbers = {number for word in words if (number := _only_number(word)) is not None}
        self.absent: dict[str, bool] = {}
        self.chunks: list[np.ndarray] = []
        self.seen = {"number": False, "text": False}
        self.words: dict[str, str] = {}  # one string for equal cells
        self.zeros, self.points, self.ungrouped = "", False, False

    @property
    def turned(self) -> bool:
        """Whether a column of numbers has become one of text."""
        kinds = {
            chunk.dtype == np.float64
            for chunk in self.chunks
            if chunk.dtype == object or not np.isnan(chunk).all()
        }
        return not self.text and len(kinds) == 2

    def append(self, cells: list[str], places: list[int], unit: str) -> None:
        """Add cells; `places` are the lines (or rows) they come from."""
        cells = [cell.strip() for cell in cells]
        if not self.text:
            cells = ["" if cell.lower() in MISSING else cell for cell in cells]
        if self.na:
            cells = ["" if self._means_missing(cell) else cell for cell in cells]
        if not self.text and not self.raw and self._append_numbers(cells, places, unit):
            return
        for cell in {cell for cell in cells if not is_text(cell) or "\0" in cell}:
            wrong = np.array([other == cell for other in cells])
            self._refuse(wrong, cells, places, unit, "is not UTF-8 text: convert the file to UTF-8", NotUtf8)
        if not self.text:
            for cell in set(cells) - {""}:
                self.seen["number" if is_number(cell) else "text"] = True
        cells = [self.words.setdefault(cell, cell) for cell in cells]
        self.chunks.append(np.array(cells, dtype=object))

    def _means_missing(self, cell: str) -> bool:
        """Whether a cell is one of the words for "no value", or a number that is."""
        if (known := self.absent.get(cell)) is None:
            known = cell in self.na or canonical_text(cell) in self.na
            if not known and self.na_numbers:
                known = _only_number(cell) in self.na_numbers
            self.absent[cell] = known
        return known

    def _append_numbers(self, cells: list[str], places: list[int], unit: str) -> bool:
        """Add cells as numbers; False if one of them is none."""
        joined = "\n".join(cells)
        if "_" in joined:
            return False
        try:
            values = np.array([cell or "nan" for cell in cells], dtype=object).astype(np.float64)
        except ValueError:
            return False
        self.seen["number"] |= not np.isnan(values).all()
        self._refuse(np.isinf(values), cells, places, unit, "is not finite")
        self.chunks.append(values)
        joined = f"\n{joined}\n"
        if not self.zeros and "\n0" in joined and (match := _LEADING_ZERO.search(joined)):
            self.zeros = match[1]
        if not self.ungrouped and "." in joined:
            self.points, self.ungrouped = True, bool(_NO_GROUPS.search(joined))
        return True

    def _refuse(
        self,
        wrong: np.ndarray,
        cells: list[str],
        places: list[int],
        unit: str,
        why: str,
        kind: type[InputError] = InputError,
    ) -> None:
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            shown = ascii(cells[at][:40])
            # A NUL is no question of the encoding.
            kind = kind if not is_text(cells[at]) else InputError
            raise kind(f"{self.path}: {unit} {places[at]}, column {self.name!r}: {shown} {why}")

    def finish(self) -> Column:
        if not self.text and all(chunk.dtype == np.float64 for chunk in self.chunks):
            grouped = self.points and not self.ungrouped
            return Column("number", np.concatenate(self.chunks), self.zeros, grouped)
        texts = [
            chunk if chunk.dtype == object else Column("number", chunk).as_text() for chunk in self.chunks
        ]
        values = np.concatenate(texts)
        if self.text:
            values[:] = [canonical_text(cell) if cell.lower() not in MISSING else "" for cell in values]
        if self.raw:
            return Column("raw", values)
        return Column("mixed" if all(self.seen.values()) else "text", values)


def _read_parquet(file: SourceFile, cells: Cells, drop: set[str], only: str | None) -> Table:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ConfigError(
            f"{file.shown}: reading Parquet needs pyarrow: pip install 'fastadmm[parquet]', or save it as CSV"
        ) from None
    try:
        with pq.ParquetFile(file.path) as parquet:
            schema = parquet.schema_arrow
            names = list(schema.names)
            check_names(names, file.shown)
            for i, name in enumerate(names):
                if names.index(name) != i:
                    raise InputError(f"{file.shown}: column name {name!r} appears twice")
            drop = _left_out(file.shown, names, drop, only)
            kept = [name for name in names if name not in drop]
            for name in kept:
                _check_type(file.shown, name, schema.field(name).type, pa)
            table = parquet.read(columns=kept)
        columns = [table.column(name).to_pylist() for name in kept]
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{file.shown}: a damaged Parquet file ({reason}): write it again") from None
    return _assemble(
        file.shown,
        kept,
        lambda: enumerate(zip(*(map(_cell, column) for column in columns)), start=1),
        cells,
        set(),
        False,
    )


def _check_type(path: str, name: str, kind: Any, pa: Any) -> None:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    plain = pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if plain or pa.types.is_boolean(kind) or pa.types.is_null(kind) or str(kind) == "string_view":
        return
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        return  # dates become text in ISO's format
    raise InputError(
        f"{path}: column {name!r} is of type {kind}: make it numbers or text, or leave it out with --drop"
    )


def _cell(value: Any) -> str:
    return "" if value is None else str(value)

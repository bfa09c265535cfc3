"""Tables with ids, one per party: CSV and Parquet, read whole, cells typed column by column."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
from fastadmm.data_tools.csv_table import MISSING, CsvFile, is_number, is_text
from fastadmm.data_tools.opening import SourceFile, check_names
from fastadmm.data_tools.suggest import nearest
from fastadmm.errors import ConfigError, InputError

__all__ = ["Column", "Table", "canonical_text", "read_ids", "read_table"]

#: Rows turned into arrays at a time; numbers need 8 bytes a cell afterwards, text one pointer.
CHUNK_ROWS = 1 << 14

_WHOLE = re.compile(r"\+?(-?\d+)(?:\.0*)?\Z")


@dataclass(frozen=True)
class Column:
    """Cells of one column.

    Attributes
    ----------
    kind : {"number", "text", "mixed"}
        All cells that are not missing are numbers; none is; some are.
    values : ndarray
        ``(N,)`` float64 with NaN for missing cells, or object (str, stripped) with ``""`` for them.
    """

    kind: str
    values: np.ndarray

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
    """

    path: str
    names: list[str]
    columns: dict[str, Column]
    lines: np.ndarray | None

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


def read_ids(path: str | Path, name: str, *, separator: str = ",") -> Table:
    """Read only the id column of a table; the others are not looked at.

    Parameters
    ----------
    path : path
        As in :func:`read_table`.
    name : str
        The id column.
    separator : str
        Between CSV cells.

    Returns
    -------
    Table
        With that column alone, or without it where there is none of that name.
    """
    return read_table(path, separator=separator, text=[name], only=name)


def read_table(
    path: str | Path,
    *,
    separator: str = ",",
    text: Sequence[str] = (),
    drop: Sequence[str] = (),
    only: str | None = None,
    header: bool = True,
) -> Table:
    """Read a CSV or Parquet table.

    Parameters
    ----------
    path : path
        CSV (also compressed by gzip, bzip2, xz) or Parquet, told apart by content.
    separator : str
        Between CSV cells.
    text : sequence of str
        Columns kept as text even if all their cells are numbers (ids, categories).
    drop : sequence of str
        Columns left out; ones that are not there do not matter.
    only : str, optional
        The one column that is read.
    header : bool
        Whether a CSV file begins with column names; otherwise they are ``c1``, ``c2``, ...

    Raises
    ------
    InputError
        Naming file, line and column: empty file, ragged rows, text that is not UTF-8, infinite numbers.
    ConfigError
        A Parquet file, but the extra ``fastadmm[parquet]`` is not installed.
    StorageError
        The file is absent or unreadable.
    """
    file = SourceFile(path, parquet=True)
    if file.magic.startswith(b"PAR1"):
        return _read_parquet(file, set(text), set(drop), only)
    if b"\x00" in file.magic or file.magic[:2] in {b"\xff\xfe", b"\xfe\xff"}:
        raise InputError(f"{file.shown}: line 1: not UTF-8 text: convert the file to UTF-8")
    if len(separator) != 1 or separator in '"\r\n' or not separator.isascii():
        raise ConfigError(f"--separator {separator!r}: give one character, such as ';'")
    source = CsvFile(file, drop=drop, header=header, separator=separator)
    left_out = _left_out(source.path, source.columns, drop, only)
    return _assemble(source.path, source.columns, _csv_rows(source), set(text), left_out, True)


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
    rows: Iterator[tuple[int, Sequence[str]]],
    text: set[str],
    drop: set[str],
    lines: bool,
) -> Table:
    kept = [(i, name) for i, name in enumerate(names) if name not in drop]
    if not kept:
        raise InputError(f"{path}: no column left after --drop")
    builders = {name: _Builder(path, name, name in text) for _, name in kept}
    numbers = []
    while chunk := list(itertools.islice(rows, CHUNK_ROWS)):
        places = [line for line, _ in chunk]
        numbers.append(np.array(places, dtype=np.int64))
        for i, name in kept:
            builders[name].append([cells[i] for _, cells in chunk], places, "line" if lines else "row")
    if not numbers:
        raise InputError(f"{path}: no data rows, only the header")
    columns = {name: builder.finish() for name, builder in builders.items()}
    return Table(path, [name for _, name in kept], columns, np.concatenate(numbers) if lines else None)


class _Builder:
    """Collects one column, as numbers for as long as all its cells are numbers or missing."""

    def __init__(self, path: str, name: str, text: bool) -> None:
        self.path, self.name, self.text = path, name, text
        self.chunks: list[np.ndarray] = []
        self.seen = {"number": False, "text": False}
        self.words: dict[str, str] = {}  # one string for equal cells

    def append(self, cells: list[str], places: list[int], unit: str) -> None:
        """Add cells; `places` are the lines (or rows) they come from."""
        cells = [cell.strip() for cell in cells]
        if not self.text:
            cells = ["" if cell.lower() in MISSING else cell for cell in cells]
            try:
                if any("_" in cell for cell in cells):
                    raise ValueError
                values = np.array([cell or "nan" for cell in cells], dtype=object).astype(np.float64)
            except ValueError:
                pass
            else:
                self.seen["number"] |= not np.isnan(values).all()
                self._refuse(np.isinf(values), cells, places, unit, "is not finite")
                self.chunks.append(values)
                return
        for cell in {cell for cell in cells if not is_text(cell) or "\0" in cell}:
            wrong = np.array([other == cell for other in cells])
            self._refuse(wrong, cells, places, unit, "is not UTF-8 text: convert the file to UTF-8")
        if not self.text:
            for cell in set(cells) - {""}:
                self.seen["number" if is_number(cell) else "text"] = True
        cells = [self.words.setdefault(cell, cell) for cell in cells]
        self.chunks.append(np.array(cells, dtype=object))

    def _refuse(self, wrong: np.ndarray, cells: list[str], places: list[int], unit: str, why: str) -> None:
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            shown = ascii(cells[at][:40])
            raise InputError(f"{self.path}: {unit} {places[at]}, column {self.name!r}: {shown} {why}")

    def finish(self) -> Column:
        if not self.text and all(chunk.dtype == np.float64 for chunk in self.chunks):
            return Column("number", np.concatenate(self.chunks))
        texts = [
            chunk if chunk.dtype == object else Column("number", chunk).as_text() for chunk in self.chunks
        ]
        values = np.concatenate(texts)
        if self.text:
            values[:] = [canonical_text(cell) if cell.lower() not in MISSING else "" for cell in values]
        return Column("mixed" if all(self.seen.values()) else "text", values)


def _read_parquet(file: SourceFile, text: set[str], drop: set[str], only: str | None) -> Table:
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
                _check_type(file.shown, name, schema.field(name).type, pa, name in text)
            table = parquet.read(columns=kept)
        columns = [table.column(name).to_pylist() for name in kept]
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{file.shown}: a damaged Parquet file ({reason}): write it again") from None
    rows = enumerate(zip(*(map(_cell, column) for column in columns)), start=1)
    return _assemble(file.shown, kept, rows, text, set(), False)


def _check_type(path: str, name: str, kind: Any, pa: Any, text: bool) -> None:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    plain = pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if plain or pa.types.is_boolean(kind) or pa.types.is_null(kind) or str(kind) == "string_view":
        return
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return
    raise InputError(
        f"{path}: column {name!r} is of type {kind}: make it numbers or text, or leave it out with --drop"
    )


def _cell(value: Any) -> str:
    return "" if value is None else str(value)

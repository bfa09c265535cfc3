"""The text of CSV tables: what it does not say about itself, column names, and cells.

Blocks of plain text are read by pandas; all others are left to Python, which names what is wrong. pandas
forgives too much: it drops surplus cells, fills in missing ones and reads on behind a closing quote.
So the cells of every line are found first.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from shlex import quote
from typing import Any

import numpy as np
from fastadmm.data_tools.columns import (
    EXACT,
    MISSING,
    QUOTED,
    ByColumn,
    Chunk,
    Numbers,
    Whole,
    Words,
    cased,
    in_quotes,
    is_number,
    words_of,
)
from fastadmm.data_tools.opening import NotUtf8, OnRead, SourceFile, check_names, in_order
from fastadmm.errors import ConfigError, InputError

#: Separators that are recognised, and their names; the first is taken where there is only one column.
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}

#: Read where bytes are not UTF-8: Western European, with all letters of Latin-1.
FALLBACK = "cp1252"

#: Bytes and rows at the beginning of a file that are looked at.
HEAD_BYTES, HEAD_ROWS = 1 << 16, 50

#: Rows of cells in Python at a time.
CHUNK_ROWS = 1 << 14

_MARKS = ((codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_WIDE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")


@dataclass(frozen=True)
class Layout:
    """How the text of a table is laid out; None is recognised."""

    separator: str | None = None  # between CSV cells
    encoding: str | None = None
    header: bool = True  # whether a CSV file begins with column names; otherwise they are ``c1``, ``c2``,

    def __post_init__(self) -> None:
        mark = self.separator
        if mark is not None and (len(mark) != 1 or mark in '"\r\n' or not mark.isascii()):
            raise ConfigError(f"--separator {mark!r}: give one character, such as ';'")


FOUND = Layout()


class CsvFile:
    """The text of a CSV table: its column names and its cells."""

    def __init__(self, source: SourceFile, layout: Layout = FOUND, drop: Sequence[str] = ()) -> None:
        self.file, self.path, self.header = source, source.shown, layout.header
        self.notes: list[str] = []
        self.separator = self._sniff(layout.separator)
        if layout.separator is None and self.separator != ",":
            self.notes.append(f"{self.path}: cells are separated by {self.separator!r}")
        self.header_end = 0
        self.columns = self._read_columns(drop)

    def _sniff(self, separator: str | None) -> str:
        """Recognise what is not stated: a wide encoding, the separator."""
        with self.file.open() as stream:
            head = stream.read(HEAD_BYTES)
        found = next((name for mark, name in _MARKS if head.startswith(mark)), None)
        if self.file.encoding is None and found is not None:
            self.file.encoding = found
            self.notes.append(f"{self.path}: read as {found}")
            return self._sniff(separator)
        if separator is not None:
            return separator
        if len(head) == HEAD_BYTES:
            head = head[: head.rfind(b"\n") + 1] or head
        return find_separator(head.decode("utf-8-sig", errors="replace"), self.path)

    def _read_columns(self, drop: Sequence[str]) -> list[str]:
        first = next(self.rows(), None)
        if first is None:
            raise self.file.refused("file is empty, only blank lines")
        line, cells = first
        if not all(is_text(cell) for cell in cells):
            raise NotUtf8(f"{self.path}: line {line}: not UTF-8 text: convert the file to UTF-8")
        if not self.header:
            return [f"c{i}" for i in range(1, len(cells) + 1)]
        self.header_end = line
        if all(is_number(cell) for cell in cells):
            remedy = "pass --no-header (they are then named c1, c2, ...)"
            raise self.file.refused(f"line 1 holds only numbers, no column names: {remedy}")
        place = f"{self.path}: line 1"
        if cells[0].lower().startswith("sep="):
            raise InputError(f"{place}: {cells[0]!r} is for spreadsheets alone: remove the line")
        # A nameless column is nearly always a row number: it can only be dropped, by its position.
        names = [cell.strip() or f"c{i}" for i, cell in enumerate(cells, start=1)]
        check_names(names, place)
        if quoted := next(filter(in_quotes, names), None):
            raise InputError(f"{place}: column name {quoted[:40]!r} {QUOTED}")
        for i, (name, cell) in enumerate(zip(names, cells), start=1):
            if (first_place := names.index(name) + 1) != i:
                what = f"column name {name!r} appears twice, in columns {first_place} and {i}: rename one"
                raise InputError(f"{place}: {what}")
            if not cell.strip() and name not in drop:
                raise InputError(f"{place}: column {i} has no name: name it, or pass --drop {quote(name)}")
        return names

    def rows(self, on_read: OnRead | None = None) -> Iterator[tuple[int, list[str]]]:
        """Every non-blank row with the line it ends on, by the standard library."""
        with self.file.open(on_read) as stream:
            # Bytes that are not UTF-8 are no fault in columns that are dropped.
            text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="")
            reader = csv.reader(text, delimiter=self.separator, strict=True)
            line = 0
            try:
                for cells in reader:
                    line = reader.line_num
                    if cells:
                        yield line, cells
            except csv.Error as error:
                raise InputError(f"{self.path}: line {line + 1}: {_reason(error)}") from None

    def chunks(self, wanted: Mapping[str, str], on_read: OnRead, large: bool = False) -> Iterator[Chunk]:
        """All rows: by pandas where the table is large, as far as it is plain; otherwise in Python."""
        done = 0
        if large and self.separator in SEPARATORS:
            for found in self.plain_chunks(wanted, on_read):
                if found is None:
                    break
                yield found
                done += len(found.numbers)
            else:
                return
        rows = islice(self._data_rows(on_read), done, None)
        yield from python_chunks("line ", rows, self.columns, wanted)

    def _data_rows(self, on_read: OnRead) -> Iterator[tuple[int, Sequence[str]]]:
        width = len(self.columns)
        for line, cells in islice(self.rows(on_read), 1 if self.header else 0, None):
            if len(cells) != width:
                problem = "correct it, or quote cells that hold the separator"
                raise self.file.refused(
                    f"line {line}: {len(cells)} cells, but there are {width} columns: {problem}"
                )
            yield line, cells

    def plain_chunks(
        self, wanted: Mapping[str, str], on_read: OnRead | None = None
    ) -> Iterator[Chunk | None]:
        """The rows block by block, each read by pandas; None in place of the first that is not plain."""
        blocks = self.file.line_blocks(on_read)
        for found in in_order(lambda block: self._plain(*block, dict(wanted)), blocks):
            if found is None or len(found.numbers):
                yield found
            if found is None:
                return

    def _plain(self, first_line: int, raw: bytes, wanted: dict[str, str]) -> Chunk | None:
        """The rows of a block of lines; None where it is not plain."""
        names, separator = self.columns, self.separator
        if first_line == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        if b"\r" in raw.replace(b"\r\n", b"\n"):  # a lone carriage return ends a line, too
            return None
        for _ in range(first_line, self.header_end + 1):
            raw = raw[raw.find(b"\n") + 1 :] if b"\n" in raw else b""
        text = PlainText.of(raw, separator, len(names))
        if text is None:
            return None
        lines = text.lines + max(first_line, self.header_end + 1)
        if not len(lines):
            return Chunk("line ", lines, {})
        place = {name: i for i, name in enumerate(names)}
        for name, how in wanted.items():
            cell = text.cell(0, place[name])
            if how == "numbers" and not is_number(cell) and cell.lower() not in MISSING:
                wanted[name] = "words"
        numbers, ids = ([name for name, how in wanted.items() if how == kind] for kind in ("numbers", "ids"))
        frame = read_frame(raw, separator, names, {n: _TYPES[how] for n, how in wanted.items()}, numbers)
        cells: dict[str, Numbers | Words | Whole] = {}
        if frame is not None and len(frame) == len(lines):
            values = frame[numbers].to_numpy(np.float64)
            whole, decimal = text.are_sure(values, [place[name] for name in numbers])
            for j in np.flatnonzero(whole | decimal).tolist():
                cells[numbers[j]] = Numbers(np.ascontiguousarray(values[:, j]), points=2 * int(decimal[j]))
            for name in ids:
                own = frame[name].to_numpy()
                if (np.abs(own) < _LONG_ID).all() and not text.surplus(own[:, None], [place[name]]).any():
                    cells[name] = Whole(own)
        # The text of the other columns decides what they are.
        rest = [name for name in wanted if name not in cells]
        if frame is None or any(wanted[name] != "words" for name in rest):
            frame = read_frame(raw, separator, names, dict.fromkeys(rest, str))
        if frame is None or len(frame) != len(lines):
            return None
        for name in rest:
            codes, words = frame[name].factorize()
            cells[name] = Words(codes.astype(np.int32), words.tolist())
        return Chunk("line ", lines, cells)


#: What pandas reads the cells of a column as, by what is wanted.
_TYPES: dict[str, Any] = {"numbers": np.float64, "ids": np.int64, "words": str}

#: Longer whole numbers are no ids that are kept as numbers.
_LONG_ID = 10**18


def python_chunks(
    what: str, rows: Iterable[tuple[int, Sequence[str]]], columns: Sequence[str], wanted: Iterable[str]
) -> Iterator[Chunk]:
    """Numbered rows of texts."""
    rows, at = iter(rows), {name: list(columns).index(name) for name in wanted}
    while chunk := list(islice(rows, CHUNK_ROWS)):
        cells: ByColumn = {name: words_of(own[i] for _, own in chunk) for name, i in at.items()}
        yield Chunk(what, np.array([number for number, _ in chunk], dtype=np.int64), cells)


def _reason(error: csv.Error) -> str:
    """What is wrong with quotes, in other words than the library's."""
    text = str(error)
    if text == "unexpected end of data":
        return "a quote is opened and never closed"
    after = "text follows a closing quote; write a quote within quotes twice"
    return after if "expected after" in text else text


def is_text(cell: str) -> bool:
    """Whether a cell read with ``surrogateescape`` was UTF-8."""
    return not any("\udc80" <= character <= "\udcff" for character in cell)


def one_byte_encoding(source: SourceFile) -> str:
    """The encoding of a text that is not UTF-8, with one byte for each character."""
    for first, text in source.line_blocks():
        if text.isascii():
            continue
        at, problem = -1, f"not UTF-8 text, nor {FALLBACK}: pass --encoding, or convert the file to UTF-8"
        try:
            text.decode(FALLBACK)
        except UnicodeDecodeError as error:
            at = error.start
        if match := _WIDE.search(text):
            remedy = "save the whole file in one encoding, or pass --encoding"
            at, problem = match.start(), f"holds UTF-8 text, but other lines are not UTF-8 text: {remedy}"
        if at >= 0:
            line = first + text.count(b"\n", 0, at)
            raise source.refused(f"line {line}: {problem}")
    return FALLBACK


def find_separator(head: str, path: str) -> str:
    """The separator that gives all rows at the beginning of a file the same number of cells."""
    found = []
    for separator in SEPARATORS:
        try:
            reader = csv.reader(io.StringIO(head, newline=""), delimiter=separator)
            widths = {len(row) for row in islice(filter(None, reader), HEAD_ROWS)}
        except csv.Error:
            continue
        if len(widths) == 1 and widths != {1}:
            found.append(separator)
    if len(found) > 1:
        one, other = found[:2]
        raise InputError(
            f"{path}: cells may be separated by {SEPARATORS[one]} or by {SEPARATORS[other]}: pass "
            f"--separator {one!r} or --separator {other!r}"
        )
    first = head.lstrip("\r\n").split("\n", 1)[0]
    return found[0] if found else max(SEPARATORS, key=first.count)


# --- plain text ------------------------------------------------------------------------------------------

#: How cells without a value may be written.
_SPELLINGS = list(cased(MISSING))

#: A whole number has as many digits more than one as there are powers up to it.
_POWERS = 10 ** np.arange(1, 19)


def read_frame(text: bytes, separator: str, names: Sequence[str], dtype: Mapping[str, Any],
               missing: Collection[str] = ()) -> Any:  # fmt: skip
    """The columns that `dtype` names, as a DataFrame; None where a cell has another type.

    Only in the columns `missing`, cells may be missing.
    """
    import pandas as pd

    exact = {}
    if tuple(int(part) for part in pd.__version__.split(".")[:2]) < (3, 1):
        exact = {"float_precision": "round_trip"}  # later versions always round correctly
    every = dtype.keys() <= set(missing)  # one list for all columns: pandas takes long for one each
    try:
        return pd.read_csv(
            io.BytesIO(text),
            sep=separator,
            header=None,
            names=names,
            usecols=list(dtype),
            index_col=False,
            dtype=dict(dtype),
            keep_default_na=False,
            na_filter=bool(missing),  # an empty or "NA" cell must fail elsewhere, not become NaN
            na_values=_SPELLINGS if every else dict.fromkeys(missing, _SPELLINGS) or None,
            encoding="utf-8",
            low_memory=False,  # otherwise it looks at some rows at a time
            **exact,
        )
    except (ValueError, OverflowError):  # ParserError and UnicodeDecodeError are ValueErrors
        return None


@dataclass(frozen=True)
class PlainText:
    """Where the cells of complete lines are."""

    codes: np.ndarray  # ``(n,)`` uint8, with two line ends behind the text
    lines: np.ndarray  # ``(k,)`` number of each row's line, from 0
    bounds: np.ndarray  # ``(k, width + 1)``: one before the first cell, between cells, and behind the last

    @classmethod
    def of(cls, text: bytes, separator: str, width: int) -> PlainText | None:
        """None if a row has another width, or quotes are not around one cell of one line."""
        if b"\0" in text or text.startswith(b"\xef\xbb\xbf"):  # which pandas would take away
            return None
        codes = np.frombuffer(text + b"\n\n", dtype=np.uint8)
        ends = np.flatnonzero(codes == 10)[:-1]
        ends = ends if not text.endswith(b"\n") else ends[:-1]
        starts = np.concatenate([[0], ends[:-1] + 1])
        stops = ends - ((ends > starts) & (codes[ends - 1] == 13))
        lines = np.flatnonzero(stops > starts)
        cuts = np.flatnonzero(codes == ord(separator))
        if b'"' in text:
            quotes = np.flatnonzero(codes == 34)
            if len(quotes) % 2:
                return None
            opened, closed = quotes[::2], quotes[1::2]
            around = np.isin(codes[opened - 1], (10, ord(separator)))  # the text is followed by a line end
            around &= np.isin(codes[closed + 1], (10, 13, ord(separator)))
            if not (around & (np.searchsorted(ends, opened) == np.searchsorted(ends, closed))).all():
                return None
            cuts = cuts[np.searchsorted(quotes, cuts) % 2 == 0]
        if len(cuts) != len(lines) * (width - 1):
            return None
        bounds = np.empty((len(lines), width + 1), dtype=np.int64)
        bounds[:, 0], bounds[:, -1] = starts[lines] - 1, stops[lines]
        bounds[:, 1:-1] = cuts.reshape(len(lines), width - 1)
        return cls(codes, lines, bounds) if (np.diff(bounds) > 0).all() else None

    def cell(self, row: int, column: int) -> str:
        """The text of a cell without spaces and quotes around it."""
        start, stop = self.bounds[row, column : column + 2].tolist()
        return self.codes[start + 1 : stop].tobytes().decode("utf-8", "replace").strip().strip('"').strip()

    def surplus(self, values: np.ndarray, columns: Sequence[int]) -> np.ndarray:
        """How many characters cells of some columns have besides a minus and the digits of their whole part.

        Shapes: values, the result (k, q).
        """
        sizes = self.bounds[:, [c + 1 for c in columns]] - self.bounds[:, columns] - 1
        return sizes - (values < 0) - np.searchsorted(_POWERS, np.abs(values), side="right") - 1

    def are_sure(self, values: np.ndarray, columns: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Columns of numbers whose text needs no closer look: of plain whole numbers, or of other numbers.

        Points of the others are decimal points: behind one of them, there are not three digits, as there are
        in groups of thousands. None begins with a zero before a digit.
        Values are NaN where a cell is missing.

        Shapes: values (k, q), both results (q,).
        """
        missing, size, surplus = np.isnan(values), np.abs(values), self.surplus(values, columns)
        at, stops = self.bounds[:, columns] + 1, self.bounds[:, [c + 1 for c in columns]]
        digits = stops - at - (values < 0) - surplus
        at += np.isin(self.codes[at], (43, 45))
        first, second, last = self.codes[at], self.codes[at + 1], self.codes[stops - 1]
        pointed = (first == 46) | (self.codes[np.minimum(at + digits, len(self.codes) - 1)] == 46)
        whole = values == np.trunc(values)
        ungrouped = ~whole & pointed & ((size < 1.0) | (size >= 1000.0) | ~np.isin(surplus, (4, 5)))
        usual = _in_number(first) & ~((first == 48) & _in_number(second) & (second != 46)) & _in_number(last)
        small = (missing | (size < EXACT)).all(axis=0)
        plain = (missing | (whole & (surplus == 0))).all(axis=0)
        decimal = (ungrouped & ~missing).any(axis=0) & (missing | usual).all(axis=0)
        return small & plain, small & decimal


def _in_number(codes: np.ndarray) -> np.ndarray:
    """Which are digits or points."""
    return ((codes >= 48) & (codes <= 57)) | (codes == 46)

"""CSV tables, read in blocks of complete lines.

Plain lines go through pandas. Blocks that are not plain (quotes within cells, line ends within quotes), and
blocks with a fault, are read by the standard library's ``csv``, row by row, which names the line and column.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from shlex import quote

import numpy as np
from fastadmm.data_tools.blocks import Block, OnRead
from fastadmm.data_tools.columns import (
    EXACT,
    MISSING,
    NOT_FINITE,
    QUOTED,
    TOO_LARGE,
    TRUTH,
    in_quotes,
    is_merging,
)
from fastadmm.data_tools.opening import NotUtf8, SourceFile, check_names
from fastadmm.data_tools.plain_text import PlainText, read_frame
from fastadmm.data_tools.sniffing import HEAD_BYTES, find_encoding, find_separator
from fastadmm.data_tools.suggest import nearest
from fastadmm.data_tools.threads import in_order
from fastadmm.errors import InputError

#: float64 values per block of the row-by-row reader: 1 << 18 is 2 MB.
SLOW_VALUES = 1 << 18


class NotNumbers(InputError):
    """A feature cell that is empty or no plain number: the table has to be read column by column."""


class CsvFile:
    """The text of a CSV table: its column names and its rows of cells."""

    def __init__(
        self,
        source: SourceFile,
        *,
        drop: Sequence[str] = (),
        header: bool = True,
        separator: str | None = None,
    ) -> None:
        self.source = source
        self.path = source.shown
        self.header = header
        self.notes: list[str] = []
        self.separator = self._sniff(separator)
        if separator is None and self.separator != ",":
            self.notes.append(f"{self.path}: cells are separated by {self.separator!r}")
        self.header_end = 0
        self.columns = self._read_columns(drop)

    def _sniff(self, separator: str | None) -> str:
        """Recognise what is not stated: a wide encoding, the separator."""
        with self.source.open() as stream:
            head = stream.read(HEAD_BYTES)
        if self.source.encoding is None and (found := find_encoding(head)) is not None:
            self.source.encoding = found
            self.notes.append(f"{self.path}: read as {found}")
            with self.source.open() as stream:
                head = stream.read(HEAD_BYTES)
        if separator is not None:
            return separator
        if len(head) == HEAD_BYTES:
            head = head[: head.rfind(b"\n") + 1] or head
        return find_separator(head.decode("utf-8-sig", errors="replace"), self.path)

    def _read_columns(self, drop: Sequence[str]) -> list[str]:
        first = next(self.rows(), None)
        if first is None:
            raise InputError(f"{self.path}: file is empty, only blank lines")
        line, cells = first
        if not all(is_text(cell) for cell in cells):
            raise NotUtf8(f"{self.path}: line {line}: not UTF-8 text: convert the file to UTF-8")
        if self.header:
            self.header_end = line
        else:
            return [f"c{i}" for i in range(1, len(cells) + 1)]
        if all(is_number(cell) for cell in cells):
            raise InputError(
                f"{self.path}: line 1 holds only numbers, no column names: pass --no-header (they are then "
                "named c1, c2, ...)"
            )
        if cells[0].lower().startswith("sep="):
            raise InputError(f"{self.path}: line 1: {cells[0]!r} is for spreadsheets alone: remove the line")
        # A nameless column is nearly always a row number: it can only be dropped, by its position.
        names = [cell.strip() or f"c{i}" for i, cell in enumerate(cells, start=1)]
        check_names(names, f"{self.path}: line 1")
        if quoted := next(filter(in_quotes, names), None):
            raise InputError(f"{self.path}: line 1: column name {_show(quoted)} {QUOTED}")
        for i, (name, cell) in enumerate(zip(names, cells), start=1):
            if names.index(name) != i - 1:
                raise InputError(
                    f"{self.path}: line 1: column name {name!r} appears twice, in columns "
                    f"{names.index(name) + 1} and {i}: rename one"
                )
            if not cell.strip() and name not in drop:
                raise InputError(
                    f"{self.path}: line 1: column {i} has no name: name it, or pass --drop {quote(name)}"
                )
        return names

    def rows(self, on_read: OnRead | None = None) -> Iterator[tuple[int, list[str]]]:
        """Every non-blank row with the line it ends on, by the standard library."""
        with self.source.open(on_read) as stream:
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

    def body(self, first_line: int, text: bytes) -> bytes | None:
        """A block without byte order mark and header; None if a lone carriage return ends a line, too."""
        if first_line == 1:
            text = text.removeprefix(b"\xef\xbb\xbf")
        if b"\r" in text.replace(b"\r\n", b"\n"):
            return None
        for _ in range(first_line, self.header_end + 1):
            text = text[text.find(b"\n") + 1 :] if b"\n" in text else b""
        return text


def _reason(error: csv.Error) -> str:
    """What is wrong with quotes, in other words than the library's."""
    text = str(error)
    if text == "unexpected end of data":
        return "a quote is opened and never closed"
    return (
        "text follows a closing quote; write a quote within quotes twice"
        if "expected after" in text
        else text
    )


class CsvSource(CsvFile):
    """A CSV table with one label column; every other column is a numeric feature or dropped."""

    kind, quick = "dense", False

    def __init__(
        self,
        source: SourceFile,
        *,
        label: str | None,
        drop: Sequence[str] = (),
        header: bool = True,
        separator: str | None = None,
        block_bytes: int | None = None,
        features: Sequence[str] | None = None,
    ) -> None:
        super().__init__(source, drop=drop, header=header, separator=separator)
        self.block_bytes = block_bytes
        for name in drop:
            if name not in self.columns:
                raise InputError(f"{self.path}: no column {name!r} to drop{nearest(name, self.columns)}")
        if label is None and features is not None:
            rest = [name for name in self.columns if name not in set(features) | set(drop)]
            label = rest[0] if len(rest) == 1 else None
        if label is None:
            raise InputError(
                f"{self.path}: which column is the label? pass --label with one of: {_listing(self.columns)}"
            )
        if label not in self.columns:
            near = nearest(label, self.columns)
            if sum(map(is_number, self.columns)) > 1:
                near = "; line 1 holds numbers, not names: pass --no-header and --label c1, c2 and so on"
            raise InputError(f"{self.path}: no label column {label!r}{near}")
        if label in drop:
            raise InputError(f"{self.path}: column {label!r} is the label and cannot be dropped")
        self.label = label
        self.feature_names: list[str] | None = [
            name for name in self.columns if name != label and name not in set(drop)
        ]
        if not self.feature_names:
            out = f" and what is left out ({_listing(drop)})" if drop else ""
            raise InputError(f"{self.path}: no feature column besides the label {label!r}{out}")
        self.n_features: int | None = len(self.feature_names)

    def blocks(self, on_read: OnRead | None = None) -> Iterator[Block]:
        """Stream the rows."""
        row, slow = 0, False
        texts = self.source.line_blocks(self.block_bytes, on_read)
        with closing(in_order(self._parse, texts)) as parts:
            for text, parsed in parts:
                if text is not None and not text.strip(b"\r\n"):
                    continue
                if text is not None and row == 0:
                    self._note_zeros(text[:HEAD_BYTES])
                if parsed is None:
                    slow = True
                    break
                yield Block(*parsed, row)
                row += len(parsed[1])
        if slow:
            for block in self._read_slowly(row, on_read):
                row = block.first_row + len(block.labels)
                yield block
        if row == 0:
            raise InputError(f"{self.path}: no data rows, only the header")

    def _parse(self, block: tuple[int, bytes]) -> tuple[bytes | None, tuple[np.ndarray, np.ndarray] | None]:
        """The text of a block, and its rows; None where anything is unusual or wrong."""
        body = self.body(*block)
        text = None if body is None else PlainText.of(body, self.separator, len(self.columns))
        if body is None or text is None or not len(text.lines):
            return body, None
        features = self.feature_names or []
        known = set(features)
        if any(text.cell(0, i).lower() in TRUTH for i, name in enumerate(self.columns) if name in known):
            return (
                body,
                None,
            )  # pandas reads some spellings alone as numbers, where all cells are truth values
        dtype = {**dict.fromkeys(features, np.float64), self.label: str}
        frame = read_frame(body, self.separator, self.columns, dtype)
        if frame is None or len(frame) != len(text.lines):
            return body, None
        X = np.ascontiguousarray(frame[features].to_numpy(dtype=np.float64))
        labels = self._labels(frame[self.label].to_numpy(dtype=object))
        if labels is None or not np.isfinite(X).all() or np.abs(X).max() >= EXACT:
            return body, None
        return body, (X, labels)

    def _note_zeros(self, text: bytes) -> None:
        """Note a feature whose numbers begin with zeros, among the first."""
        cut = re.escape(self.separator.encode())
        known = set(self.feature_names or ())
        for match in re.finditer(rb"(?:^|[\n" + cut + rb"])0\d+(?=[\r\n" + cut + rb"])", text):
            start = text.rfind(b"\n", 0, match.end()) + 1
            at = text.count(self.separator.encode(), start, match.end())
            if at < len(self.columns) and (name := self.columns[at]) in known:
                number = match[0].lstrip(b"\n" + self.separator.encode()).decode()
                self.notes.append(f"{self.path}: column {name!r}: {zeros_lost(name, number)}")
                known.discard(name)

    def _labels(self, cells: np.ndarray) -> np.ndarray | None:
        """Float64 labels if all are numbers, else stripped strings; None if one is missing or not finite."""
        try:
            values = cells.astype(np.float64)
            if any(map(is_merging, cells[np.abs(values) >= EXACT])):
                return None
        except ValueError:
            texts = np.array([str(cell).strip() for cell in cells], dtype=object)
            distinct = set(texts)
            if any(is_number(text) and not np.isfinite(float(text)) for text in distinct):
                return None
            spoiled = any(text.lower() in MISSING or in_quotes(text) or is_merging(text) for text in distinct)
            return None if spoiled else texts
        return values if np.isfinite(values).all() else None

    def _read_slowly(self, start: int, on_read: OnRead | None) -> Iterator[Block]:
        """Rows from ``start`` on, each cell checked; raises at the first fault."""
        positions = [
            (i, name) for i, name in enumerate(self.columns) if name in set(self.feature_names or ())
        ]
        label = self.columns.index(self.label)
        capacity = max(1, SLOW_VALUES // len(self.columns))
        values: list[list[float]] = []
        labels: list[str] = []
        row = start
        for number, (line, cells) in enumerate(self.rows(on_read), start=-1 if self.header else 0):
            if number < start:
                continue
            values.append(self._check_row(line, cells, positions, label))
            labels.append(cells[label].strip())
            if len(values) == capacity:
                yield self._slow_block(values, labels, row)
                row += len(values)
                values, labels = [], []
        if values:
            yield self._slow_block(values, labels, row)

    def _slow_block(self, values: list[list[float]], labels: list[str], row: int) -> Block:
        checked = self._labels(np.array(labels, dtype=object))
        assert checked is not None  # _check_row has refused what _labels refuses
        return Block(np.array(values, dtype=np.float64), checked, row)

    def _check_row(
        self, line: int, cells: list[str], positions: list[tuple[int, str]], label: int
    ) -> list[float]:
        where = f"{self.path}: line {line}"
        if len(cells) != len(self.columns):
            raise InputError(
                f"{where}: {len(cells)} cells, but there are {len(self.columns)} columns: correct it, or "
                "quote cells that hold the separator"
            )
        values = []
        for i, name in positions:
            cell = cells[i].strip()
            if not cell:
                raise NotNumbers(
                    f"{where}, column {name!r}: empty cell: fill in missing values, or --drop the column"
                )
            if not is_number(cell):
                raise (NotNumbers if is_text(cell) else NotUtf8)(
                    f"{where}, column {name!r}: {_show(cell)} is not a number: encode it or --drop the column"
                )
            value = float(cell)
            if np.isnan(value):
                raise NotNumbers(f"{where}, column {name!r}: {_show(cell)} {NOT_FINITE}")
            if np.isinf(value) or is_merging(cell):
                fault = TOO_LARGE if np.isfinite(value) else NOT_FINITE
                raise InputError(f"{where}, column {name!r}: {_show(cell)} {fault}")
            values.append(value)
        cell = cells[label].strip()
        if not is_text(cell):
            raise NotUtf8(f"{where}, label column {self.label!r}: {_show(cell)} is not UTF-8 text")
        if cell.lower() in MISSING:
            raise InputError(
                f"{where}, label column {self.label!r}: missing label {_show(cell)}: remove the row"
            )
        if is_merging(cell) or in_quotes(cell):
            fault = QUOTED if in_quotes(cell) else TOO_LARGE
            raise InputError(f"{where}, label column {self.label!r}: {_show(cell)} {fault}")
        if is_number(cell) and not np.isfinite(float(cell)):
            raise InputError(f"{where}, label column {self.label!r}: {_show(cell)} {NOT_FINITE}")
        return values

    def where(self, row: int) -> str:
        """Name the line of a zero-based data row."""
        for number, (line, _) in enumerate(self.rows()):
            if number == row + (1 if self.header else 0):
                return f"line {line}"
        return f"row {row + 1}"


def zeros_lost(name: str, number: str) -> str:
    """Note about numbers of a column that begin with zeros."""
    return f"leading zeros, such as {number!r}, are lost: for codes pass --categorical {quote(name)}"


def is_text(cell: str) -> bool:
    """Whether a cell read with ``surrogateescape`` was UTF-8."""
    return not any("\udc80" <= character <= "\udcff" for character in cell)


def is_number(cell: str) -> bool:
    """Whether a cell reads as a number, also an infinite one or NaN."""
    if "_" in cell:  # float("1_000") is Python, not CSV
        return False
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _show(cell: str) -> str:
    return repr(cell if len(cell) <= 40 else cell[:37] + "...")


def _listing(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 60 else ", ".join(names[:60]) + f", ... ({len(names)} columns)"

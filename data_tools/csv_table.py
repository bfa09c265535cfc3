"""The text of CSV tables: what it does not say about itself, column names, and rows of cells."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator, Sequence
from shlex import quote

from fastadmm.data_tools.blocks import OnRead
from fastadmm.data_tools.columns import QUOTED, in_quotes
from fastadmm.data_tools.opening import NotUtf8, SourceFile, check_names
from fastadmm.errors import ConfigError, InputError

#: Separators that are recognised; the first is taken where there is only one column.
SEPARATORS = (",", ";", "\t", "|")

#: Read where bytes are not UTF-8: Western European, with all letters of Latin-1.
FALLBACK = "cp1252"

#: Bytes and rows at the beginning of a file that are looked at.
HEAD_BYTES, HEAD_ROWS = 1 << 16, 50

_MARKS = ((codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_WIDE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}


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
        self.file = source
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
        with self.file.open() as stream:
            head = stream.read(HEAD_BYTES)
        if self.file.encoding is None and (found := find_encoding(head)) is not None:
            self.file.encoding = found
            self.notes.append(f"{self.path}: read as {found}")
            with self.file.open() as stream:
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
            raise InputError(f"{self.path}: line 1: column name {quoted[:40]!r} {QUOTED}")
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


def check_separator(separator: str | None) -> None:
    """Refuse what cannot stand between cells."""
    if separator is None or (len(separator) == 1 and separator not in '"\r\n' and separator.isascii()):
        return
    raise ConfigError(f"--separator {separator!r}: give one character, such as ';'")


def find_encoding(head: bytes) -> str | None:
    """Encoding by the mark at the beginning of a file: UTF-16 or UTF-32, or None for UTF-8 and all others."""
    return next((name for mark, name in _MARKS if head.startswith(mark)), None)


def one_byte_encoding(source: SourceFile) -> str:
    """The encoding of a text that is not UTF-8, with one byte for each character."""
    for first, text in source.line_blocks():
        if text.isascii():
            continue
        if match := _WIDE.search(text):
            line = first + text.count(b"\n", 0, match.start())
            raise InputError(
                f"{source.shown}: line {line} holds UTF-8 text, but other lines are not UTF-8 text: save the "
                "whole file in one encoding, or pass --encoding"
            )
        try:
            text.decode(FALLBACK)
        except UnicodeDecodeError as error:
            line = first + text.count(b"\n", 0, error.start)
            raise InputError(
                f"{source.shown}: line {line}: not UTF-8 text, nor {FALLBACK}: pass --encoding, or "
                f"convert the "
                "file to UTF-8"
            ) from None
    return FALLBACK


def read_as(source: SourceFile) -> str:
    """Line for the user about the encoding of a text that is not UTF-8."""
    return f"{source.shown}: not UTF-8, so read as {source.encoding}; pass --encoding if it is another"


def find_separator(head: str, path: str) -> str:
    """The separator that gives all rows at the beginning of a file the same number of cells."""
    found = []
    for separator in SEPARATORS:
        if separator not in head:
            continue
        try:
            rows = [row for row, _ in zip(_rows(head, separator), range(HEAD_ROWS))]
        except csv.Error:
            continue
        if rows and len(rows[0]) > 1 and len({len(row) for row in rows}) == 1:
            found.append(separator)
    if len(found) > 1:
        one, other = found[:2]
        raise InputError(
            f"{path}: cells may be separated by {_NAMES[one]} or by {_NAMES[other]}: pass --separator "
            f"{one!r} or "
            f"--separator {other!r}"
        )
    if found:
        return found[0]
    counts = [(_rows_width(head, separator), separator) for separator in SEPARATORS]
    return max(counts, key=lambda entry: entry[0])[1]


def _rows(head: str, separator: str) -> Sequence[list[str]]:
    return [row for row in csv.reader(io.StringIO(head, newline=""), delimiter=separator) if row]


def _rows_width(head: str, separator: str) -> int:
    """Cells of the first line."""
    first = head.lstrip("\r\n").split("\n", 1)[0]
    return first.count(separator)

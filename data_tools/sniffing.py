"""What a text table does not say about itself: its encoding and the separator of its cells."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Sequence

from fastadmm.data_tools.opening import SourceFile
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


def check_separator(separator: str | None) -> None:
    """Refuse what cannot stand between cells."""
    if separator is None or (len(separator) == 1 and separator not in '"\r\n' and separator.isascii()):
        return
    raise ConfigError(f"--separator {separator!r}: give one character, such as ';'")


def find_encoding(head: bytes) -> str | None:
    """Encoding by the first bytes of a file: UTF-16 or UTF-32, or None for UTF-8 and all others."""
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name
    half = min(len(head), 4096) // 2
    if half >= 4:
        for offset, name in ((1, "utf-16-le"), (0, "utf-16-be")):
            if head[offset : 2 * half : 2].count(0) > 0.8 * half and not head[
                1 - offset : 2 * half : 2
            ].count(0):
                return name
    return None


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

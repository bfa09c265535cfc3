"""Texts of others, spelled for where they go: a terminal, CSV, Markdown, SQL, JSON on a screen.

Names of columns, categories, labels, runs and files are anybody's. In each of these places some characters
are orders: to a terminal, a spreadsheet, a page or a database. (Pages of HTML escape in their templates.)
"""

import csv
import json
import re
from collections.abc import Iterable
from typing import Any, TextIO


def printable(text: str) -> str:
    """A text as one line without control characters: quoted, with escapes, where it has any."""
    return text if text.isprintable() else ascii(text)


def printable_lines(text: str) -> str:
    """Lines without control characters: each is spelled as in a Python string."""
    return "\n".join(
        line if line.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)
        for line in text.split("\n")
    )


def printable_json(text: str) -> str:
    """JSON for a screen: the same document, with escapes for all that is not printable."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


#: What spreadsheets take for the beginning of a formula, also in its full width.
_FORMULA = re.compile(r"[\t\n]|\s*[=+\-@\uff1d\uff0b\uff0d\uff20]")


def csv_cell(value: Any) -> Any:
    """A value of a CSV table; a text that a spreadsheet would compute gets an apostrophe before it."""
    if not isinstance(value, str):
        return value
    value = value.replace("\r\n", "\n").replace("\r", "\n")  # which writers do not put into quotes
    if not _FORMULA.match(value):
        return value
    try:
        float(value)
    except ValueError:
        return "'" + value
    return value


def csv_rows(file: TextIO, rows: Iterable[Iterable[Any]]) -> None:
    """Write rows of CSV, with :func:`csv_cell` for every cell."""
    csv.writer(file, lineterminator="\n").writerows([csv_cell(cell) for cell in row] for row in rows)


def markdown(text: str) -> str:
    """A text within a line or a cell of Markdown, as it is read."""
    text = re.sub(r"[\\`*|<>\[\]~&$]", r"\\\g<0>", printable(text))
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", text)  # within a word it is only itself

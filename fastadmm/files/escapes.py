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


def sql_identifier(name: str) -> str:
    """A name of a column in SQL."""
    if re.search(r'\\(?:"|$)', name) or not name.isprintable():
        raise ValueError(f"{name!a} has a character that databases do not read alike")
    return '"' + name.replace('"', '""') + '"'


def sql_text(text: str) -> str:
    """A text in SQL, the same for databases in which a backslash escapes and for those in which it does
    not.
    """
    if "\0" in text:
        raise ValueError(f"{text!a} has the character NUL, which no database takes")
    quoted = text.replace("'", "''")
    if "\\" not in text:
        return f"'{quoted}'"
    stand_in = next(c for c in map(chr, range(33, 0x10000)) if c not in text and c not in "'\\")
    # Where a backslash escapes, the text in SUBSTR has one, elsewhere two: the first is one in any case.
    return f"REPLACE('{quoted.replace(chr(92), stand_in)}', '{stand_in}', SUBSTR('\\\\', 1, 1))"

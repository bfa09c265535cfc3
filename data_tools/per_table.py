"""Options that may differ from table to table: ``VALUE`` for all, ``TABLE:VALUE`` for one."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastadmm.data_tools.csv_table import check_separator
from fastadmm.data_tools.suggest import nearest
from fastadmm.data_tools.tables import Layout
from fastadmm.errors import ConfigError


@dataclass(frozen=True)
class TableRows:
    """How tables are read and joined; the defaults are those of the command line."""

    id: str | Sequence[str] | None = None
    alignment: str | Path | None = None  # written by ``fastadmm align``: which rows, and in which order
    offset: str | None = None  # column of the first table that is added to the score
    exposure: str | None = None  # column of the first table whose logarithm is added
    separator: str | Sequence[str] | None = None
    encoding: str | Sequence[str] | None = None
    header: bool = True  # whether CSV files begin with column names
    duplicates: str = "refuse"  # what is done with ids that occur more than once in a table
    id_pattern: str | Sequence[str] | None = None  # regular expression of the part of ids that is compared


def given_options(options: object, *names: str) -> list[str]:
    """Those of some options that have a value, as they are written."""
    return [f"--{name.replace('_', '-')}" for name in names if getattr(options, name)]


def of_each(options: TableRows, names: Sequence[set[str]]) -> list[tuple[Layout, str | None, str | None]]:
    """How each table is laid out, its id column, and the pattern of its ids."""
    ids = per_table("--id", options.id or None, names)
    patterns = per_table("id_pattern", options.id_pattern, names)
    return list(zip(layouts(options.separator, options.encoding, options.header, names), ids, patterns))


def table_names(paths: Sequence[str | Path], parties: Sequence[str]) -> list[set[str]]:
    """What options may call each table: the name of its party, or of its file with or without endings."""
    files = [Path(path).name for path in paths]
    stems = [name.partition(".")[0] for name in files]
    result = [
        {name for name, all_ in ((stem, stems), (file, files)) if all_.count(name) == 1}
        for stem, file in zip(stems, files)
    ]
    for own, party in zip(result, parties):
        own.add(party)
    return result


def per_table(option: str, given: str | Sequence[str] | None, names: Sequence[set[str]]) -> list[str | None]:
    """The value of an option for each table; None where nothing is given."""
    entries = [given] if isinstance(given, str) else list(given or ())
    common: str | None = None
    own: list[str | None] = [None] * len(names)
    for entry in entries:
        table, _, value = entry.partition(":")
        holders = [k for k, known in enumerate(names) if value and table in known]
        if len(holders) == 1:
            (k,) = holders
            if own[k] is not None:
                raise ConfigError(f"{option}: {table!r} is given twice")
            own[k] = value
        elif common is not None:
            known = ", ".join(" or ".join(sorted(own_names)) for own_names in names)
            raise ConfigError(
                f"{option}: {common!r} and {entry!r}: give one for all tables, or TABLE:VALUE; the "
                f"tables are {known}"
            )
        else:
            common = entry
    return [value if value is not None else common for value in own]


def layouts(
    separator: str | Sequence[str] | None,
    encoding: str | Sequence[str] | None,
    header: bool,
    names: Sequence[set[str]],
) -> list[Layout]:
    """How the text of each table is laid out, as the options say."""
    found = []
    separators, encodings = (
        per_table(option, given, names)
        for option, given in (("--separator", separator), ("--encoding", encoding))
    )
    for mark, code in zip(separators, encodings):
        mark = "\t" if mark in ("\\t", "tab") else mark
        check_separator(mark)
        if code is not None:
            try:
                codecs.lookup(code)
                b"".decode(code)
            except (LookupError, ValueError):
                raise ConfigError(
                    f"--encoding {code!r}: unknown; choose utf-8, cp1252, latin-1, utf-16 or another "
                    f"of Python's"
                ) from None
        found.append(Layout(mark, code, header))
    return found


def decimal_marks(given: str | Sequence[str] | None, names: Sequence[set[str]]) -> list[str | None]:
    """Decimal mark of each table's numbers, checked."""
    marks = per_table("--decimal", given, names)
    for mark in marks:
        if mark not in (None, ".", ","):
            raise ConfigError(f"--decimal {mark!r}: choose one of '.', ',', or TABLE:MARK for one table")
    return marks


def missing_words(entries: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Read ``--na-values``: words with commas between, ``column=word`` for one column."""
    words: dict[str, tuple[str, ...]] = {}
    for entry in (part for text in entries for part in text.split(",")):
        column, _, word = (part.strip() for part in entry.rpartition("="))
        if not word:
            raise ConfigError(f"--na-values {entry!r}: give a word, or COLUMN=WORD")
        words[column] = (*words.get(column, ()), word)
    return words


def check_columns(option: str, columns: Mapping[str, object], known: Sequence[str], files: str) -> None:
    """Refuse names that no table has."""
    for name in columns:
        if name and name not in known:
            raise ConfigError(f"{files}: {option}: no table has a column {name!r}{nearest(name, known)}")

"""How tables are read and joined; the id column may differ from table to table."""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastadmm.data_tools.csv_table import check_separator
from fastadmm.data_tools.suggest import nearest
from fastadmm.data_tools.tables import Layout
from fastadmm.errors import ConfigError

#: What the command line takes by ``--set`` alone.
_KEYS = ("compression", "dtype", "id_pattern", "normalize", "storage", "x_key", "y_key", "zero_based")


@dataclass(frozen=True)
class TableRows:
    """How tables are read and joined; the defaults are those of the command line."""

    id: str | Sequence[str] | None = None
    alignment: str | Path | None = None  # written by ``fastadmm align``: which rows, and in which order
    offset: str | None = None  # column of the first table that is added to the score
    exposure: str | None = None  # column of the first table whose logarithm is added
    separator: str | None = None
    encoding: str | None = None
    header: bool = True  # whether CSV files begin with column names
    duplicates: str = "refuse"  # what is done with ids that occur more than once in a table
    id_pattern: str | None = None  # regular expression of the part of ids that is compared

    @property
    def layout(self) -> Layout:
        """How the text of the tables is laid out."""
        mark = "\t" if self.separator in ("\\t", "tab") else self.separator
        check_separator(mark)
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
                b"".decode(self.encoding)
            except (LookupError, ValueError):
                raise ConfigError(
                    f"--encoding {self.encoding!r}: unknown; choose utf-8, cp1252, latin-1, utf-16 or "
                    "another of Python's"
                ) from None
        return Layout(mark, self.encoding, self.header)


def given_options(options: object, *names: str) -> list[str]:
    """Those of some options that have a value, as they are written."""
    given = [name for name in names if getattr(options, name)]
    return [name if name in _KEYS else f"--{name.replace('_', '-')}" for name in given]


def table_names(paths: Sequence[str | Path], parties: Sequence[str]) -> list[set[str]]:
    """What ``--id`` may call each table: the name of its party, or of its file with or without endings."""
    files = [Path(path).name for path in paths]
    stems = [name.partition(".")[0] for name in files]
    result = [
        {name for name, all_ in ((stem, stems), (file, files)) if all_.count(name) == 1}
        for stem, file in zip(stems, files)
    ]
    for own, party in zip(result, parties):
        own.add(party)
    return result


def id_columns(given: str | Sequence[str] | None, names: Sequence[set[str]]) -> list[str | None]:
    """The id column of each table; None where nothing is given."""
    entries = [given] if isinstance(given, str) else list(given or ())
    common: str | None = None
    own: list[str | None] = [None] * len(names)
    for entry in filter(None, entries):
        table, _, value = entry.partition(":")
        holders = [k for k, known in enumerate(names) if value and table in known]
        if len(holders) == 1:
            (k,) = holders
            if own[k] is not None:
                raise ConfigError(f"--id: {table!r} is given twice")
            own[k] = value
        elif common is not None:
            known = ", ".join(" or ".join(sorted(own_names)) for own_names in names)
            raise ConfigError(
                f"--id: {common!r} and {entry!r}: give one for all tables, or TABLE:VALUE; the "
                f"tables are {known}"
            )
        else:
            common = entry
    return [value if value is not None else common for value in own]


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

"""How tables are read, joined and converted; the id column may differ from table to table."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastadmm.data_tools.column_types import Typing, parse_types
from fastadmm.data_tools.columns import nearest
from fastadmm.data_tools.split import HoldOut
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


@dataclass(frozen=True)
class TableOptions(TableRows):
    """How a source or tables become a partition; the defaults are those of the command line."""

    label: str | None = None  # label column of the guest's table; None: no labels (for prediction)
    weight: str | None = None  # column of sample weights
    split: str | None = None  # which rows become a test partition, as HoldOut reads it
    like: str | Path | None = None
    names: str | None = None  # names of the parties, guest first
    drop: Sequence[str] = ()  # columns left out
    categorical: Sequence[str] = ()  # columns whose numbers are codes of categories
    types: Sequence[str] = ()
    na_values: Sequence[str] = ()
    decimal: str | None = None  # mark of numbers
    public_columns: str | Path | None = None
    missing: str | None = None  # what is done with missing values (MISSING_POLICIES); default "refuse"
    standardize: bool = False
    normalize: str | None = None  # "l2": then scale each row of each party to norm 1
    dtype: str | None = None  # type of the stored features
    task: str | None = None  # what the labels are
    positive: str | None = None  # the label that is class 1
    storage: str | None = None  # how features are stored; "auto" is dense for tables
    compression: str = "none"  # of the stored blocks
    # What is read: tables of the label holder and of others, or a source without ids.
    guest: str | Path | None = None
    hosts: Sequence[str | Path] = ()
    source: str | Path | None = None
    # Of a source without ids alone:
    columns: str | None = None  # widths or names of the parties' columns
    parties: int | None = None
    format: str = "auto"
    features: int | None = None  # number of features of LIBSVM files
    zero_based: bool = False
    x_key: str | None = None  # arrays of an NPZ file
    y_key: str | None = None

    @property
    def kinds(self) -> dict[str, str]:
        """Kinds of columns that the user states."""
        return parse_types([*self.types, *(f"{name}=category" for name in self.categorical)])

    @property
    def typing(self) -> Typing:
        """What the user says about columns."""
        if self.decimal not in (None, ".", ","):
            raise ConfigError(f"--decimal {self.decimal!r}: choose one of '.', ','")
        return Typing(self.kinds, self.decimal)

    @property
    def held_out(self) -> HoldOut | None:
        """Which rows become a test partition."""
        return None if self.split is None else HoldOut.parse(self.split)

    @property
    def beside(self) -> dict[str, str | None]:
        """Columns that are kept beside the labels, by what they are."""
        return {"weight": self.weight, "offset": self.offset, "exposure": self.exposure}

    @property
    def of_guest(self) -> dict[str, str]:
        """Columns of the guest's table that are no features, by what they are."""
        return {what: name for what, name in {"label": self.label, **self.beside}.items() if name is not None}

    @property
    def by_column(self) -> list[str]:
        """Options that need a table read column by column, as they are written."""
        names = ("public_columns", "missing", "categorical", "types", "na_values", "decimal")
        return given_options(self, *names, *self.beside, "split")


def given_options(options: object, *names: str) -> list[str]:
    """Those of some options that have a value, as they are written."""
    given = [name for name in names if getattr(options, name)]
    return [name if name in _KEYS else f"--{name.replace('_', '-')}" for name in given]


#: Options that ``--like`` decides.
_FIXED = (
    "names", "categorical", "types", "na_values", "decimal", "missing", "standardize",
    "normalize", "dtype", "task", "positive", "split", "storage",
)  # fmt: skip


def refuse_fixed(options: object, what: str, *more: str) -> None:
    """Refuse options that ``--like`` decides."""
    for option in given_options(options, *_FIXED, *more):
        raise ConfigError(f"{option} and --like: {what} given by --like decides; leave {option} out")


def check_format_options(kind: str, options: Any, place: str) -> None:
    """Refuse options that would have no effect."""
    kind = "csv" if kind == "parquet" else kind
    own = {
        "csv": given_options(options, "label", "drop", "separator") + ["--no-header"] * (not options.header),
        "libsvm": given_options(options, "zero_based", "features"),
        "npz": given_options(options, "x_key", "y_key"),
    }
    for owner, given in own.items():
        if given and owner != kind:
            raise ConfigError(
                f"{place}{given[0]} is for {owner} sources, but this one is read as {kind}: pass --format "
                f"{owner} if it is {owner}"
            )


def table_names(paths: Sequence[str | Path], parties: Sequence[str]) -> list[set[str]]:
    """What ``--id`` may call each table: the name of its party, or of its file with or without endings."""
    files = [Path(path).name for path in paths]
    stems = [name.partition(".")[0] for name in files]
    result = [{kind[k] for kind in (stems, files) if kind.count(kind[k]) == 1} for k in range(len(files))]
    for own, party in zip(result, parties):
        own.add(party)
    return result


def id_columns(given: str | Sequence[str] | None, names: Sequence[set[str]]) -> list[str | None]:
    """The id column of each table; None where nothing is given."""
    common: str | None = None
    own: dict[int, str] = {}
    for entry in filter(None, [given] if isinstance(given, str) else given or ()):
        table, _, value = entry.partition(":")
        holders = [k for k, known in enumerate(names) if value and table in known]
        if len(holders) == 1:
            if holders[0] in own:
                raise ConfigError(f"--id: {table!r} is given twice")
            own[holders[0]] = value
        elif common is not None:
            known = ", ".join(" or ".join(sorted(own_names)) for own_names in names)
            raise ConfigError(
                f"--id: {common!r} and {entry!r}: give one for all tables, or TABLE:VALUE; the tables "
                f"are {known}"
            )
        else:
            common = entry
    return [own.get(k, common) for k in range(len(names))]


def missing_words(entries: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Read ``--na-values``: words with commas between, ``column=word`` for one column."""
    words: dict[str, tuple[str, ...]] = {}
    for entry in (part for text in entries for part in text.split(",")):
        column, _, word = (part.strip() for part in entry.rpartition("="))
        if not word:
            raise ConfigError(f"--na-values {entry!r}: give a word, or COLUMN=WORD")
        words[column] = (*words.get(column, ()), word)
    return words


def check_columns(option: str, columns: Iterable[str], known: Sequence[str], files: str) -> None:
    """Refuse names that no table has."""
    for name in columns:
        if name and name not in known:
            raise ConfigError(f"{files}: {option}: no table has a column {name!r}{nearest(name, known)}")

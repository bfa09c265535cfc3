"""How tables are read, joined, converted and split; the id column may differ from table to table."""

from __future__ import annotations

import codecs
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from fastadmm.data_tools.cell_text import date_formats, to_number
from fastadmm.data_tools.column_types import Typing, as_numbers, parse_types
from fastadmm.data_tools.columns import is_number, nearest
from fastadmm.data_tools.csv_table import Layout
from fastadmm.data_tools.tables import Table
from fastadmm.errors import ConfigError, InputError
from fastadmm.store.block_file import check_party_name, first_twice

_WIDTHS = re.compile(r"\s*[+-]?\d+\s*(,\s*[+-]?\d+\s*)*,?\s*\Z")


@dataclass(frozen=True)
class PartyColumns:
    """Columns of one party."""

    name: str  # the party's name
    columns: slice | np.ndarray  # a range of columns, or their numbers in the party's order (int64)
    width: int  # number of columns

    def take(self, X: Any) -> Any:
        """The party's columns of rows, dense or CSR."""
        part = X[:, self.columns]
        if not isinstance(part, np.ndarray):
            part.sort_indices()
        return part


def is_widths(spec: str) -> bool:
    """Whether a column specification is a list of widths (``"66,57"``) and not of names."""
    return bool(_WIDTHS.match(spec))


def parse_widths(spec: str) -> list[int]:
    """Parse widths."""
    if not is_widths(spec):
        raise ConfigError(f"--columns {spec!r}: expected widths such as 66,57")
    widths = [int(part) for part in spec.split(",") if part.strip()]
    for number, width in enumerate(widths, start=1):
        if width < 1:
            problem = f"party {number} has width {width}; every party needs a column"
            raise ConfigError(f"--columns {spec!r}: {problem}")
    return widths


def equal_widths(n_parties: int, n_features: int) -> list[int]:
    """Split columns into nearly equal consecutive blocks."""
    if n_parties < 1:
        raise ConfigError(f"--parties {n_parties}: at least one party is needed")
    if n_parties > n_features:
        raise InputError(f"{n_parties} parties, but only {n_features} feature columns: every party needs one")
    base, extra = divmod(n_features, n_parties)
    return [base + 1] * extra + [base] * (n_parties - extra)


def parse_names(names: str | None, n_parties: int) -> list[str]:
    """Names of the parties."""
    if names is None:
        return [f"party-{i}" for i in range(1, n_parties + 1)]
    parts = [part.strip() for part in names.split(",")]
    if len(parts) != n_parties:
        raise ConfigError(f"--names {names!r}: {len(parts)} names for {n_parties} parties")
    for part in parts:
        check_party_name(part, "--names", ConfigError)  # it becomes a file name, next to labels.h5
    if (twice := first_twice(parts, str.lower)) is not None:
        raise ConfigError(f"--names: {twice!r} is given twice")
    return parts


def by_widths(
    widths: Sequence[int], names: Sequence[str], n_features: int | None = None
) -> list[PartyColumns]:
    """Consecutive column ranges."""
    *ends, total = accumulate(widths, initial=0)
    if n_features is not None and total != n_features:
        added = f"{'+'.join(map(str, widths))} = {total}"
        raise InputError(f"widths {added} do not add up to the {n_features} feature columns")
    return [PartyColumns(n, slice(start, start + w), w) for n, w, start in zip(names, widths, ends)]


def by_names(
    lists: Sequence[Sequence[str]], names: Sequence[str], columns: Sequence[str]
) -> list[PartyColumns]:
    """Columns picked by name."""
    position = {column: i for i, column in enumerate(columns)}
    owner: dict[str, int] = {}
    result = []
    for number, (party, wanted) in enumerate(zip(names, lists), start=1):
        if not wanted:
            raise InputError(f"party {number} has no columns")
        for column in wanted:
            if column not in position:
                raise InputError(f"no feature column {column!r} for party {number}{nearest(column, columns)}")
            if (other := owner.setdefault(column, number)) != number or wanted.count(column) > 1:
                raise InputError(f"column {column!r} is given twice, to party {other} and to party {number}")
        result.append(PartyColumns(party, np.array([position[column] for column in wanted]), len(wanted)))
    if rest := [column for column in columns if column not in owner]:
        more = f" and {len(rest) - 20} more" if len(rest) > 20 else ""
        remedy = "give them to a party or leave them out with --drop"
        raise InputError(f"columns of no party: {','.join(rest[:20])}{more}: {remedy}")
    return result


def split_names(spec: str) -> list[list[str]]:
    """Parse lists of column names; empty ones are kept, so that ``"a,b;"`` is refused and not repaired."""
    return [[part.strip() for part in party.split(",") if part.strip()] for party in spec.split(";")]


def party_columns(
    options: Any, path: str, n_features: int, features: Sequence[str] | None = None, like: Any = None
) -> list[PartyColumns]:
    """Who has which columns of a source, by ``TableOptions`` or as in a partition."""
    columns = options.columns
    try:
        if like is not None:
            widths, names = [p.n_features for p in like.parties], [p.name for p in like.parties]
        elif columns is None or is_widths(columns):
            given = options.parties or 0
            widths = parse_widths(columns) if columns is not None else equal_widths(given, n_features)
            names = parse_names(options.names, len(widths))
        elif features is None:
            problem = "this format has no column names; give widths such as 66,57"
            raise InputError(f"--columns {columns!r}: {problem}")
        else:
            lists = split_names(columns)
            return by_names(lists, parse_names(options.names, len(lists)), features)
        return by_widths(widths, names, n_features)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


# --- rows between training and test ------------------------------------------------------------------------

_WAYS = "0.3, time:COLUMN=0.3, time:COLUMN=2024-01-31 or group:COLUMN=0.3"


@dataclass(frozen=True)
class HoldOut:
    """Which rows are held out, as ``--split`` says it."""

    text: str
    kind: str  # "random", "time" or "group"
    column: str  # of times or groups
    share: float | None  # of the rows; None: all from some time on
    start: str  # that time

    @classmethod
    def parse(cls, text: str) -> HoldOut:
        """Read ``SHARE``, ``time:COLUMN=SHARE``, ``time:COLUMN=DATE`` or ``group:COLUMN=SHARE``."""
        rule, equals, value = text.rpartition("=")
        kind, _, column = rule.partition(":") if equals else ("random", "", "")
        share = float(value) if is_number(value) else None
        timed = kind == "time" and value != "" and not (share is not None and share < 1.0)
        known = not equals or (kind in ("time", "group") and column)
        if not known or not (timed or (share is not None and 0.0 < share < 1.0)):
            raise ConfigError(f"--split {text!r}: give {_WAYS}")
        return cls(text, kind, column, None if timed else share, value)

    def rows(self, ids: np.ndarray, table: Table, rows: np.ndarray, typing: Typing) -> np.ndarray:
        """Which of the rows are held out; those of one time or group stay together.

        Shapes: ids, rows, the result (N,).
        """
        if self.column:
            table.refuse_missing(self.column, rows, self.kind)
        if self.kind == "time":
            held = self._late(table, rows, typing)
        elif self.kind == "group":
            column = table.columns[self.column].as_text()
            held = self._first(_hashes(column.words)[column.values[rows]])
        else:
            held = self._first(_hashes(map(str, ids.tolist())))
        if held.all() or not held.any():
            left = "training" if held.all() else "the test"
            raise InputError(f"{table.path}: --split {self.text!r}: leaves no row for {left}")
        return held

    def _first(self, keys: np.ndarray) -> np.ndarray:
        """The rows of the smallest keys, as many as come next to the share; rows of one key stay together.

        Shapes: keys, the result (N,).
        """
        assert self.share is not None
        groups, counts = np.unique(keys, return_counts=True)
        aside = np.abs(np.cumsum(counts)[:-1] - self.share * len(keys))
        return keys <= groups[np.argmin(aside)] if len(aside) else np.ones(len(keys), dtype=bool)

    def _late(self, table: Table, rows: np.ndarray, typing: Typing) -> np.ndarray:
        """The rows from some time on, or the latest.

        Shapes: rows, the result (N,).
        """
        name, column = self.column, table.columns[self.column]
        dated = self.share is None and not is_number(self.start)
        kind = "days" if dated or not all(map(is_number, filter(None, column.words))) else "number"
        own = replace(typing, kinds={name: typing.kinds.get(name, kind)})
        column, reading = as_numbers(table, name, column, own)
        if column.kind != "number":
            raise table.refused(name, "no time")
        times = column.values[rows]
        if self.share is not None:
            return self._first(-times)
        if not dated:
            return times >= float(self.start)
        # A date is written as in the column, or as 2024-01-31.
        styles = [reading.dates if reading is not None else "", *date_formats([self.start])[:1]]
        for start in (to_number(self.start, "days", style) for style in styles if style):
            if start is not None:
                return times >= start
        raise ConfigError(f"--split {self.text!r}: {self.start!r} is no date; write it as 2024-01-31")


def _hashes(texts: Iterable[str]) -> np.ndarray:
    """A number for each text that is the same everywhere and tells nothing of the text.

    Shapes: the result (N,).
    """
    digests = (hashlib.blake2b(t.encode(), digest_size=8, key=b"fastadmm split").digest() for t in texts)
    return np.frombuffer(b"".join(digests), dtype=">u8")


# --- options --------------------------------------------------------------------------------------------


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
                f"{place}{given[0]} is for {owner} sources, but this one is read as {kind} (of LIBSVM, CSV, "
                f"Parquet and NPZ): pass --format {owner} if it is {owner}"
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

"""Encode columns of a table as features: fitted on the training table, applied to all others.

Instead, a public description may say all: bounds, categories and fill values written by a person, none
learned. It is a TOML file with a table ``[columns.NAME]`` for each column, and encodes each cell without
looking at other rows, so that one record changes only its own row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from shlex import quote
from typing import Any, cast

import numpy as np
from fastadmm.data_tools.column_types import Typing, as_numbers, read_column, recognise
from fastadmm.data_tools.columns import TRUTH, Column, canonical_text, in_quotes, nearest, truth_levels
from fastadmm.data_tools.per_table import TableOptions, missing_words
from fastadmm.data_tools.tables import Table
from fastadmm.errors import ConfigError, FormatError, InputError
from fastadmm.files.atomic import shown
from fastadmm.files.reading import read_toml
from fastadmm.store.block_file import first_twice
from fastadmm.store.encoder import DESCRIBED, OTHER, CellReading, ColumnEncoding, Encoder

#: More categories than this are an id or free text, unless --categorical names the column.
MAX_LEVELS = 100


#: What a user is told of a column, by what happened there: with the number of cells, and one of them.
_TOLD = {
    "unseen": "{} cells with unseen categories, such as {!r}: all zeros",
    "outside": "{} numbers below or above those of training: in the first or last bin",
    "filled": "{} missing cells filled",
    "grouped": "points stand before three digits in all cells, and are read as decimal points: write numbers "
    "without points if they group thousands",
}


@dataclass
class EncodingReport:
    """What happened while a table was encoded."""

    #: Numbers of cells by what happened, and by column.
    counts: dict[str, Counter[str]] = field(default_factory=lambda: {what: Counter() for what in _TOLD})
    examples: dict[str, str] = field(default_factory=dict)  # one unseen category per column

    def add(self, other: EncodingReport) -> None:
        """Add what happened in further rows."""
        for what, own in self.counts.items():
            own.update(other.counts[what])
        self.examples = other.examples | self.examples

    def lines(self, path: str) -> list[str]:
        """One line per column with unseen categories, filled cells or doubtful points."""
        told = ((name, what, n) for what, own in self.counts.items() for name, n in own.items())
        return [
            f"{path}: column {name!r}: {_TOLD[what].format(n, self.examples.get(name))}"
            for name, what, n in told
        ]


# --- fitting ---------------------------------------------------------------------------------------------


def fit_encoder(
    table: Table,
    columns: Sequence[str],
    rows: np.ndarray,
    shown: Mapping[str, str],
    options: TableOptions,
    described: Description | None = None,
) -> Encoder:
    """The encoder of some columns, fitted to rows or described; each feature has its own name."""
    missing, na, found = options.missing or "refuse", missing_words(options.na_values), []
    for name in columns:
        own = shown.get(name, "")
        words = tuple(dict.fromkeys([*na.get("", ()), *na.get(name, ())]))
        if described is None:
            encoding = _fit_column(table, name, table.columns[name], rows, missing, options.typing)
        else:
            encoding = described.encoding(table, name, own, options.typing)
        found.append(replace(encoding, name=name, na=words, shown=own))
    encoder = Encoder(tuple(found), missing if described is None else DESCRIBED)
    if (twice := first_twice(encoder.feature_names)) is not None:
        raise InputError(f"{table.path}: two features would be named {twice!r}: rename a column")
    return encoder


def refuse_grouped(table: Table, encodings: Sequence[ColumnEncoding], typing: Typing) -> None:
    """Refuse points that may group thousands, where other columns have decimal commas."""
    comma = _comma_column(encodings)
    for encoding in encodings if comma is not None else ():
        name, stated = encoding.name, typing.kinds.get(encoding.name) == "number"
        if encoding.levels is None and table.columns[name].grouped and not stated:
            problem = (
                f"points stand before three digits in all cells, and column {comma!r} has decimal commas: "
                f"pass --decimal ',' if points group thousands here, or --types {quote(name)}=number if they "
                "are decimal points"
            )
            raise table.refused(name, problem)


def _comma_column(encodings: Sequence[ColumnEncoding]) -> str | None:
    """The first column whose rows have shown decimal commas."""
    readings = ((column.name, CellReading.parse(column.reading)) for column in encodings)
    return next((name for name, r in readings if r.decimal == "," and r.from_rows), None)


def _fit_column(
    table: Table, name: str, column: Column, rows: np.ndarray, missing: str, typing: Typing
) -> ColumnEncoding:
    count, at = column.first_missing(rows)
    if count == len(rows):
        problem = f"no value in any row that is used: leave it out with --drop {quote(name)}"
        raise table.refused(name, problem)
    numbers, reading = as_numbers(table, name, column, typing)
    if count and missing == "refuse":
        choose = (
            "choose --missing mean, median, most-frequent or indicator, or leave the column out with --drop"
        )
        raise table.refused(name, f"missing value ({count} of {len(rows)} rows): {choose}", at)
    indicator = missing == "indicator" and count > 0
    if reading is not None:
        return ColumnEncoding(name, None, _fill(numbers, rows, missing), -1, indicator, reading=str(reading))
    text = column.as_text()
    found = sorted((word, n) for word, n in zip(text.words, text.counts(rows).tolist()) if word and n)
    levels, counts = [word for word, _ in found], [n for _, n in found]
    if len(levels) > MAX_LEVELS and typing.kinds.get(name) != "category":
        problem = (
            f"{len(levels)} different texts ({', '.join(levels[:3])}, ...), more than {MAX_LEVELS}: leave it "
            f"out with --drop {quote(name)}, or keep it with --categorical {quote(name)}"
        )
        raise table.refused(name, problem)
    fill_level = int(np.argmax(counts)) if missing in {"mean", "median", "most-frequent"} else -1
    return ColumnEncoding(name, tuple(levels), 0.0, fill_level, indicator)


def _fill(column: Column, rows: np.ndarray, missing: str) -> float:
    """What stands for a missing number."""
    if missing == "refuse":
        return 0.0  # never used
    present = column.values[rows]
    present = present[~np.isnan(present)]
    if missing == "most-frequent":
        values, counts = np.unique(present, return_counts=True)
        return float(values[np.argmax(counts)])  # of equally frequent ones the smallest
    with np.errstate(over="ignore"):  # an infinite one is refused when it is written
        if missing == "median":
            return float(np.median(present))
        mean = present.mean()
    return float(mean if np.isfinite(mean) else 2 * (present / (2 * len(present))).sum())


# --- encoding --------------------------------------------------------------------------------------------


def encode_table(table: Table, encoder: Encoder, rows: np.ndarray) -> tuple[np.ndarray, EncodingReport]:
    """Make the features of a table."""
    report = EncodingReport()
    if _comma_column(encoder.columns) is not None:
        names = [column.name for column in encoder.columns if column.levels is None]
        grouped = (name for name in names if name in table.columns and table.columns[name].grouped)
        report.counts["grouped"].update(grouped)
    X = np.zeros((len(rows), len(encoder.feature_names)))
    at = 0
    for encoding in encoder.columns:
        name, bins, column = encoding.name, encoding.bins, table.require(encoding.name, "feature column")
        missing = column.missing(rows)
        absent = missing & (bins is None or not bins.knows_missing)
        if absent.any():
            if encoder.missing == "refuse":
                problem = "missing value, and the training table was converted with --missing refuse"
                raise table.refused(name, problem, int(rows[np.flatnonzero(absent)[0]]))
            report.counts["filled"][name] = int(absent.sum())
        if encoding.levels is None:
            reading = CellReading.parse(encoding.reading)
            how = "" if reading.plain else f" ({reading.words()})"
            why = f"as the training table has there, or its description says{how}"
            values = read_column(table, name, column, reading, why).values[rows]
            if bins and (outside := int(((values < bins.low) | (values > bins.high)).sum())):
                report.counts["outside"][name] = outside  # which missing cells are not
            values[missing] = encoding.fill
            if bins is None:
                X[:, at] = encoding.scaled(values)
            else:
                place = bins.of_numbers(values)
        else:
            codes = _codes(encoding, column, rows, report)
            codes[missing] = encoding.fill_level
            if bins is None:
                known = np.flatnonzero(codes >= 0)
                X[known, at + codes[known]] = 1.0
            else:  # what no bin has comes behind the bin of missing cells
                place = np.array([*bins.groups, bins.count + 1])[codes]
        if bins is not None:  # the weight of evidence, 0 for unseen categories, which say nothing
            place = np.where(missing, bins.count, place) if bins.knows_missing else place
            X[:, at] = np.array([*bins.woe, 0.0])[place]
        at += 1 if encoding.one_hot is None else len(encoding.one_hot)
        if encoding.indicator:
            X[:, at] = absent
            at += 1
    return X, report


def _codes(encoding: ColumnEncoding, column: Column, rows: np.ndarray, report: EncodingReport) -> np.ndarray:
    levels, text = encoding.levels or (), column.as_text()
    number, truths = {level: i for i, level in enumerate(levels)}, truth_levels(levels)
    # Truth values in any spelling.
    number |= {word: truths[t] for word in text.words if (t := TRUTH.get(word.lower(), -1.0)) in truths}
    table_of = np.array([number.get(word, encoding.other) for word in text.words], dtype=np.int64)
    words = text.values[rows]
    codes = table_of[words]
    unknown = np.flatnonzero((codes < 0) & ~text.missing(rows))
    if len(unknown):
        report.counts["unseen"][encoding.name] = len(unknown)
        report.examples[encoding.name] = text.words[words[unknown[0]]]
    return codes


def encoder_of(party: Any) -> Encoder:
    """The encoder of a party of a partition or a model; without one its features were columns of numbers."""
    if party.encoder is not None:
        return cast(Encoder, party.encoder)
    return Encoder(tuple(ColumnEncoding(name) for name in party.feature_names))


def describe(table: Table, encoder: Encoder, rows: np.ndarray) -> list[dict[str, Any]]:
    """The type and encoding of each column of a table, for display."""
    result: list[dict[str, Any]] = []
    for encoding in encoder.columns:
        absent, _ = table.columns[encoding.name].first_missing(rows)
        levels, kind = encoding.levels, "number" if encoding.levels is None else "category"
        record = {"column": encoding.name, "type": kind, "features": len(encoding.feature_names)}
        record |= {"missing": absent}
        if levels is not None:
            record["levels"] = list(levels)
        if encoding.bins is not None:
            record["bins"] = encoding.bins.count
        if encoding.reading:
            record["read_as"] = CellReading.parse(encoding.reading).words()
        if encoding.low < encoding.high:
            record["bounds"] = [encoding.low, encoding.high]
        if absent and encoder.missing != "refuse":
            filled: object = encoding.fill
            if levels is not None:
                filled = levels[encoding.fill_level] if encoding.fill_level >= 0 else "all zeros"
            record["filled_with"] = filled
        result.append(record)
    return result


# --- public descriptions ---------------------------------------------------------------------------------

_KEYS = {"number": ("low", "high", "fill"), "category": ("levels", "fill")}
_PUBLIC = "from public knowledge and not from the rows, or leave the column out with --drop"


@dataclass(frozen=True)
class Description:
    """What a file says about columns."""

    path: str  # for messages
    columns: dict[str, ColumnEncoding]  # by the name in the file

    @property
    def categories(self) -> list[str]:
        """Columns whose cells are read as text."""
        return [column.name for column in self.columns.values() if column.levels is not None]

    def encoding(self, table: Table, name: str, shown_as: str, typing: Typing) -> ColumnEncoding:
        """How a column is encoded; nothing of it comes from its cells.

        How numbers are written is stated by options, and not recognised from rows.
        """
        known = self.columns.get(shown_as) or self.columns.get(name)
        if known is None:
            raise ConfigError(
                f"{self.path}: column {name!r} of {table.path} is not described: describe it, or leave "
                f"it out with --drop {quote(name)}"
            )
        reading = CellReading()
        if known.levels is None and (typing.decimal is not None or name in typing.kinds):
            reading = recognise(table, name, table.columns[name], typing) or reading
        if reading.from_rows:
            problem = (
                "beside --public-columns, options state how numbers are written: give --decimal, or the "
                "format of a date, such as --types joined=days:%Y-%m-%d"
            )
            raise ConfigError(str(table.refused(name, problem)))
        return replace(known, reading=str(reading))


def read_description(path: str | Path, drop: Sequence[str] = ()) -> Description:
    """Read a description."""
    try:
        values = read_toml(path)
    except FormatError as error:
        raise ConfigError(str(error)) from None
    tables, place = values.pop("columns", None), shown(path)
    if values or not isinstance(tables, dict) or not all(isinstance(t, dict) for t in tables.values()):
        raise ConfigError(f"{place}: give one table [columns.NAME] for each column, and nothing else")
    kept = {n: t for n, t in tables.items() if not {n, n.partition(".")[2]} & set(drop)}
    return Description(place, {n: _described(n, t, f"{place}: column {n!r}") for n, t in kept.items()})


def _described(name: str, table: Mapping[str, Any], place: str) -> ColumnEncoding:
    kind = table.get("type")
    if not isinstance(kind, str) or kind not in _KEYS:
        raise ConfigError(f'{place}: key \'type\': give "number" or "category"')
    for key in table:
        if key not in ("type", *_KEYS[kind]):
            raise ConfigError(f"{place}: unknown key {key!r}; a {kind} has {', '.join(_KEYS[kind])}")
    if kind == "category":
        return _described_category(name, table, place)
    if "low" not in table or "high" not in table:
        raise ConfigError(f"{place}: no bounds: give low and high, {_PUBLIC} {quote(name)}")
    low, high = (_real(table[key], f"{place}: key {key!r}") for key in ("low", "high"))
    if not low < high or not isfinite(high - low):
        raise ConfigError(f"{place}: low = {low:g} must be below high = {high:g}")
    fill = _real(table.get("fill", low + (high - low) / 2.0), f"{place}: key 'fill'")
    if not low <= fill <= high:
        raise ConfigError(f"{place}: key 'fill': {fill:g} is not between low = {low:g} and high = {high:g}")
    return ColumnEncoding(name, fill=fill, low=low, high=high)


def _described_category(name: str, table: Mapping[str, Any], place: str) -> ColumnEncoding:
    given = table.get("levels")
    if not isinstance(given, list) or not given:
        raise ConfigError(f"{place}: no levels: give the list of categories, {_PUBLIC} {quote(name)}")
    levels = [_text(level, f"{place}: key 'levels'") for level in given]
    if (twice := first_twice(levels)) is not None:
        raise ConfigError(f"{place}: key 'levels': {twice!r} is given twice")
    if OTHER not in levels:
        levels.append(OTHER)
    fill = _text(table.get("fill", OTHER), f"{place}: key 'fill'")
    if fill not in levels:
        raise ConfigError(f"{place}: key 'fill': {fill!r} is none of the levels{nearest(fill, levels)}")
    return ColumnEncoding(name, tuple(levels), fill_level=levels.index(fill), other=levels.index(OTHER))


def _real(value: Any, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 1e300:
        raise ConfigError(f"{place}: {value!r} is not a finite number")
    return float(value)


def _text(value: Any, place: str) -> str:
    text = canonical_text(str(value).strip()) if isinstance(value, str | int | float) else ""
    if not text or isinstance(value, bool) or "\0" in text or in_quotes(text):
        raise ConfigError(f"{place}: {value!r} is not the text of a category")
    return text

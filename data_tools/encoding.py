"""Encode columns of a table as features: fitted on the training table, applied to all others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import Any, cast

import numpy as np
from fastadmm.data_tools.column_types import Typing, read_column, recognise
from fastadmm.data_tools.columns import TRUTH, truth_levels
from fastadmm.data_tools.tables import Column, Table
from fastadmm.errors import InputError
from fastadmm.store.cell_reading import CellReading
from fastadmm.store.encoder import ColumnEncoding, Encoder

#: More categories than this are an id or free text, unless --categorical names the column.
MAX_LEVELS = 100

#: Nothing said about columns.
AS_FOUND = Typing()


@dataclass
class EncodingReport:
    """What happened while a table was encoded."""

    filled: dict[str, int] = field(default_factory=dict)
    unseen: dict[str, int] = field(default_factory=dict)
    examples: dict[str, str] = field(default_factory=dict)  # one such category per column
    grouped: list[str] = field(default_factory=list)
    outside: dict[str, int] = field(default_factory=dict)

    def add(self, other: EncodingReport) -> None:
        """Add what happened in further rows."""
        for key in ("filled", "unseen", "outside"):
            own, more = getattr(self, key), getattr(other, key)
            own |= {name: own.get(name, 0) + count for name, count in more.items()}
        self.examples = other.examples | self.examples
        self.grouped = other.grouped

    def lines(self, path: str) -> list[str]:
        """One line per column with unseen categories, filled cells or doubtful points."""
        unseen = "cells with unseen categories, such as"
        outside = "numbers below or above those of training: in the first or last bin"
        grouped = (
            "points stand before three digits in all cells, and are read as decimal points: write numbers "
            "without points if they group thousands"
        )
        told = [(n, f"{k} {unseen} {self.examples[n]!r}: all zeros") for n, k in self.unseen.items()]
        told += [(name, f"{count} {outside}") for name, count in self.outside.items()]
        told += [(name, f"{count} missing cells filled") for name, count in self.filled.items()]
        told += [(name, grouped) for name in self.grouped]
        return [f"{path}: column {name!r}: {line}" for name, line in told]


def fit_encoder(
    table: Table,
    columns: Sequence[str],
    rows: np.ndarray,
    *,
    missing: str = "refuse",
    typing: Typing = AS_FOUND,
    shown: Mapping[str, str] | None = None,
    na: Mapping[str, Sequence[str]] | None = None,
) -> Encoder:
    """Infer the type of each column and fit the replacements of missing values."""
    encodings = []
    for name in columns:
        found = _fit_column(table, name, table.columns[name], rows, missing, typing)
        words = tuple(dict.fromkeys([*(na or {}).get("", ()), *(na or {}).get(name, ())]))
        encodings.append(replace(found, na=words, shown=(shown or {}).get(name, "")))
    return checked(Encoder(tuple(encodings), missing), table)


def checked(encoder: Encoder, table: Table) -> Encoder:
    """An encoder that gives each feature its own name."""
    names = encoder.feature_names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{table.path}: two features would be named {twice!r}: rename a column")
    return encoder


def refuse_grouped(table: Table, encodings: Sequence[ColumnEncoding], typing: Typing) -> None:
    """Refuse points that may group thousands, where other columns have decimal commas."""
    comma = _comma_column(encodings)
    for encoding in encodings if comma is not None else ():
        stated = typing.kinds.get(encoding.name) == "number"
        if encoding.levels is None and table.columns[encoding.name].grouped and not stated:
            raise InputError(
                f"{table.path}: column {encoding.name!r}: points stand before three digits in all "
                f"cells, and column {comma!r} has decimal commas: pass --decimal ',' if points group "
                f"thousands here, or --types {quote(encoding.name)}=number if they are decimal points"
            )


def _comma_column(encodings: Sequence[ColumnEncoding]) -> str | None:
    """The first column whose rows have shown decimal commas."""
    readings = ((column.name, CellReading.parse(column.reading)) for column in encodings)
    return next((name for name, r in readings if r.decimal == "," and r.from_rows), None)


def _fit_column(
    table: Table, name: str, column: Column, rows: np.ndarray, missing: str, typing: Typing
) -> ColumnEncoding:
    place = f"{table.path}: column {name!r}"
    count, at = column.first_missing(rows)
    if count == len(rows):
        raise InputError(f"{place}: no value in any row that is used: leave it out with --drop {quote(name)}")
    reading = recognise(table, name, column, typing)
    if count and missing == "refuse":
        raise InputError(
            f"{table.path}: {table.where(at)}, column {name!r}: missing value ({count} of {len(rows)} rows): "
            "choose --missing mean, median, most-frequent or indicator, or leave the column out with --drop"
        )
    indicator = missing == "indicator" and count > 0
    if reading is not None:
        numbers = read_column(table, name, column, reading, "as other cells are")
        fill = _fill(numbers, rows, missing)
        return ColumnEncoding(name, None, fill, -1, indicator, reading=str(reading))
    text = column.as_text()
    found = sorted((word, n) for word, n in zip(text.words, text.counts(rows).tolist()) if word and n)
    levels, counts = [word for word, _ in found], [n for _, n in found]
    if len(levels) > MAX_LEVELS and not typing.category(name):
        raise InputError(
            f"{place}: {len(levels)} different texts ({', '.join(levels[:3])}, ...), more than "
            f"{MAX_LEVELS}: leave it out with --drop {quote(name)}, or keep it with "
            f"--categorical {quote(name)}"
        )
    fill_level = int(np.argmax(counts)) if missing in {"mean", "median", "most-frequent"} else -1
    return ColumnEncoding(name, tuple(levels), 0.0, fill_level, indicator)


def _fill(column: Column, rows: np.ndarray, missing: str) -> float:
    """What stands for a missing number."""
    if missing == "refuse":
        return 0.0  # never used
    present = column.values[rows]
    present = present[~np.isnan(present)]
    if missing == "median":
        with np.errstate(over="ignore"):  # an infinite one is refused when it is written
            return float(np.median(present))
    if missing == "most-frequent":
        values, counts = np.unique(present, return_counts=True)
        return float(values[np.argmax(counts)])  # of equally frequent ones the smallest
    with np.errstate(over="ignore"):  # of numbers near the largest; then half of them at a time
        mean = present.mean()
    return float(mean if np.isfinite(mean) else 2 * (present / (2 * len(present))).sum())


def encode_table(table: Table, encoder: Encoder, rows: np.ndarray) -> tuple[np.ndarray, EncodingReport]:
    """Make the features of a table."""
    report = EncodingReport()
    if _comma_column(encoder.columns) is not None:
        names = [column.name for column in encoder.columns if column.levels is None]
        report.grouped = [name for name in names if name in table.columns and table.columns[name].grouped]
    X = np.zeros((len(rows), len(encoder.feature_names)))
    at = 0
    for encoding in encoder.columns:
        column = table.require(encoding.name, "feature column")
        absent = column.missing(rows)
        if encoding.bins is not None:
            absent &= not encoding.bins.knows_missing
        if absent.any():
            if encoder.missing == "refuse":
                row = int(rows[np.flatnonzero(absent)[0]])
                raise InputError(
                    f"{table.path}: {table.where(row)}, column {encoding.name!r}: missing value, and the "
                    "training table was converted with --missing refuse"
                )
            report.filled[encoding.name] = int(absent.sum())
        width = 1 if encoding.one_hot is None else len(encoding.one_hot)
        if encoding.bins is not None:
            X[:, at] = _evidence(table, encoding, column, rows, report)
        elif encoding.levels is None:
            values = _numbers(table, encoding, column)[rows]
            values[absent] = encoding.fill
            X[:, at] = encoding.scaled(values)
        else:
            codes = _codes(encoding, column, rows, report)
            codes[absent] = encoding.fill_level
            known = np.flatnonzero(codes >= 0)
            X[known, at + codes[known]] = 1.0
        at += width
        if encoding.indicator:
            X[:, at] = absent
            at += 1
    return X, report


def _numbers(table: Table, encoding: ColumnEncoding, column: Column) -> np.ndarray:
    reading = CellReading.parse(encoding.reading)
    how = "" if reading.plain else f" ({reading.words()})"
    why = f"as the training table has there, or its description says{how}"
    return read_column(table, encoding.name, column, reading, why).values


def _evidence(
    table: Table, encoding: ColumnEncoding, column: Column, rows: np.ndarray, report: EncodingReport
) -> np.ndarray:
    """Weight of evidence of each cell's bin; 0, which says nothing, for unseen categories."""
    assert encoding.bins is not None
    bins, absent = encoding.bins, column.missing(rows)
    if encoding.levels is None:
        values = _numbers(table, encoding, column)[rows]
        outside = int(((values < bins.low) | (values > bins.high)).sum())  # not where it is missing
        if outside:
            report.outside[encoding.name] = outside
        place = bins.of_numbers(np.where(absent, encoding.fill, values))
    else:
        codes = _codes(encoding, column, rows, report)
        codes[absent] = encoding.fill_level
        # What no bin has comes behind the bin of missing cells.
        place = np.array([*bins.groups, bins.count + 1])[codes]
    if bins.knows_missing:
        place = np.where(absent, bins.count, place)
    return np.array([*bins.woe, 0.0])[place]


def _codes(encoding: ColumnEncoding, column: Column, rows: np.ndarray, report: EncodingReport) -> np.ndarray:
    assert encoding.levels is not None
    number = {level: i for i, level in enumerate(encoding.levels)}
    text = column.as_text()
    truths = truth_levels(encoding.levels)  # in any spelling
    number |= {word: truths[t] for word in text.words if (t := TRUTH.get(word.lower(), -1.0)) in truths}
    table_of = np.array([number.get(word, encoding.other) for word in text.words], dtype=np.int64)
    words = text.values[rows]
    codes = table_of[words]
    unknown = np.flatnonzero((codes < 0) & ~text.missing(rows))
    if len(unknown):
        report.unseen[encoding.name] = len(unknown)
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
        record: dict[str, Any] = {
            "column": encoding.name,
            "type": "number" if encoding.levels is None else "category",
            "features": len(encoding.feature_names),
            "missing": absent,
        }
        if encoding.levels is not None:
            record["levels"] = list(encoding.levels)
        if encoding.bins is not None:
            record["bins"] = encoding.bins.count
        if encoding.reading:
            record["read_as"] = CellReading.parse(encoding.reading).words()
        if encoding.low < encoding.high:
            record["bounds"] = [encoding.low, encoding.high]
        if absent and encoder.missing != "refuse":
            filled: object = encoding.fill
            if encoding.levels is not None:
                filled = encoding.levels[encoding.fill_level] if encoding.fill_level >= 0 else "all zeros"
            record["filled_with"] = filled
        result.append(record)
    return result

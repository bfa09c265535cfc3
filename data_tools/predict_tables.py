"""Encode tables as the features of a trained model, with the encoders that the model holds.

For programs that cannot read cells as ``predict`` does, what each cell becomes is told as tables.
"""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from fastadmm.data_tools.alignment import join
from fastadmm.data_tools.cell_text import to_number
from fastadmm.data_tools.columns import MISSING, TRUTH, cased, nearest, truth_levels
from fastadmm.data_tools.convert_tables import Like, Part, Planner, kept_cells, parts_of
from fastadmm.data_tools.encoding import encode_table, encoder_of
from fastadmm.data_tools.label_columns import offset_of
from fastadmm.data_tools.per_table import TableOptions, TableRows
from fastadmm.data_tools.tables import Table, missing_numbers, table_of_rows
from fastadmm.errors import ConfigError, InputError
from fastadmm.store.encoder import CellReading, ColumnEncoding

#: Largest double precision number.
MAX_NUMBER = sys.float_info.max


@dataclass(frozen=True)
class TableFeatures:
    """Features of the model's parties, before their transforms.

    Shapes: ids, offset (N,); each of blocks (N, d_m).
    """

    ids: np.ndarray  # of shape (N,): int64, or object holding str
    blocks: list[np.ndarray]  # of shape (N, d_m): in the order of the parties
    offset: np.ndarray | None  # of shape (N,)
    first: tuple[Table, np.ndarray]  # the first table, which may hold labels, and its rows
    notes: list[str] = field(default_factory=list)


def read_features(
    parties: Sequence[Any],
    paths: Sequence[str | Path],
    options: TableRows,
    *,
    labelled: bool = False,
) -> TableFeatures:
    """Read the rows of tables as the features that a model was trained on.

    Parties are those of a model or its points: what has a name, names of features and an encoder.
    """
    # With labels or an offset the first table may be that of a label holder who is no party.
    brought = labelled or options.offset is not None or options.exposure is not None
    labels_alone = brought and len(paths) == len(parties) + 1
    if len(paths) not in (1, len(parties)) and not labels_alone:
        raise ConfigError(
            f"{len(paths)} tables for the parties {', '.join(party.name for party in parties)}: give one for "
            "each, in this order, or one with all columns"
        )
    if options.id is None and (len(paths) > 1 or options.alignment is not None):
        raise ConfigError(
            "tables are joined by an id column: pass --id COLUMN, or --id TABLE:COLUMN for each"
        )
    like = Like(parts_of(parties))
    if len(paths) == 1:
        _refuse_shared_columns(like)
    guest, hosts = (paths[0], paths[1:]) if labels_alone else (None, paths)
    chosen = TableOptions(**vars(options), guest=guest, hosts=hosts)
    planner = Planner(chosen, like=like, split=len(paths) == 1)
    ids, rows, lost = _rows(planner, options)
    table = planner.tables[0]
    notes = [note for own in planner.tables for note in own.notes] + lost
    blocks = _encoded(planner.by_party(like, rows), notes)
    offset = offset_of(table, rows[0], chosen)
    return TableFeatures(ids, blocks, offset, (table, rows[0]), notes)


def _encoded(parties: Sequence[Part], notes: list[str]) -> list[np.ndarray]:
    """The features of each party's rows; what is found is added to the notes."""
    blocks = []
    for party in parties:
        X, report = encode_table(party.table, party.encoder, party.rows)
        blocks.append(X)
        notes += [line for line in report.lines(party.table.path) if line not in notes]
    return blocks


def row_features(parties: Sequence[Any], rows: Sequence[Mapping[str, Any]]) -> TableFeatures:
    """Read rows in memory, such as those of a request, as the features that a model was trained on."""
    like = Like(parts_of(parties))
    _refuse_shared_columns(like)
    columns = {c.name: CellReading.parse(c.reading) for encoder in like.encoders for c in encoder.columns}
    cells = [_row(i, row, columns) for i, row in enumerate(rows, 1)]
    table = table_of_rows("request", list(columns), cells, kept_cells(like.encoders, None))
    found, notes = np.arange(table.n_rows), list[str]()
    blocks = _encoded([replace(party, table=table, rows=found) for party in like.parties], notes)
    return TableFeatures(found, blocks, None, (table, found), notes)


def _row(number: int, row: Mapping[str, Any], columns: Mapping[str, CellReading]) -> list[str]:
    """A row's cells as text, in the order of the columns."""
    if not isinstance(row, Mapping):
        raise InputError(f"request: row {number}: is no object of columns and values")
    for name in row:
        if name not in columns:
            raise InputError(f"request: row {number}: unknown column {name!r}{nearest(name, list(columns))}")
    cells = []
    for name, reading in columns.items():
        if name not in row:
            raise InputError(f"request: row {number}: no column {name!r}; null means missing")
        cells.append(_cell_text(row[name], reading, f"request: row {number}, column {name!r}"))
    return cells


def _cell_text(value: Any, reading: CellReading, place: str) -> str:
    """A value as the column's cells are written."""
    if value is None:
        return ""
    if isinstance(value, bool | str):
        return str(value)
    if not isinstance(value, int | float):
        raise InputError(f"{place}: a list or an object: send text, a number, or null for a missing value")
    if not -MAX_NUMBER <= value <= MAX_NUMBER:
        raise InputError(f"{place}: {value} is no finite number: send null for a missing value")
    text = repr(value)
    if reading.kind != "number" or reading.plain:
        return text
    # A number has no marks of a table: without this, 1.234 would be read as 1234 where points group.
    if text.endswith(".0"):
        text = text[:-2]
    return text.replace(".", reading.decimal or ".") + reading.unit


def _refuse_shared_columns(like: Like) -> None:
    owner: dict[str, str] = {}
    for party in like.parties:
        for column in party.encoder.columns:
            if column.name in owner:
                raise ConfigError(
                    f"{owner[column.name]} and {party.name} both have a column {column.name!r}: give one "
                    "table for each party"
                )
            owner[column.name] = party.name


def _rows(planner: Planner, options: TableRows) -> tuple[np.ndarray, list[np.ndarray], list[str]]:
    """Ids, the rows of every table in their order, and what to say of them."""
    if options.id is None:
        every = np.arange(planner.tables[0].n_rows)
        return every, [every], []
    alignment, rows, report = join(planner.tables, planner.ids, options)
    lost = [line for line in report if "not in every table" in line]
    if options.alignment is not None:
        return alignment.ids, rows, lost
    order = np.argsort(rows[0], kind="stable")
    return alignment.ids[order], [own[order] for own in rows], lost


# --- what each cell becomes -----------------------------------------------------------------------------


#: Cells that ``predict`` would first write in another way: with spaces around them, or ``+1.00`` for ``1``.
OTHERWISE_WRITTEN = (
    r"(?s)[\s\pZ\x0b\x1c-\x1f\x{85}].*|.*[\s\pZ\x0b\x1c-\x1f\x{85}]|\+?-?\p{Nd}+\.0*|\+-?\p{Nd}+"
)

#: First year of the dates that are listed, and the first that is not.
_YEARS = (1900, 2101)

_WHOLE = re.compile(r"-?\d+")
_TIMES = re.compile(r"%[HIMSXZcfpsz]")


def input_names(parties: Sequence[Any]) -> list[list[str]]:
    """Names of each party's columns; behind the party's where several have one of that name."""
    own = [[column.name for column in encoder_of(party).columns] for party in parties]
    counts = Counter(name for names in own for name in names)
    return [
        [name if counts[name] == 1 else f"{party.name}:{name}" for name in names]
        for party, names in zip(parties, own, strict=True)
    ]


def is_text(column: ColumnEncoding) -> bool:
    """Whether cells are given as text: categories and dates."""
    return column.levels is not None or CellReading.parse(column.reading).kind != "number"


def na_numbers(column: ColumnEncoding) -> list[float]:
    """Numbers that mean "no value"."""
    return sorted(missing_numbers(column.na))


def check_readable(column: ColumnEncoding, place: str) -> None:
    """Refuse a column whose cells no table can list: those with a time of day."""
    reading = CellReading.parse(column.reading)
    if column.levels is None and (reading.kind == "hours" or _TIMES.search(reading.dates)):
        raise ConfigError(
            f"export: {place}, column {column.name!r}: times of day ({reading.words()}) can only be read by "
            "fastadmm: convert with the times as numbers, or choose .json"
        )


def _written(word: str) -> list[str]:
    """A category, and other ways to write it where it is a whole number."""
    if not _WHOLE.fullmatch(word):
        return [word]
    signs = ("",) if word.startswith("-") else ("", "+")
    return [sign + word + rest for sign in signs for rest in ("", ".", ".0")]


def codes_of(column: ColumnEncoding) -> dict[str, int]:
    """Number of the category of each cell of L categories, L for those without a value; others are unseen."""
    levels = column.levels or ()
    codes = {text: i for i, level in enumerate(levels) for text in _written(level)}
    truths = truth_levels(levels)
    for word, value in TRUTH.items() if truths else ():
        codes |= dict.fromkeys(cased([word]), truths.get(value, len(levels) + 1))
    absent = [*cased(MISSING), *(text for word in column.na for text in _written(word))]
    return codes | dict.fromkeys(absent, len(levels))


def evidence_of(column: ColumnEncoding, missing: str) -> list[float]:
    """Weight of evidence of each code, and last of unseen categories; NaN where a missing cell is refused."""
    bins = column.bins
    assert bins is not None
    of_level = [bins.woe[group] for group in bins.groups]
    absent = (
        math.nan if missing == "refuse" else of_level[column.fill_level] if column.fill_level >= 0 else 0.0
    )
    unseen = of_level[column.other] if column.other >= 0 else 0.0
    return [*of_level, bins.woe[bins.count] if bins.knows_missing else absent, unseen]


def dates_of(column: ColumnEncoding) -> dict[str, float]:
    """Number of each date of two centuries as it may be written, NaN for cells without a value."""
    reading = CellReading.parse(column.reading)
    absent = [*cased(MISSING), *column.na]
    return _dates(reading.kind, reading.dates) | dict.fromkeys(absent, math.nan)


@cache
def _dates(kind: str, style: str) -> dict[str, float]:
    first, last = (date(year, 1, 1).toordinal() for year in _YEARS)
    # Days and months may be written without their zeros.
    short = [style.replace("%d", d).replace("%m", m) for d in ("%d", "%-d") for m in ("%m", "%-m")]
    found: dict[str, float] = {}
    for day in map(date.fromordinal, range(first, last)):
        number = to_number(day.strftime(style), kind, style)
        if number is not None:
            found.update((day.strftime(own), number) for own in short)
    return found

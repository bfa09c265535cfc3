"""Encode tables as the features of a trained model, with the encoders that the model holds."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from fastadmm.data_tools.alignment import join
from fastadmm.data_tools.columns import nearest
from fastadmm.data_tools.convert_tables import Like, Part, Planner, kept_cells, parts_of
from fastadmm.data_tools.encoding import encode_table
from fastadmm.data_tools.label_columns import offset_of
from fastadmm.data_tools.per_table import TableOptions, TableRows
from fastadmm.data_tools.tables import Table, table_of_rows
from fastadmm.errors import ConfigError, InputError
from fastadmm.store.cell_reading import CellReading

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

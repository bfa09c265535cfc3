"""Encode tables as the features of a trained model, with the encoders that the model holds."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from fastadmm.data_tools.alignment import join
from fastadmm.data_tools.convert_tables import kept_cells
from fastadmm.data_tools.encoding import encode_table, encoder_of
from fastadmm.data_tools.label_columns import offset_of
from fastadmm.data_tools.per_table import TableRows, of_each, table_names
from fastadmm.data_tools.suggest import nearest
from fastadmm.data_tools.tables import Table, read_table, table_of_rows
from fastadmm.errors import ConfigError, InputError
from fastadmm.store.cell_reading import CellReading

if TYPE_CHECKING:
    from fastadmm.store.encoder import Encoder

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
    wanted = ", ".join(party.name for party in parties)
    if len(paths) not in (1, len(parties)) and not labels_alone:
        raise ConfigError(
            f"{len(paths)} tables for the parties {wanted}: give one for each, in this order, or "
            "one with all columns"
        )
    if options.id is None and (len(paths) > 1 or options.alignment is not None):
        raise ConfigError(
            "tables are joined by an id column: pass --id COLUMN, or --id TABLE:COLUMN for each"
        )
    encoders = [encoder_of(party) for party in parties]
    if len(paths) == 1:
        _refuse_shared_columns(parties, encoders)
    called = [party.name for party in parties] if len(paths) >= len(parties) else []
    names = table_names(paths, ["guest"] * labels_alone + called)
    told = of_each(options, names)
    own_ids = [id for _, id, _ in told]
    each: list[list[Encoder]] = [encoders]
    if len(paths) > 1:
        each = [[] for _ in range(labels_alone)] + [[own] for own in encoders]
    tables = [
        read_table(path, layout, kept_cells(own, key))
        for path, (layout, key, _), own in zip(paths, told, each)
    ]
    ids, rows, notes = _rows(tables, own_ids, [pattern for _, _, pattern in told], options)
    notes = [note for table in tables for note in table.notes] + notes
    first = tables[0], rows[0]
    offset = offset_of(tables[0], rows[0], options.offset, options.exposure)
    if labels_alone:
        tables, rows = tables[1:], rows[1:]
    if len(tables) == 1:
        tables, rows = tables * len(parties), rows * len(parties)
    blocks = []
    for table, own, encoder in zip(tables, rows, encoders):
        absent = [column.name for column in encoder.columns if column.name not in table.columns]
        if absent and len(parties) > 1:
            raise InputError(
                f"{table.path}: no feature column {absent[0]!r}{nearest(absent[0], table.names)}: give a "
                f"table for each of {wanted}, in this order, or one with all columns"
            )
        X, report = encode_table(table, encoder, own)
        blocks.append(X)
        notes += [line for line in report.lines(table.path) if line not in notes]
    return TableFeatures(ids, blocks, offset, first, notes)


def row_features(parties: Sequence[Any], rows: Sequence[Mapping[str, Any]]) -> TableFeatures:
    """Read rows in memory, such as those of a request, as the features that a model was trained on."""
    encoders = [encoder_of(party) for party in parties]
    if len(parties) > 1:
        _refuse_shared_columns(parties, encoders)
    columns = {column.name: CellReading.parse(column.reading) for e in encoders for column in e.columns}
    table = table_of_rows(
        "request", list(columns), [_row(i, row, columns) for i, row in enumerate(rows, 1)],
        kept_cells(encoders, None),
    )  # fmt: skip
    found = np.arange(table.n_rows)
    blocks, notes = [], []
    for encoder in encoders:
        X, report = encode_table(table, encoder, found)
        blocks.append(X)
        notes += report.lines("request")
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


def _refuse_shared_columns(parties: Sequence[Any], encoders: Sequence[Encoder]) -> None:
    owner: dict[str, str] = {}
    for party, encoder in zip(parties, encoders):
        for column in encoder.columns:
            if column.name in owner:
                raise ConfigError(
                    f"{owner[column.name]} and {party.name} both have a column {column.name!r}: give one "
                    "table for each party"
                )
            owner[column.name] = party.name


def _rows(
    tables: Sequence[Table],
    names: Sequence[str | None],
    patterns: Sequence[str | None],
    options: TableRows,
) -> tuple[np.ndarray, list[np.ndarray], list[str]]:
    """Ids, the rows of every table in their order, and what to say of them."""
    if options.id is None:
        return np.arange(tables[0].n_rows), [np.arange(tables[0].n_rows)], []
    alignment, rows, report = join(tables, names, patterns, options)
    lost = [line for line in report if "not in every table" in line]
    if options.alignment is not None:
        return alignment.ids, rows, lost
    order = np.argsort(rows[0], kind="stable")
    return alignment.ids[order], [own[order] for own in rows], lost

"""Labels of a table's rows, and the weights and offsets kept beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from fastadmm.data_tools.alignment import Alignment, rows_of, table_ids
from fastadmm.data_tools.column_types import Typing, are_truths, read_column, recognise
from fastadmm.data_tools.columns import pieces
from fastadmm.data_tools.encoding import AS_FOUND
from fastadmm.data_tools.labels import LabelCollector, Labels
from fastadmm.data_tools.number_text import written
from fastadmm.data_tools.tables import Cells, Column, Layout, Table, read_table
from fastadmm.errors import ConfigError, InputError
from fastadmm.store.cell_reading import CellReading


def _written_numbers(column: Column) -> bool:
    """Whether some cells are plain numbers, and the others numbers that are written in another way."""
    return column.kind == "mixed" and all(written(cell) for cell in column.words if cell)


def labels_of(
    table: Table,
    name: str,
    rows: np.ndarray,
    task: str,
    classes: tuple[str, ...] | None = None,
    *,
    positive: str | None = None,
    typing: Typing = AS_FOUND,
    reading: CellReading | None = None,
    report: list[str] | None = None,
) -> Labels:
    """Labels of some rows of a table."""
    column = table.columns[name]
    absent, at = column.first_missing(rows)
    if absent:
        raise InputError(
            f"{table.path}: {table.where(at)}, label column {name!r}: missing label ({absent} of "
            f"{len(rows)} rows): remove these rows"
        )
    known = classes is not None and column.kind != "number" and not set(column.words) - {*classes, ""}
    found: CellReading | None = None
    why = "as other labels are"
    if column.kind in ("text", "mixed", "raw") and not known and reading is not None and not reading.plain:
        found, why = reading, f"as the labels of training are read ({reading.words()})"
    elif (
        not known
        and not are_truths(column.words)
        and (column.kind in ("text", "raw") or _written_numbers(column))
    ):
        found = recognise(table, name, column, typing)
    if found is not None:
        if not found.plain and report is not None:
            report.append(f"{table.path}: label column {name!r}: read as numbers: {found.words()}")
        column = read_column(table, name, column, found, why)
    collector = LabelCollector(table.path)
    for part in pieces(rows):
        if column.kind == "number":
            collector.append(column.values[part])
        else:
            used, codes = np.unique(column.values[part], return_inverse=True)
            collector.append_words(codes, [column.words[k] for k in used.tolist()])
    return replace(collector.finish(task, classes, positive), reading=str(found or ""))


def with_columns(
    labels: Labels,
    table: Table,
    rows: np.ndarray,
    *,
    weight: str | None = None,
    offset: str | None = None,
    exposure: str | None = None,
    typing: Typing = AS_FOUND,
) -> Labels:
    """The labels with weights and offsets from other columns of their table."""
    if exposure is not None and (labels.classes is not None or (labels.y < 0).any()):
        what = "classes" if labels.classes is not None else "negative numbers"
        raise ConfigError(
            f"--exposure: belongs to counts, but the labels are {what}; for these pass --offset"
        )
    return replace(
        labels,
        weight=weight_of(table, rows, weight, typing),
        offset=offset_of(table, rows, offset, exposure, typing),
        exposure=exposure is not None,
    )


def weight_of(
    table: Table, rows: np.ndarray, name: str | None, typing: Typing = AS_FOUND
) -> np.ndarray | None:
    """Sample weights of some rows. Shapes: rows, the result (k,)."""
    return None if name is None else _numbers(table, name, rows, "weight", typing)


def offset_of(
    table: Table, rows: np.ndarray, offset: str | None, exposure: str | None, typing: Typing = AS_FOUND
) -> np.ndarray | None:
    """Offsets of some rows, or the logarithms of their exposures. Shapes: rows, the result (k,)."""
    if offset is not None and exposure is not None:
        raise ConfigError("--offset and --exposure: the logarithm of an exposure is the offset; give one")
    if exposure is not None:
        return np.log(_numbers(table, exposure, rows, "exposure", typing))
    return None if offset is None else _numbers(table, offset, rows, "offset", typing)


#: What is wrong with a number of a column that is kept beside the labels.
_WRONG: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "weight": ("is negative", lambda values: values < 0.0),
    "exposure": ("is not above 0", lambda values: values <= 0.0),
    "offset": ("is not finite", lambda values: ~np.isfinite(values)),
}


def _numbers(table: Table, name: str, rows: np.ndarray, what: str, typing: Typing) -> np.ndarray:
    """A number for each of some rows; none may be missing. Shapes: rows, the result (k,)."""
    column = table.require(name, f"{what} column")
    if column.kind in ("text", "raw") or _written_numbers(column):
        found = recognise(table, name, column, typing)
        if found is not None:
            column = read_column(table, name, column, found, "as other cells are")
    if column.kind != "number":
        raise InputError(f"{table.path}: {what} column {name!r}: not all cells are numbers")
    values = column.values[rows]
    fault, wrong = _WRONG[what]
    if (bad := np.flatnonzero(np.isnan(values) | wrong(values))).size:
        value = values[bad[0]]
        problem = "missing value: fill it, or leave the row out" if np.isnan(value) else f"{value:g} {fault}"
        raise InputError(f"{table.path}: {table.where(int(rows[bad[0]]))}, {what} column {name!r}: {problem}")
    return values


def write_label_table(
    out: Path,
    table: Path,
    label: str,
    alignment: Alignment,
    *,
    id: str,
    duplicates: str = "refuse",
    separator: str | None = None,
    id_pattern: str | None = None,
    task: str = "auto",
    positive: str | None = None,
    like: Path | None = None,
    **columns: Any,
) -> None:
    """Write the labels of an alignment's rows, and what `columns` names beside them; a file is replaced."""
    from fastadmm.store.label_file import LabelWriter, open_labels

    known = None if like is None else open_labels(like)
    classes, task = (None, task) if known is None else (known.classes, known.task)
    read = read_table(table, Layout(separator), Cells(id=id))
    read.require(label, "label column")
    rows = rows_of(table_ids(read, id, duplicates, id_pattern), alignment)
    labels = labels_of(read, label, rows, task, classes, positive=positive)
    labels = with_columns(labels, read, rows, **columns)
    how: dict[str, Any] = {"task": labels.task, "classes": labels.classes, "exposure": labels.exposure}
    with LabelWriter(out, **how, force=True) as writer:
        writer.append(labels.y, sample_weight=labels.weight, offset=labels.offset, ids=alignment.ids)

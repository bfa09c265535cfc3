"""A label file of a table's rows, for a label holder whose columns are no party's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastadmm.data_tools.alignment import Alignment, rows_of, table_ids
from fastadmm.data_tools.convert_tables import labels_of, with_columns
from fastadmm.data_tools.tables import Cells, Layout, read_table


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
    read = read_table(table, Layout(separator), Cells(id=id))
    read.require(label, "label column")
    rows = rows_of(table_ids(read, id, duplicates, id_pattern), alignment)
    labels = labels_of(
        read,
        label,
        rows,
        task if known is None else known.task,
        None if known is None else known.classes,
        positive=positive,
    )
    labels = with_columns(labels, read, rows, **columns)
    with LabelWriter(
        out, task=labels.task, classes=labels.classes, exposure=labels.exposure, force=True
    ) as writer:
        writer.append(labels.y, sample_weight=labels.weight, offset=labels.offset, ids=alignment.ids)

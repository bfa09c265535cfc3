"""Tables of plain numbers as a source of row blocks, for owners of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from fastadmm.data_tools.blocks import Block, OnRead
from fastadmm.data_tools.csv_table import is_number
from fastadmm.data_tools.per_table import check_columns
from fastadmm.data_tools.suggest import nearest
from fastadmm.data_tools.tables import FOUND, Column, Layout, Table, read_table
from fastadmm.errors import InputError

#: float64 values per block: 1 << 18 is 2 MB.
BLOCK_VALUES = 1 << 18

#: Column names that one line tells.
_TOLD = 60


def require_label(path: str, columns: Sequence[str], label: str | None) -> str:
    """The label column, which has to be named."""
    if label is None:
        names = ", ".join(columns[:_TOLD]) + (
            f", ... ({len(columns)} columns)" if len(columns) > _TOLD else ""
        )
        raise InputError(f"{path}: which column is the label? pass --label with one of: {names}")
    if label not in columns:
        near = nearest(label, columns)
        if sum(map(is_number, columns)) > 1:
            near = "; line 1 holds numbers, not names: pass --no-header and --label c1, c2 and so on"
        raise InputError(f"{path}: no label column {label!r}{near}")
    return label


def number_blocks(columns: Sequence[Column]) -> Iterator[np.ndarray]:
    """Rows of columns of numbers, the same blocks whatever the machine.

    Shapes: each (k, d).
    """
    step = max(1, BLOCK_VALUES // len(columns))
    for start in range(0, columns[0].n_rows, step):
        yield np.stack([column.values[start : start + step] for column in columns], axis=1)


class CsvSource:
    """A CSV or Parquet table with one label column; every other column is a numeric feature or left out."""

    kind = "dense"

    def __init__(
        self,
        path: str | Path,
        layout: Layout = FOUND,
        *,
        label: str | None,
        drop: Sequence[str] = (),
        beside: str | None = None,
        scratch: str | Path | None = None,
        on_read: OnRead | None = None,
    ) -> None:
        self.table = table = read_table(path, layout, drop=drop, scratch=scratch, on_read=on_read)
        self.path, self.columns = table.path, table.names
        check_columns("--drop", dict.fromkeys(drop), table.every, table.path)
        self.label = require_label(self.path, table.names, label)
        self.feature_names: list[str] | None = [n for n in table.names if n not in (label, beside)]
        if not self.feature_names:
            raise InputError(f"{self.path}: no feature column besides the label {label!r}")
        self.n_features: int | None = len(self.feature_names)
        for name in self.feature_names:
            _check_numbers(table, name)
        for name, what in ((self.label, "label"), (beside or "", "owner")):
            if name in table.columns:
                count, at = table.columns[name].first_missing(np.arange(table.n_rows))
                if count:
                    raise InputError(
                        f"{self.path}: {table.where(at)}, {what} column {name!r}: missing {what} ({count} of "
                        f"{table.n_rows} rows): remove these rows"
                    )

    def texts(self, name: str, rows: np.ndarray) -> np.ndarray:
        """Labels, or names of owners, of some rows: numbers, or texts where not all are.

        Shapes: rows, the result (k,).
        """
        column = self.table.columns[name]
        values = column.values[rows]
        return values if column.kind == "number" else np.array(column.words, dtype=object)[values]

    def blocks(self, on_read: OnRead | None = None) -> Iterator[Block]:
        """Stream the rows."""
        start = 0
        for X in number_blocks([self.table.columns[name] for name in self.feature_names or ()]):
            rows = np.arange(start, start + len(X))
            yield Block(X, self.texts(self.label, rows))
            start += len(X)

    def where(self, row: int) -> str:
        """Name the line of a zero-based data row."""
        return self.table.where(row)


def _check_numbers(table: Table, name: str) -> None:
    """Refuse a column of which a cell is no number."""
    column = table.columns[name]
    if column.kind != "number":
        at = column.first_row(*(word for word in column.words if word and not is_number(word)))
        fault = f"{column.words[column.values[at]][:40]!r} is not a number: correct it, or --drop the column"
    elif not column.full:
        _, at = column.first_missing(np.arange(table.n_rows))
        fault = "empty cell: fill in missing values, or --drop the column"
    else:
        return
    raise InputError(f"{table.path}: {table.where(at)}, column {name!r}: {fault}")

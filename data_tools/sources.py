"""Sources without ids as a stream of rows: opened, and looked at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from fastadmm.data_tools.blocks import Block, ColumnStatistics, OnRead, Source
from fastadmm.data_tools.columns import Column, is_number, nearest
from fastadmm.data_tools.label_columns import LabelCollector
from fastadmm.data_tools.libsvm import LibsvmSource
from fastadmm.data_tools.npz import BLOCK_VALUES, NpzSource
from fastadmm.data_tools.opening import SourceFile
from fastadmm.data_tools.per_table import check_columns
from fastadmm.data_tools.tables import FOUND, Layout, Table, read_table
from fastadmm.errors import InputError

#: Column names that one line tells.
_TOLD = 60


def require_label(path: str, columns: Sequence[str], label: str | None) -> str:
    """The label column, which has to be named."""
    if label is None:
        more = f", ... ({len(columns)} columns)" if len(columns) > _TOLD else ""
        names = ", ".join(columns[:_TOLD]) + more
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
        check_columns("--drop", drop, table.every, table.path)
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
                    problem = f"missing {what} ({count} of {table.n_rows} rows): remove these rows"
                    raise table.refused(name, problem, at, what)

    def texts(self, name: str, rows: slice = slice(None)) -> np.ndarray:
        """Labels, or names of owners, of some rows: numbers, or texts where not all are.

        Shapes: the result (k,).
        """
        column = self.table.columns[name]
        values = column.values[rows]
        return values if column.kind == "number" else np.array(column.words, dtype=object)[values]

    def blocks(self, on_read: OnRead | None = None) -> Iterator[Block]:
        """Stream the rows."""
        start = 0
        for X in number_blocks([self.table.columns[name] for name in self.feature_names or ()]):
            yield Block(X, self.texts(self.label, slice(start, start + len(X))))
            start += len(X)


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
    raise table.refused(name, fault, at)


def open_matrix(
    kind: str,
    files: Sequence[SourceFile],
    place: str,
    options: Any,
    n_features: int | None,
    scratch: Path | None,
) -> LibsvmSource | NpzSource:
    """The reader of a source without column names."""
    if kind == "npz":
        return NpzSource(files[0], x_key=options.x_key, y_key=options.y_key or "y")
    return LibsvmSource(files, place, n_features=n_features, zero_based=options.zero_based, scratch=scratch)


class Scan:
    """What the first pass over sources finds."""

    def __init__(
        self,
        readers: Sequence[Source],
        on_read: OnRead | None = None,
        statistics: ColumnStatistics | None = None,
        look: Callable[[Block], None] | None = None,
    ) -> None:
        self.labels = LabelCollector(readers[0].path)
        self.rows = [0] * len(readers)  # of each source
        self.n_features = 0  # as far as seen
        self.nonzeros = np.zeros(0, dtype=np.int64)  # per column; CSR sources only
        for k, reader in enumerate(readers):
            for block in reader.blocks(on_read):
                self._add(block)
                self.rows[k] += block.X.shape[0]
                if statistics is not None:
                    statistics.update(block.X)
                if look is not None:
                    look(block)
        self.n_rows = sum(self.rows)
        if self.n_features == 0:
            raise InputError(f"{readers[0].path}: no features in any row")
        self.width = max(self.n_features, *(reader.n_features or 0 for reader in readers))
        self.nonzeros = np.pad(self.nonzeros, (0, self.width - len(self.nonzeros)))
        if statistics is not None:
            statistics.widen(self.width)

    def _add(self, block: Block) -> None:
        X = block.X
        self.labels.append(block.labels)
        if isinstance(X, np.ndarray):
            self.n_features = max(self.n_features, X.shape[1])
            return
        counts = np.bincount(X.indices, minlength=len(self.nonzeros))
        self.n_features = max(self.n_features, len(counts) if X.nnz else 0)
        counts[: len(self.nonzeros)] += self.nonzeros
        self.nonzeros = counts

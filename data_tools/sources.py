"""Sources without ids as a stream of rows: opened, looked at once, and cut into rows as they are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from fastadmm.data_tools.blocks import Block, OnRead, Source
from fastadmm.data_tools.csv_table import is_number
from fastadmm.data_tools.labels import LabelCollector
from fastadmm.data_tools.libsvm import LibsvmSource
from fastadmm.data_tools.npz import NpzSource
from fastadmm.data_tools.opening import SourceFile
from fastadmm.data_tools.per_table import check_columns
from fastadmm.data_tools.scaling import ColumnStatistics
from fastadmm.data_tools.suggest import nearest
from fastadmm.data_tools.tables import FOUND, Column, Layout, Table, read_table
from fastadmm.errors import InputError
from fastadmm.store.block_file import make_csr
from fastadmm.store.transform import Transform
from scipy import sparse

#: Some rows, as they are stored.
Rows: TypeAlias = "np.ndarray | sparse.csr_array"


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


def open_matrix(
    kind: str,
    files: Sequence[SourceFile],
    place: str,
    asked: Any,
    n_features: int | None,
    scratch: Path | None,
) -> LibsvmSource | NpzSource:
    """The reader of a source without column names; `asked` has the options of both formats."""
    if kind == "npz":
        return NpzSource(files[0], x_key=asked.x_key, y_key=asked.y_key or "y")
    return LibsvmSource(files, place, n_features=n_features, zero_based=asked.zero_based, scratch=scratch)


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
        self.rows: list[int] = []  # of each source
        self.n_features = 0  # as far as seen
        self.nonzeros = np.zeros(0, dtype=np.int64)  # per column; CSR sources only
        for reader in readers:
            rows = 0
            for block in reader.blocks(on_read):
                self._add(block)
                rows += block.X.shape[0]
                if statistics is not None:
                    add_to(statistics, block.X)
                if look is not None:
                    look(block)
            self.rows.append(rows)
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

    @property
    def n_rows(self) -> int:
        """Rows of all sources."""
        return sum(self.rows)


def add_to(statistics: ColumnStatistics, X: Rows) -> None:
    """Add rows to statistics; what is not finite is refused when they are used."""
    with np.errstate(over="ignore", invalid="ignore"):
        statistics.update(X)


def widened(X: Rows, width: int) -> Rows:
    """Rows with all columns: those of LIBSVM end with the last that occurs."""
    if isinstance(X, np.ndarray) or X.shape[1] >= width:
        return X
    return make_csr(X.data, X.indices, X.indptr, (X.shape[0], width))


def stored(X: Rows, kind: str, transform: Transform) -> Rows:
    """Rows as they are stored: dense or sparse, and scaled."""
    if isinstance(X, np.ndarray):
        X = X if kind == "dense" else sparse.csr_array(X)
    elif kind == "dense":
        X = X.toarray()
    with np.errstate(over="ignore", invalid="ignore"):  # who writes them names the value that does not fit
        return X if transform.is_identity else transform.apply(X)

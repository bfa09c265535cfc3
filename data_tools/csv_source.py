"""CSV tables whose features are plain numbers, as a source of row blocks; read as any other table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from fastadmm.data_tools.blocks import Block, OnRead
from fastadmm.data_tools.csv_table import CsvFile, is_number, one_byte_encoding, read_as, zeros_lost
from fastadmm.data_tools.opening import NotUtf8, SourceFile
from fastadmm.data_tools.suggest import nearest
from fastadmm.data_tools.tables import Layout, Table, read_table
from fastadmm.errors import InputError

#: float64 values per block: 1 << 18 is 2 MB.
BLOCK_VALUES = 1 << 18


class NotNumbers(InputError):
    """A feature cell that is empty or no plain number: the table has to be encoded column by column."""


class CsvSource:
    """A CSV table with one label column; every other column is a numeric feature or left out."""

    kind, quick = "dense", True

    def __init__(
        self,
        source: SourceFile,
        *,
        label: str | None,
        drop: Sequence[str] = (),
        header: bool = True,
        separator: str | None = None,
        features: Sequence[str] | None = None,
        beside: str | None = None,
        scratch: str | Path | None = None,
    ) -> None:
        self.path, self.source, self.scratch = source.shown, source, scratch
        self.notes: list[str] = []
        how = {"drop": drop, "header": header, "separator": separator}
        try:
            text = CsvFile(source, **how)  # type: ignore[arg-type]
        except NotUtf8:
            if source.encoding is not None:
                raise
            source.encoding = one_byte_encoding(source)
            self.notes.append(read_as(source))
            text = CsvFile(source, **how)  # type: ignore[arg-type]
        self.notes += text.notes
        self.columns, self._separator, self._header = text.columns, text.separator, header
        for name in drop:
            if name not in self.columns:
                raise InputError(f"{self.path}: no column {name!r} to drop{nearest(name, self.columns)}")
        if label is None and features is not None:
            rest = [name for name in self.columns if name not in set(features) | set(drop)]
            label = rest[0] if len(rest) == 1 else None
        if label is None:
            raise InputError(
                f"{self.path}: which column is the label? pass --label with one of: {_listing(self.columns)}"
            )
        if label not in self.columns:
            near = nearest(label, self.columns)
            if sum(map(is_number, self.columns)) > 1:
                near = "; line 1 holds numbers, not names: pass --no-header and --label c1, c2 and so on"
            raise InputError(f"{self.path}: no label column {label!r}{near}")
        if label in drop:
            raise InputError(f"{self.path}: column {label!r} is the label and cannot be dropped")
        self.label, self.beside, self._drop = label, beside or "", drop
        self.feature_names: list[str] | None = [
            name for name in self.columns if name not in {label, beside, *drop}
        ]
        if not self.feature_names:
            left = [*drop, *([beside] if beside else [])]
            out = f" and what is left out ({_listing(left)})" if left else ""
            raise InputError(f"{self.path}: no feature column besides the label {label!r}{out}")
        self.n_features: int | None = len(self.feature_names)
        self._on_read: OnRead | None = None

    @cached_property
    def table(self) -> Table:
        """The columns, read when they are first needed."""
        layout = Layout(self._separator, self.source.encoding, self._header)
        table = read_table(
            self.source.path, layout, drop=self._drop, scratch=self.scratch, on_read=self._on_read
        )
        self.notes, every = table.notes + self.notes, np.arange(table.n_rows)
        for name in self.feature_names or ():
            column = table.columns[name]
            if column.zeros:
                self.notes.append(f"{self.path}: column {name!r}: {zeros_lost(name, column.zeros)}")
            if column.kind != "number":
                at = column.first_row(*(word for word in column.words if word and not is_number(word)))
                cell = column.words[column.values[at]]
                raise NotNumbers(
                    f"{self.path}: {table.where(at)}, column {name!r}: {cell[:40]!r} is not a number: encode "
                    "it or --drop the column"
                )
            if not column.full:
                _, at = column.first_missing(every)
                raise NotNumbers(
                    f"{self.path}: {table.where(at)}, column {name!r}: empty cell: fill in missing values, "
                    "or --drop the column"
                )
        needed = {self.label: "label"} | ({self.beside: "owner"} if self.beside in table.columns else {})
        for name, what in needed.items():
            count, at = table.columns[name].first_missing(every)
            if count:
                raise InputError(
                    f"{self.path}: {table.where(at)}, {what} column {name!r}: missing {what} ({count} of "
                    f"{len(every)} rows): remove these rows"
                )
        return table

    def texts(self, name: str, rows: np.ndarray) -> np.ndarray:
        """Labels, or names of owners, of some rows: numbers, or texts where not all are.

        Shapes: rows, the result (k,).
        """
        column = self.table.columns[name]
        values = column.values[rows]
        return values if column.kind == "number" else np.array(column.words, dtype=object)[values]

    def blocks(self, on_read: OnRead | None = None) -> Iterator[Block]:
        """Stream the rows."""
        self._on_read, names = on_read, self.feature_names or []
        columns = [self.table.columns[name] for name in names]
        step = max(1, BLOCK_VALUES // len(names))
        for start in range(0, self.table.n_rows, step):
            rows = np.arange(start, min(start + step, self.table.n_rows))
            X = np.stack([column.values[rows] for column in columns], axis=1)
            yield Block(X, self.texts(self.label, rows))

    def where(self, row: int) -> str:
        """Name the line of a zero-based data row."""
        return self.table.where(row)


def _listing(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 60 else ", ".join(names[:60]) + f", ... ({len(names)} columns)"

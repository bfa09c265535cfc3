"""Parquet files, read in batches, columns as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from fastadmm.data_tools.building import Chunk, Numbers, Whole, Words, words_of
from fastadmm.data_tools.columns import EXACT
from fastadmm.data_tools.opening import SourceFile, check_names
from fastadmm.errors import ConfigError, InputError

#: Rows at a time.
BATCH_ROWS = 1 << 16


class ParquetTable:
    """One Parquet file."""

    def __init__(self, file: SourceFile) -> None:
        self.file, self.path = file, file.shown
        self.notes: list[str] = []
        try:
            import pyarrow as pa
        except ImportError:
            raise ConfigError(
                f"{file.shown}: reading Parquet needs pyarrow: pip install 'fastadmm[parquet]', or save it "
                "as CSV"
            ) from None
        self._pa: Any = pa
        with self._open() as parquet:
            self._schema = parquet.schema_arrow
            self.n_rows: int = parquet.metadata.num_rows
        self.columns: list[str] = list(self._schema.names)
        check_names(self.columns, file.shown)
        for i, name in enumerate(self.columns):
            if self.columns.index(name) != i:
                raise InputError(f"{file.shown}: column name {name!r} appears twice: rename one")

    @contextmanager
    def _open(self) -> Iterator[Any]:
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(self.file.path) as parquet:
                yield parquet
        except InputError:
            raise
        except (self._pa.ArrowException, OSError, ValueError, KeyError) as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(
                f"{self.file.shown}: a damaged Parquet file ({reason}): write it again"
            ) from None

    def check_types(self, names: list[str]) -> None:
        """Refuse columns that are neither numbers nor text nor dates."""
        for name in names:
            _check_type(self.file.shown, name, self._schema.field(name).type, self._pa.types)

    def kind_of(self, name: str) -> str | None:
        """Type of a column, None if all its cells are missing."""
        kind = self._schema.field(name).type
        return None if self._pa.types.is_null(kind) else str(kind)

    def chunks(self, wanted: Mapping[str, str]) -> Iterator[tuple[int, Chunk]]:
        """Cells, batch by batch."""
        with self._open() as parquet:
            for batch in parquet.iter_batches(BATCH_ROWS, columns=list(wanted)):
                cells = {name: self._cells(batch.column(name), how) for name, how in wanted.items()}
                if batch.num_rows:
                    yield batch.num_rows, cells
        self.file.check_unchanged()

    def _cells(self, column: Any, how: str) -> Numbers | Words | Whole:
        kind, types = column.type, self._pa.types
        if types.is_integer(kind) and how != "words":
            values = column.fill_null(0).to_numpy(zero_copy_only=False)
            if how == "ids":
                ends = (int(values.min()), int(values.max())) if len(values) else (0, 0)
                if not column.null_count and ends[0] > -(10**18) and ends[1] < 10**18:
                    return Whole(values.astype(np.int64))
            elif not len(values) or (int(values.min()) >= -EXACT and int(values.max()) <= EXACT):
                return Numbers(_with_nulls(values.astype(np.float64), column))
        if types.is_floating(kind) and how == "numbers":
            values = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.float64)
            return Numbers(_with_nulls(values, column))
        return self._words(column)

    def _words(self, column: Any) -> Words:
        pa = self._pa
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if str(column.type) == "string_view":
            column = column.cast(pa.large_string())
        try:
            coded = column.dictionary_encode("encode")
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid, AttributeError):
            return words_of(["" if value is None else str(value) for value in column.to_pylist()])
        words = ["" if value is None else str(value) for value in coded.dictionary.to_pylist()]
        return Words(coded.indices.to_numpy(zero_copy_only=False).astype(np.int32), words)


def _with_nulls(values: np.ndarray, column: Any) -> np.ndarray:
    if column.null_count:
        values[column.is_null().to_numpy(zero_copy_only=False)] = np.nan
    return values


def _check_type(path: str, name: str, kind: Any, types: Any) -> None:
    """Refuse what is neither a number nor text nor a date, which becomes text in ISO's format."""
    kind = kind.value_type if types.is_dictionary(kind) else kind
    known = (
        "integer",
        "floating",
        "decimal",
        "string",
        "large_string",
        "boolean",
        "null",
        "date",
        "timestamp",
    )
    if str(kind) == "string_view" or any(getattr(types, f"is_{what}")(kind) for what in (*known, "time")):
        return
    raise InputError(
        f"{path}: column {name!r} is of type {kind}: make it numbers or text, or leave it out with --drop"
    )

"""Parquet files, read in batches, columns as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from fastadmm.data_tools.columns import EXACT, Chunk, Numbers, Whole, Words, words_of
from fastadmm.data_tools.opening import OnRead, SourceFile, check_names
from fastadmm.errors import ConfigError, InputError
from fastadmm.store.block_file import first_twice

#: Rows at a time.
BATCH_ROWS = 1 << 16

#: Types besides ``string_view`` that are numbers or text, or dates, which become text in ISO's format.
_KNOWN = (
    "integer", "floating", "decimal", "string", "large_string", "boolean", "null", "date", "timestamp",
    "time",
)  # fmt: skip


class ParquetTable:
    """One Parquet file."""

    def __init__(self, file: SourceFile) -> None:
        self.file, self.path = file, file.shown
        self.notes: list[str] = []
        try:
            import pyarrow as pa
        except ImportError:
            raise ConfigError(
                f"{self.path}: reading Parquet needs pyarrow: pip install 'fastadmm[parquet]', or save it as "
                "CSV"
            ) from None
        self._pa: Any = pa
        with self._open() as parquet:
            self._schema = parquet.schema_arrow
            self.n_rows: int = parquet.metadata.num_rows
        self.columns: list[str] = list(self._schema.names)
        check_names(self.columns, self.path)
        if (twice := first_twice(self.columns)) is not None:
            raise InputError(f"{self.path}: column name {twice!r} appears twice: rename one")

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
            raise InputError(f"{self.path}: a damaged Parquet file ({reason}): write it again") from None

    def kinds(self, names: list[str]) -> dict[str, str]:
        """Types of columns that have a value; refuses what is neither numbers nor text nor dates."""
        types, found = self._pa.types, {}
        for name in names:
            kind = self._schema.field(name).type
            if not types.is_null(kind):
                found[name] = str(kind)
            kind = kind.value_type if types.is_dictionary(kind) else kind
            if str(kind) != "string_view" and not any(getattr(types, f"is_{what}")(kind) for what in _KNOWN):
                problem = "make it numbers or text, or leave it out with --drop"
                raise InputError(f"{self.path}: column {name!r} is of type {kind}: {problem}")
        return found

    def chunks(self, wanted: Mapping[str, str], on_read: OnRead, large: bool = False) -> Iterator[Chunk]:
        """All rows, batch by batch."""
        done, size = 0, self.file.size
        with self._open() as parquet:
            for batch in parquet.iter_batches(BATCH_ROWS, columns=list(wanted)):
                cells = {name: self._cells(batch.column(name), how) for name, how in wanted.items()}
                end = done + batch.num_rows
                if end > done:
                    yield Chunk("row ", np.arange(done + 1, end + 1), cells)
                    on_read(size * end // self.n_rows - size * done // self.n_rows)
                done = end
        self.file.check_unchanged()

    def _cells(self, column: Any, how: str) -> Numbers | Words | Whole:
        whole = self._pa.types.is_integer(column.type)
        if how == "words" or not (whole or (how == "numbers" and self._pa.types.is_floating(column.type))):
            return self._words(column)
        values = column.fill_null(0).to_numpy(zero_copy_only=False)
        largest = max(-int(values.min()), int(values.max())) if whole and len(values) else 0
        if how == "ids" and not column.null_count and largest < 10**18:
            return Whole(values.astype(np.int64))
        if how == "ids" or largest > EXACT:
            return self._words(column)
        values = values.astype(np.float64)
        if column.null_count:
            values[column.is_null().to_numpy(zero_copy_only=False)] = np.nan
        return Numbers(values)

    def _words(self, column: Any) -> Words:
        pa = self._pa
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if str(column.type) == "string_view":
            column = column.cast(pa.large_string())
        try:
            coded = column.dictionary_encode("encode")
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid, AttributeError):
            return words_of("" if value is None else str(value) for value in column.to_pylist())
        words = ["" if value is None else str(value) for value in coded.dictionary.to_pylist()]
        return Words(coded.indices.to_numpy(zero_copy_only=False).astype(np.int32), words)

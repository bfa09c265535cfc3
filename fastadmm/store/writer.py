"""A file that appears under its name only when its writer is closed."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import h5py
import numpy as np
from scipy.sparse import csr_array

from fastadmm.errors import FastadmmError, InputError
from fastadmm.files.atomic import shown
from fastadmm.files.digest import RowDigest
from fastadmm.store import elements as h5
from fastadmm.store.h5file import open_output


class IdWriter:
    """Writes row ids in pieces; without ids, the numbers 0..N-1."""

    def __init__(self, file: h5py.File, public_path: str | os.PathLike[str]) -> None:
        self._group = file.create_group("obs")
        h5.encode(self._group, "dict")
        self._place = f"{shown(public_path)}: key 'obs/ids'"
        self._kind = ""  # "default", "int64" or "utf-8" after the first rows
        self._n = 0

    def prepare(self, ids: Any, n_rows: int) -> tuple[str, np.ndarray]:
        """Validate ids of the next `n_rows` rows without writing; the result goes to :meth:`append`."""
        if ids is None or not n_rows:
            kind, values = "default", np.arange(self._n, self._n + n_rows, dtype=np.int64)
        else:
            values = np.asarray(ids if isinstance(ids, np.ndarray) else list(ids))
            if values.shape != (n_rows,):
                raise InputError(f"{self._place}: {values.shape} ids for {n_rows} rows; give one id per row")
            if values.dtype.kind in "iu":
                if values.dtype.kind == "u" and values.max() > np.iinfo(np.int64).max:
                    raise InputError(f"{self._place}: id {values.max()} does not fit int64; give it as text")
                kind, values = "int64", values.astype(np.int64)
            elif values.dtype.kind in "UOT":
                kind, values = "utf-8", values.astype(object)
                for i, text in enumerate(values):
                    h5.check_text(text, f"{self._place}: row {self._n + i + 1}")
            else:
                raise InputError(f"{self._place}: ids of type {values.dtype}; give integers or text")
        if n_rows and self._kind not in ("", kind):
            raise InputError(
                f"{self._place}: row {self._n + 1}: ids change from {self._kind} to {kind}; give the same "
                "kind for all rows"
            )
        return kind, values

    def append(self, prepared: tuple[str, np.ndarray]) -> None:
        """Write what :meth:`prepare` returned."""
        kind, values = prepared
        if not len(values):
            return
        if not self._kind:
            self._kind = kind
            text = kind == "utf-8"
            how: dict[str, Any] = {"encoding": "string-array"} if text else {"compression": "gzip"}
            dtype = h5py.string_dtype("utf-8") if text else "<i8"
            self._column = h5.GrowingArray(self._group, "ids", dtype, **how)
            self._digest = RowDigest("utf-8" if text else "int64")
        self._column.append(values)
        self._digest.update(values)
        self._n += len(values)

    def close(self) -> str:
        """Write the rest; return the row digest."""
        self._column.close()
        return self._digest.text()


class _Abort(Exception):
    """Thrown into the output's context manager to discard the temporary file."""


class Writer(ABC):
    """Base of writers that are context managers; when the ``with`` block raises, nothing remains.

    A subclass checks what it is given, and then calls :meth:`_create`.
    """

    def __init__(
        self, path: str | os.PathLike[str], public_path: str | os.PathLike[str] | None = None
    ) -> None:
        self.path, self._public = Path(path), path if public_path is None else public_path
        self._shown = shown(self._public)  # the file, as messages name it
        self.state = "open"
        self._stack = ExitStack()
        self.n_samples = 0
        self.row_digest = ""
        self._arrays: dict[str, h5.GrowingArray] = {}
        self._entries = 0  # of a CSR block

    def _create(
        self, encoding_type: str, version: str, *, force: bool, ids: bool = True, **attributes: str
    ) -> None:
        """Make the file under a temporary name."""
        self._file, self._sink = self._stack.enter_context(
            open_output(self.path, encoding_type, version, force=force, public_path=self._public)
        )
        self._file.attrs.update(attributes)
        if ids:
            self._ids = IdWriter(self._file, self._shown)

    def _grow(self, key: str, rows: np.ndarray, dtype: Any = "<f8", compression: str = "none") -> None:
        """Add rows to the element of a key, which begins with the first of them."""
        if key not in self._arrays:
            group, _, name = key.rpartition("/")
            place = self._file.require_group(group or "/")
            self._arrays[key] = h5.GrowingArray(place, name, dtype, rows.shape[1:], compression=compression)
        self._arrays[key].append(rows)

    def _grow_block(self, rows: np.ndarray | csr_array, compression: str = "none") -> None:
        """Add rows of the element ``X``, dense or CSR, in the type they are stored in."""
        parts: dict[str, tuple[np.ndarray, Any]]
        if isinstance(rows, np.ndarray):
            parts = {"X": (rows, rows.dtype)}
        else:
            pointers = rows.indptr.astype(np.int64) + self._entries
            self._entries += len(rows.data)
            parts = {
                "X/data": (rows.data, rows.dtype),
                "X/indices": (rows.indices, "<i4" if rows.shape[1] < 2**31 else "<i8"),
                "X/indptr": (pointers["X/indptr" in self._arrays :], "<i8"),
            }
        for key, (values, dtype) in parts.items():
            self._grow(key, values, dtype, compression)

    def _close_arrays(self, n_features: int = 0) -> None:
        """Write the rest of all elements that grow."""
        for array in self._arrays.values():
            array.close()
        if "X/indptr" in self._arrays:
            h5.encode(self._file["X"], "csr_matrix")
            self._file["X"].attrs["shape"] = np.array([self.n_samples, n_features], dtype=np.int64)

    def _bad(self, key: str, problem: str) -> InputError:
        """The error for what is wrong with what was given for a key."""
        return InputError(f"{self._shown}: key {key!r}: {problem}")

    @abstractmethod
    def _finish(self) -> None:
        """Write what completes the file; raises InputError where something is missing."""

    def _require_open(self) -> None:
        if self.state != "open":
            raise InputError(f"{self._shown}: the writer is {self.state} already")

    def close(self) -> None:
        """Complete the file and give it its name."""
        self._require_open()
        try:
            self._finish()
        except BaseException:
            self.abort()
            raise
        self.state = "aborted"  # unless the rename below succeeds
        self._stack.close()
        self.state = "closed"

    def abort(self) -> None:
        """Discard the file; nothing happens if it is complete already."""
        if self.state == "open":
            self.state = "aborted"
            with suppress(_Abort, FastadmmError):
                self._stack.__exit__(_Abort, _Abort(), None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abort()
        elif self.state == "open":
            self.close()

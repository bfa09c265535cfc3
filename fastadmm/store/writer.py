"""A file that appears under its name only when its writer is closed."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from fastadmm.errors import FastadmmError, InputError
from fastadmm.files.atomic import shown
from fastadmm.store.elements import GrowingArray, encode
from fastadmm.store.h5file import open_output
from fastadmm.store.ids import IdWriter

if TYPE_CHECKING:
    from scipy.sparse import csr_array


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
        self._arrays: dict[str, GrowingArray] = {}
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
            self._arrays[key] = GrowingArray(place, name, dtype, rows.shape[1:], compression=compression)
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
            encode(self._file["X"], "csr_matrix")
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

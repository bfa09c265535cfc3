"""Files with the element ``X``, a block of rows, dense or CSR: checked, and read or written in pieces."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, suppress
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import h5py
import numpy as np
from scipy.sparse import csr_array

from fastadmm.errors import FastadmmError, FormatError, InputError
from fastadmm.files.atomic import shown
from fastadmm.files.digest import RowDigest
from fastadmm.store import elements as h5
from fastadmm.store.h5file import h5_errors, open_output, read_h5

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_STREAM_BYTES = 8 << 20
_CHECKED = 1 << 20  # entries validated at a time, so that validation needs little memory


def check_party_name(name: object, place: str, error: type[FastadmmError] = InputError) -> str:
    """Return a party's name if it can be a file name everywhere, else raise `error`."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name.casefold() == "labels":
        raise error(
            f"{place}: {name!r} cannot name a party; use up to 64 letters, digits, '.', '_' or '-', "
            "beginning with a letter or digit, and not 'labels'"
        )
    return name


class StoredBlock:
    """The block of an open file, cheaply checked: a matrix, or values, column indices and row pointers."""

    def __init__(self, file: h5py.File) -> None:
        with h5_errors(file.filename, "X"):
            self.kind = "csr" if file.get("X", getclass=True) is h5py.Group else "dense"
        if self.kind == "dense":
            self.values = h5.array_dataset(file, "X", ndim=2, kind="f")
            self.shape = tuple(int(n) for n in self.values.shape)
        else:
            item = h5.require_group(file, "X")
            h5.check_encoding(item, "csr_matrix")
            with h5_errors(file.filename, "X"):
                shape = np.asarray(item.attrs.get("shape", ()))
            if shape.shape != (2,) or shape.dtype.kind not in "iu" or (shape < 0).any():
                raise h5.bad(file, "X", "attribute 'shape' is missing or not two non-negative integers")
            self.shape = (int(shape[0]), int(shape[1]))
            self.values = h5.array_dataset(item, "data", ndim=1, kind="biuf", encoded=False)
            of_entries: dict[str, Any] = {"ndim": 1, "kind": "iu", "encoded": False}
            self.nnz = int(self.values.shape[0])
            self.indices = h5.array_dataset(item, "indices", length=self.nnz, **of_entries)
            self.indptr = h5.array_dataset(item, "indptr", length=self.shape[0] + 1, **of_entries)
        self.dtype = self.values.dtype.newbyteorder("=")
        if self.dtype not in (np.float64, np.float32):
            key = self.values.name.strip("/")
            raise h5.bad(file, key, f"has dtype {self.values.dtype}, but float64 or float32 is needed")

    def row_pointers(self, start: int, stop: int) -> np.ndarray:
        """Read and check row pointers: int64, never decreasing; all of them go from 0 to the entries.

        Shapes: the result (stop - start + 1,).
        """
        indptr = h5.read_block(self.indptr, start, stop + 1).astype(np.int64, copy=False)
        falls = np.flatnonzero(indptr[1:] < indptr[:-1])
        problem = ""
        if indptr[0] != 0 if start == 0 else indptr[0] < 0:
            problem = f"starts at {indptr[0]} instead of 0 (row {start + 1})"
        elif falls.size:
            problem = f"decreases at row {start + falls[0] + 1}; damaged"
        elif indptr[-1] != self.nnz if stop == self.shape[0] else indptr[-1] > self.nnz:
            problem = f"ends at {indptr[-1]} (row {stop}), but there are {self.nnz} entries"
        if problem:
            raise h5.bad(self.indptr.file, self.indptr.name.strip("/"), problem)
        return indptr


def _index_fault(X: csr_array) -> tuple[int, str] | None:
    """The first entry whose column is outside, or not larger than that of the entry before in its row."""
    indices, indptr, width = X.indices, X.indptr, X.shape[1]
    for start in range(0, len(indices), _CHECKED):
        before = max(0, start - 1)  # one entry of overlap, so that pairs across blocks are compared too
        block = indices[before : start + _CHECKED]
        outside = np.flatnonzero((block < 0) | (block >= width))
        if outside.size:
            return before + int(outside[0]), f"is outside 1..{width} (counting from 1)"
        falls = np.flatnonzero(block[1:] <= block[:-1]) + before + 1
        falls = falls[indptr[np.searchsorted(indptr, falls)] != falls]  # a new row may begin with less
        if falls.size:
            at = int(falls[0])
            return at, "occurs twice" if indices[at] == indices[at - 1] else "is out of order"
    return None


def first_twice(names: Iterable[str], key: Callable[[str], str] = str) -> str | None:
    """The first of some names that repeats one before; ``key``: what of them is compared."""
    seen = set[str]()
    for name in names:
        if key(name) in seen:
            return name
        seen.add(key(name))
    return None


def not_finite(value: float, place: str, row: int, column: int, name: str | None) -> InputError:
    """Return the error for a NaN or infinite value; `row` and `column` count from 0."""
    named = "" if name is None else f" ({name!r})"
    return InputError(
        f"{place}: row {row + 1}, column {column + 1}{named}: value {float(value)} is not finite; "
        "fill or drop missing values before converting"
    )


def first_not_finite(X: np.ndarray | csr_array) -> tuple[int, int] | None:
    """Row and column of the first value of a block that is not finite."""
    values = X.reshape(-1) if isinstance(X, np.ndarray) else X.data
    for start in range(0, len(values), _CHECKED):  # a mask of all would cost an eighth more memory
        finite = np.isfinite(values[start : start + _CHECKED])
        if not finite.all():
            at = start + int(np.argmin(finite))
            if isinstance(X, np.ndarray):
                return divmod(at, X.shape[1])
            return int(np.searchsorted(X.indptr, at, side="right")) - 1, int(X.indices[at])
    return None


def make_csr(data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, shape: tuple[int, int]) -> csr_array:
    """Build a csr_array from parts that are sorted and free of duplicates.

    Shapes: data, indices (nnz,); indptr (n + 1,); the result (n, d).
    """
    matrix = csr_array((data, indices, indptr), shape=shape)
    matrix.has_sorted_indices = True
    matrix.has_canonical_format = True
    return matrix


class BlockFile:
    """A file with a block of rows, which is read in pieces."""

    name: str
    n_samples: int
    n_features: int
    kind: str
    dtype: np.dtype
    nnz: int | None = None  # entries of a CSR block
    index_bytes = 0  # of one stored column index; 0 for dense
    content_digest: str

    _encoding: tuple[str, tuple[str, ...]]
    _rows_of_file: int

    first_row = 0

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def _open(self) -> AbstractContextManager[h5py.File]:
        return read_h5(self.path, *self._encoding)

    def _read_header(self, file: h5py.File) -> None:
        """What every file with a block says of itself, checked."""
        name = h5.read_attribute(file, "name", str)
        self.name = check_party_name(name, f"{shown(self.path)}: attribute 'name'", FormatError)
        self.n_samples = self._rows_of_file = h5.read_positive(file, "n_samples")
        block = StoredBlock(file)
        self.kind, self.dtype = block.kind, block.dtype
        if block.kind == "csr":
            self.nnz, self.index_bytes = block.nnz, block.indices.dtype.itemsize
        n_rows, self.n_features = block.shape
        if n_rows != self.n_samples:
            raise h5.bad(file, "X", f"has {n_rows} rows, but attribute 'n_samples' says {self.n_samples}")
        if self.n_features < 1:
            raise h5.bad(file, "X", "has no columns")
        self.content_digest = h5.read_attribute(file, "content-digest", str)

    @property
    def nbytes(self) -> int:
        """Bytes that the loaded block takes in memory."""
        if self.nnz is None:
            return self.n_samples * self.n_features * self.dtype.itemsize
        return self.nnz * (self.dtype.itemsize + self.index_bytes) + (self.n_samples + 1) * self.index_bytes

    @cached_property
    def feature_names(self) -> list[str]:
        """The d names of the columns (read on first use)."""
        with self._open() as file:
            names = h5.read_strings(h5.require_group(file, "var"), "names")
        if (twice := first_twice(names)) is not None:
            raise FormatError(f"{shown(self.path)}: key 'var/names': {twice!r} occurs twice")
        return names

    def iter_rows(self, rows: int | None = None) -> Iterator[tuple[int, np.ndarray | csr_array]]:
        """Read the block in consecutive pieces, in constant memory. Shapes: block (k, d)."""
        if rows is None:
            rows = max(1, _STREAM_BYTES * self.n_samples // max(1, self.nbytes))
        with self._open() as file:
            block, first, indptr = StoredBlock(file), self.first_row, None
            if (block.kind, block.shape) != (self.kind, (self._rows_of_file, self.n_features)):
                raise h5.bad(file, "X", "changed since the file was opened")
            if block.kind == "csr":
                indptr = block.row_pointers(first, first + self.n_samples)
            for start in range(0, self.n_samples, rows):
                stop = min(start + rows, self.n_samples)
                own = None if indptr is None else indptr[start : stop + 1]
                yield start, self._rows(block, first + start, first + stop, own)

    def _rows(
        self, block: StoredBlock, start: int, stop: int, indptr: np.ndarray | None
    ) -> np.ndarray | csr_array:
        """Some rows, checked."""
        place, key = shown(self.path), "X"
        X: np.ndarray | csr_array
        if indptr is None:
            X = h5.read_block(block.values, start, stop)
        else:
            data, indices = (
                h5.read_block(part, indptr[0], indptr[-1]) for part in (block.values, block.indices)
            )
            X, key = make_csr(data, indices, indptr - indptr[0], (stop - start, self.n_features)), "X/data"
            if fault := _index_fault(X):
                row = start + int(np.searchsorted(X.indptr, fault[0], side="right"))
                column = int(X.indices[fault[0]]) + 1
                raise FormatError(f"{place}: key 'X/indices': row {row}: column {column} {fault[1]}")
        if at := first_not_finite(X):
            try:
                name = self.feature_names[at[1]]
            except FastadmmError:  # a name only decorates another error
                name = "?"
            raise not_finite(X[at], f"{place}: key {key!r}", start + at[0], at[1], name)
        return X


# --- writing: a file appears under its name only when its writer is closed ------------------------------


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

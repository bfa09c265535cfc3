"""Files with the element ``X``, a block of rows that is dense or CSR: checked, and read in pieces."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from scipy.sparse import csr_array

from fastadmm.errors import FastadmmError, FormatError, InputError
from fastadmm.files.atomic import shown
from fastadmm.store import elements as h5
from fastadmm.store.h5file import h5_errors, read_h5

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
        if len(set(names)) != len(names):
            twice = next(name for i, name in enumerate(names) if name in names[:i])
            raise FormatError(f"{shown(self.path)}: key 'var/names': {twice!r} occurs twice")
        return names

    def iter_rows(self, rows: int | None = None) -> Iterator[tuple[int, np.ndarray | csr_array]]:
        """Read the block in consecutive pieces, in constant memory. Shapes: block (k, d)."""
        if rows is None:
            rows = max(1, _STREAM_BYTES * self.n_samples // max(1, self.nbytes))
        return self._read(rows)

    def _read(self, rows: int) -> Iterator[tuple[int, np.ndarray | csr_array]]:
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

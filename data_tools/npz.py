"""NPZ archives, dense or CSR, read by NumPy without pickles."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from fastadmm.data_tools.blocks import Block, Rows
from fastadmm.data_tools.columns import nearest
from fastadmm.data_tools.opening import OnRead, SourceFile
from fastadmm.errors import InputError
from fastadmm.store.block_file import first_not_finite
from scipy import sparse

#: float64 values per block: 1 << 18 is 2 MB.
BLOCK_VALUES = 1 << 18

#: Exceptions of NumPy, zipfile and zlib on damaged archives; MemoryError: a size that nothing has.
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError, ValueError,
            SyntaxError, MemoryError, OverflowError)  # fmt: skip

#: Beyond this a number of columns is a spoiled file: their statistics alone would take gigabytes.
MOST_COLUMNS = 2**28


class NpzSource:
    """A dense matrix (one array) or a CSR matrix (``data``, ``indices``, ``indptr``, ``shape``) with labels.

    The CSR names are those of ``scipy.sparse.save_npz``. Arrays are in memory as they are stored, and become
    float64 block by block.
    """

    feature_names: list[str] | None = None

    def __init__(self, source: SourceFile, *, x_key: str | None = None, y_key: str = "y") -> None:
        self.source, self.path, self.label, self._x_key = source, source.shown, y_key, x_key
        with self._open() as archive:
            self.columns = list(archive.files)  # names of all arrays
            if not self.columns:
                raise self._refused("is a zip archive without arrays, not an NPZ file")
            csr = {"data", "indices", "indptr", "shape"} <= set(self.columns)
            self._X: Any
            if x_key is None and "X" not in self.columns and csr:
                self.kind, self._X = "csr", self._csr(archive)
            else:
                self.kind, self._X = "dense", self._array(archive, x_key or "X", "x_key")
                if self._X.ndim != 2:
                    raise self._refused(f"has shape {self._X.shape}, expected (rows, columns)", x_key or "X")
            self.n_rows, self.n_features = self._X.shape
            self._y = self._array(archive, y_key, "y_key")
        if self._y.shape not in {(self.n_rows,), (self.n_rows, 1)}:
            problem = f"has shape {self._y.shape}, but there are {self.n_rows} rows: save one label for each"
            raise self._refused(problem, y_key)
        if self.n_rows == 0:
            raise self._refused("no rows")
        if self.n_features == 0:
            raise self._refused("no feature columns")

    def _refused(self, problem: str, key: str = "") -> InputError:
        return InputError(f"{self.path}: array {key!r} {problem}" if key else f"{self.path}: {problem}")

    @contextmanager
    def _open(self) -> Iterator[Any]:
        with ExitStack() as stack:
            try:
                raw = stack.enter_context(open(self.source.path, "rb"))
                archive = stack.enter_context(np.load(raw, allow_pickle=False))
            except _DAMAGED as error:
                problem = f"damaged or truncated NPZ file ({error}): copy or download it again"
                raise self._refused(problem) from None
            yield archive
        self.source.check_unchanged()

    def _array(self, archive: Any, key: str, option: str = "x_key", kinds: str = "biuf") -> np.ndarray:
        """An array of numbers, or of another kind."""
        if key not in self.columns:
            raise self._refused(f"no array {key!r}{nearest(key, self.columns)} (choose with {option})")
        try:
            found: np.ndarray = archive[key]
        except _DAMAGED as error:
            reason = " ".join(str(error).split())
            problem = f"is damaged: {reason}: copy or download the file again"
            if "allow_pickle" in reason:
                problem = "holds Python objects (pickled), which are never loaded: save numeric arrays"
            raise self._refused(problem, key) from None
        if not isinstance(found, np.ndarray) or found.dtype.kind not in kinds:
            kind = getattr(found, "dtype", "of no array")
            raise self._refused(f"has type {kind}, expected numbers", key)
        return found

    def _csr(self, archive: Any) -> sparse.csr_array:
        if "format" in self.columns:
            name = self._array(archive, "format", kinds="SU").item()
            name = name.decode("ascii", "replace") if isinstance(name, bytes) else str(name)
            if name != "csr":
                raise self._refused(f"sparse format {name!r}: save matrix.tocsr() instead")
        shape = self._array(archive, "shape")
        if shape.shape != (2,) or shape.dtype.kind not in "iu" or shape.min() < 0:
            raise self._refused(f"must hold two whole numbers, not {shape.tolist()}", "shape")
        if shape[1] > MOST_COLUMNS:
            raise self._refused(f"says {shape[1]} columns; at most {MOST_COLUMNS} are read", "shape")
        data, columns, indptr = (self._array(archive, key) for key in ("data", "indices", "indptr"))
        try:
            if {columns.dtype.kind, indptr.dtype.kind} - {"i", "u"}:
                raise ValueError(f"indices of type {columns.dtype} and {indptr.dtype}")
            X = sparse.csr_array((data, columns, indptr), shape=tuple(shape.tolist()))
            X.check_format(full_check=True)
            if not len(data) == len(columns) == indptr[-1]:
                raise ValueError(
                    f"{len(data)} data and {len(columns)} indices, but 'indptr' ends at {indptr[-1]}"
                )
        except (ValueError, IndexError, OverflowError) as error:
            reason = " ".join(str(error).split())
            raise self._refused(f"arrays 'data', 'indices', 'indptr' are no CSR matrix: {reason}") from None
        return X

    def texts(self, name: str) -> np.ndarray:
        """Another array with a number for each row."""
        other = NpzSource(self.source, x_key=self._x_key, y_key=name)
        return np.concatenate([block.labels for block in other.blocks()])

    def blocks(self, on_read: OnRead | None = None) -> Iterator[Block]:
        """Stream the rows."""
        start = 0
        while start < self.n_rows:
            end = min(self._end(start), self.n_rows)
            y = self._y[start:end].astype(np.float64).reshape(-1)
            if not np.isfinite(y).all():
                bad = int(np.flatnonzero(~np.isfinite(y))[0])
                raise InputError(f"{self.path}: array {self.label!r}, row {start + bad + 1}: label {y[bad]}")
            yield Block(self._rows(start, end), y)
            if on_read is not None:
                size = self.source.size
                on_read(size * end // self.n_rows - size * start // self.n_rows)
            start = end

    def _end(self, start: int) -> int:
        """The row behind a block: as many as fit, at least one."""
        if self.kind == "dense":
            return start + max(1, BLOCK_VALUES // self.n_features)
        indptr = self._X.indptr
        end = int(np.searchsorted(indptr, indptr[start] + BLOCK_VALUES, side="right")) - 1
        return min(max(end, start + 1), start + BLOCK_VALUES)

    def _rows(self, start: int, end: int) -> Rows:
        X = self._X[start:end].astype(np.float64)
        if bad := first_not_finite(X):
            place = f"row {start + bad[0] + 1}, column {bad[1] + 1}"
            raise self._refused(f"{place}: {X[bad]}: every value must be finite")
        if self.kind == "dense":
            return np.ascontiguousarray(X)
        X.sort_indices()  # SciPy does not promise an order, so any order is accepted
        same = np.flatnonzero(X.indices[1:] == X.indices[:-1]) + 1
        same = same[~np.isin(same, X.indptr)]  # neighbours in two different rows
        if len(same):
            row = start + int(np.searchsorted(X.indptr, same[0], side="right"))
            place = f"row {row}, column {int(X.indices[same[0]]) + 1}"
            raise self._refused(f"{place}: appears twice in the row: call sum_duplicates() before saving")
        X.has_canonical_format = True
        return X

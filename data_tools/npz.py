"""NPZ archives, dense or CSR, read by NumPy without pickles."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
from fastadmm.data_tools.blocks import Block, OnRead
from fastadmm.data_tools.opening import SourceFile
from fastadmm.data_tools.suggest import nearest
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
        self.source, self.path, self.y_key = source, source.shown, y_key
        with self._open() as archive:
            self.keys = list(archive.files)
            if not self.keys:
                raise InputError(f"{self.path}: is a zip archive without arrays, not an NPZ file")
            csr = {"data", "indices", "indptr", "shape"} <= set(self.keys)
            self._X: Any
            if x_key is None and "X" not in self.keys and csr:
                self.kind, self._X = "csr", self._csr(archive)
            else:
                self.kind, self._X = "dense", self._array(archive, x_key or "X", "x_key")
                if self._X.ndim != 2:
                    raise InputError(
                        f"{self._place(x_key or 'X')} has shape {self._X.shape}, expected (rows, columns)"
                    )
            self.n_rows, self.n_features = self._X.shape
            self._y = self._array(archive, y_key, "y_key")
        if self._y.shape not in {(self.n_rows,), (self.n_rows, 1)}:
            raise InputError(
                f"{self.path}: array {y_key!r} has shape {self._y.shape}, but there are {self.n_rows} "
                "rows: save one label for each"
            )
        if self.n_rows == 0:
            raise InputError(f"{self.path}: no rows")
        if self.n_features == 0:
            raise InputError(f"{self.path}: no feature columns")

    def _place(self, key: str) -> str:
        return f"{self.path}: array {key!r}"

    @contextmanager
    def _open(self) -> Iterator[Any]:
        with ExitStack() as stack:
            try:
                raw = stack.enter_context(open(self.source.path, "rb"))
                archive = stack.enter_context(np.load(raw, allow_pickle=False))
            except _DAMAGED as error:
                raise InputError(
                    f"{self.path}: damaged or truncated NPZ file ({error}): copy or download it again"
                ) from None
            yield archive
        self.source.check_unchanged()

    def _array(self, archive: Any, key: str, option: str = "x_key", kinds: str = "biuf") -> np.ndarray:
        """An array of numbers, or of another kind."""
        if key not in self.keys:
            raise InputError(f"{self.path}: no array {key!r}{nearest(key, self.keys)} (choose with {option})")
        try:
            found: np.ndarray = archive[key]
        except _DAMAGED as error:
            reason = " ".join(str(error).split())
            if "allow_pickle" in reason:
                raise InputError(
                    f"{self._place(key)} holds Python objects (pickled), which are never loaded: "
                    "save numeric arrays"
                ) from None
            raise InputError(
                f"{self._place(key)} is damaged: {reason}: copy or download the file again"
            ) from None
        if not isinstance(found, np.ndarray) or found.dtype.kind not in kinds:
            kind = getattr(found, "dtype", "of no array")
            raise InputError(f"{self._place(key)} has type {kind}, expected numbers")
        return found

    def _csr(self, archive: Any) -> sparse.csr_array:
        if "format" in self.keys:
            name = self._array(archive, "format", kinds="SU").item()
            name = name.decode("ascii", "replace") if isinstance(name, bytes) else str(name)
            if name != "csr":
                raise InputError(f"{self.path}: sparse format {name!r}: save matrix.tocsr() instead")
        shape = self._array(archive, "shape")
        if shape.shape != (2,) or shape.dtype.kind not in "iu" or shape.min() < 0:
            raise InputError(f"{self.path}: array 'shape' must hold two whole numbers, not {shape.tolist()}")
        if shape[1] > MOST_COLUMNS:
            raise InputError(
                f"{self.path}: array 'shape' says {shape[1]} columns; at most {MOST_COLUMNS} are read"
            )
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
            raise InputError(
                f"{self.path}: arrays 'data', 'indices', 'indptr' are no CSR matrix: {reason}"
            ) from None
        return X

    def blocks(self, on_read: OnRead | None = None) -> Iterator[Block]:
        """Stream the rows."""
        start = 0
        while start < self.n_rows:
            end = min(self._end(start), self.n_rows)
            y = self._y[start:end].astype(np.float64).reshape(-1)
            if not np.isfinite(y).all():
                bad = int(np.flatnonzero(~np.isfinite(y))[0])
                raise InputError(f"{self._place(self.y_key)}, row {start + bad + 1}: label {y[bad]}")
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

    def _rows(self, start: int, end: int) -> np.ndarray | sparse.csr_array:
        X = self._X[start:end].astype(np.float64)
        if bad := first_not_finite(X):
            place = f"{self.path}: row {start + bad[0] + 1}, column {bad[1] + 1}"
            raise InputError(f"{place}: {X[bad]}: every value must be finite")
        if self.kind == "dense":
            return np.ascontiguousarray(X)
        X.sort_indices()  # SciPy does not promise an order, so any order is accepted
        same = np.flatnonzero(X.indices[1:] == X.indices[:-1]) + 1
        same = same[~np.isin(same, X.indptr)]  # neighbours in two different rows
        if len(same):
            row = start + int(np.searchsorted(X.indptr, same[0], side="right"))
            raise InputError(
                f"{self.path}: row {row}, column {int(X.indices[same[0]]) + 1}: appears twice in the row: "
                "call sum_duplicates() before saving"
            )
        X.has_canonical_format = True
        return X

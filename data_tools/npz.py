"""NPZ archives, dense or CSR, streamed member by member without pickles."""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator
from types import TracebackType

import numpy as np
from fastadmm.data_tools.blocks import Block, OnRead
from fastadmm.data_tools.opening import SourceFile
from fastadmm.data_tools.suggest import nearest
from fastadmm.errors import InputError
from numpy.lib import format as npy
from scipy import sparse

#: float64 values per block: 1 << 18 is 2 MB.
BLOCK_VALUES = 1 << 18

#: Exceptions of zipfile and zlib on damaged archives.
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError)


#: Beyond this a number of columns is a spoiled file: their statistics alone would take gigabytes.
MOST_COLUMNS = 2**28


class _Member:
    """One array of the archive, read in order."""

    def __init__(self, source: NpzSource, archive: zipfile.ZipFile, key: str) -> None:
        self.where = f"{source.path}: array {key!r}"
        self.key = key
        self._rows = 0
        self._whole: np.ndarray | None = None
        try:
            self._file = archive.open(f"{key}.npy")
        except KeyError:
            raise source._missing(key) from None
        except _DAMAGED as error:
            raise InputError(f"{self.where}: cannot be read: {' '.join(str(error).split())}") from None
        try:
            self._read_header(key)
        except BaseException:
            self._file.close()
            raise

    def _read_header(self, key: str) -> None:
        try:
            version = npy.read_magic(self._file)
            read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            self.shape, self._fortran, self.dtype = read(self._file)
        except (*_DAMAGED, ValueError) as error:
            raise InputError(f"{self.where}: cannot be read: {' '.join(str(error).split())}") from None
        if self.dtype.hasobject:
            raise InputError(
                f"{self.where} holds Python objects (pickled), which are never loaded: save numeric arrays"
            )
        if self.dtype.kind not in "biuf" and not (self.dtype.kind in "SU" and key == "format"):
            raise InputError(f"{self.where} has type {self.dtype}, expected numbers")

    def __enter__(self) -> _Member:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def rows(self, count: int) -> np.ndarray:
        """The next ``count`` rows (fewer at the end)."""
        count = min(count, self.shape[0] - self._rows)
        start, self._rows = self._rows, self._rows + count
        if self._fortran and len(self.shape) > 1:
            # Columns lie one after the other, so that rows cannot be streamed: the only array loaded whole.
            if self._whole is None:
                self._whole = self._read(math.prod(self.shape), last=True).reshape(self.shape, order="F")
            return self._whole[start : start + count]
        values = self._read(count * math.prod(self.shape[1:]), last=self._rows == self.shape[0])
        return values.reshape((count, *self.shape[1:]))

    def all(self) -> np.ndarray:
        """The whole array."""
        return self.rows(self.shape[0]) if self.shape else self._read(1, last=True).reshape(())

    def _read(self, count: int, last: bool) -> np.ndarray:
        size = count * self.dtype.itemsize
        try:
            data = self._file.read(size)
            if last:
                self._file.read(1)  # reaches the end of the member, which checks its CRC
        except _DAMAGED as error:
            raise InputError(f"{self.where} is damaged: {error}: copy or download the file again") from None
        if len(data) != size:
            raise InputError(f"{self.where} is truncated: {len(data)} of {size} bytes: copy the file again")
        return np.frombuffer(data, dtype=self.dtype)


class NpzSource:
    """A dense matrix (one array) or a CSR matrix (``data``, ``indices``, ``indptr``, ``shape``) with labels.

    The CSR names are those of ``scipy.sparse.save_npz``.
    """

    quick = True
    feature_names: list[str] | None = None

    def __init__(self, source: SourceFile, *, x_key: str | None = None, y_key: str = "y") -> None:
        self.source = source
        self.path = source.shown
        self.y_key = y_key
        with self._open() as archive:
            self.keys = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
            if not self.keys:
                raise InputError(f"{self.path}: is a zip archive without arrays, not an NPZ file")
            csr = {"data", "indices", "indptr", "shape"} <= set(self.keys)
            if x_key is None and "X" not in self.keys and csr:
                self.kind = "csr"
                self._check_csr(archive)
            else:
                self.kind = "dense"
                self.x_key = x_key or "X"
                self._check_dense(archive)
            with _Member(self, archive, y_key) as y:
                if y.dtype.kind not in "biuf":
                    raise InputError(f"{y.where} has type {y.dtype}, expected numbers")
                if y.shape not in {(self.n_rows,), (self.n_rows, 1)}:
                    raise InputError(
                        f"{self.path}: array {y_key!r} has shape {y.shape}, but there are {self.n_rows} "
                        "rows: save one label for each"
                    )
        if self.n_rows == 0:
            raise InputError(f"{self.path}: no rows")
        if self.n_features == 0:
            raise InputError(f"{self.path}: no feature columns")

    def _open(self) -> zipfile.ZipFile:
        try:
            return zipfile.ZipFile(self.source.path)
        except _DAMAGED as error:
            raise InputError(
                f"{self.path}: damaged or truncated NPZ file ({error}): copy or download it again"
            ) from None

    def _missing(self, key: str) -> InputError:
        option = "--y-key" if key == self.y_key else "--x-key"
        return InputError(f"{self.path}: no array {key!r}{nearest(key, self.keys)} (choose with {option})")

    def _check_dense(self, archive: zipfile.ZipFile) -> None:
        with _Member(self, archive, self.x_key) as X:
            if len(X.shape) != 2:
                raise InputError(f"{X.where} has shape {X.shape}, expected (rows, columns)")
            self.n_rows, self.n_features = X.shape

    def _check_csr(self, archive: zipfile.ZipFile) -> None:
        if "format" in self.keys:
            with _Member(self, archive, "format") as member:
                name = member.all().item()
            name = name.decode("ascii", "replace") if isinstance(name, bytes) else str(name)
            if name != "csr":
                raise InputError(f"{self.path}: sparse format {name!r}: save matrix.tocsr() instead")
        with _Member(self, archive, "shape") as member:
            shape = member.all()
        if shape.shape != (2,) or shape.dtype.kind not in "iu" or shape.min() < 0:
            raise InputError(f"{self.path}: array 'shape' must hold two whole numbers, not {shape.tolist()}")
        self.n_rows, self.n_features = int(shape[0]), int(shape[1])
        if self.n_features > MOST_COLUMNS:
            raise InputError(
                f"{self.path}: array 'shape' says {self.n_features} columns; at most {MOST_COLUMNS} are read"
            )
        sizes = {}
        for key in ("data", "indices", "indptr"):
            with _Member(self, archive, key) as member:
                if len(member.shape) != 1 or (key != "data" and member.dtype.kind not in "iu"):
                    raise InputError(f"{member.where} has shape {member.shape} and type {member.dtype}")
                sizes[key] = member.shape[0]
                if key == "indptr":
                    indptr = member.all().astype(np.int64)
        if sizes["indptr"] != self.n_rows + 1:
            raise InputError(
                f"{self.path}: {self.n_rows} rows, but array 'indptr' has {sizes['indptr']} entries"
            )
        if indptr[0] != 0 or np.any(np.diff(indptr) < 0):
            raise InputError(f"{self.path}: array 'indptr' must start at 0 and never decrease")
        if not sizes["data"] == sizes["indices"] == indptr[-1]:
            raise InputError(
                f"{self.path}: 'indptr' ends at {indptr[-1]}, but there are {sizes['data']} data and "
                f"{sizes['indices']} indices"
            )
        self._indptr = indptr

    def blocks(self, on_read: OnRead | None = None) -> Iterator[Block]:
        """Stream the rows."""
        stream = self._dense_blocks if self.kind == "dense" else self._csr_blocks
        with self._open() as archive, _Member(self, archive, self.y_key) as labels:
            row = 0
            for X in stream(archive):
                y = labels.rows(X.shape[0]).astype(np.float64).reshape(-1)
                if not np.isfinite(y).all():
                    bad = int(np.flatnonzero(~np.isfinite(y))[0])
                    raise InputError(
                        f"{self.path}: array {self.y_key!r}, row {row + bad + 1}: label {y[bad]}"
                    )
                yield Block(X, y)
                row += X.shape[0]
                if on_read is not None:
                    ends = (self.source.size * at // self.n_rows for at in (row - X.shape[0], row))
                    on_read(-next(ends) + next(ends))
        self.source.check_unchanged()

    def _dense_blocks(self, archive: zipfile.ZipFile) -> Iterator[np.ndarray]:
        count = max(1, BLOCK_VALUES // self.n_features)
        with _Member(self, archive, self.x_key) as member:
            for start in range(0, self.n_rows, count):
                X = member.rows(count).astype(np.float64, order="C")
                if not np.isfinite(X).all():
                    i, j = np.argwhere(~np.isfinite(X))[0]
                    raise InputError(
                        f"{member.where}, row {start + i + 1}, column {j + 1}: {X[i, j]}: "
                        "every value must be finite"
                    )
                yield X

    def _csr_blocks(self, archive: zipfile.ZipFile) -> Iterator[sparse.csr_array]:
        with _Member(self, archive, "data") as data, _Member(self, archive, "indices") as indices:
            start = 0
            while start < self.n_rows:
                # As many rows as fit, at least one.
                end = int(np.searchsorted(self._indptr, self._indptr[start] + BLOCK_VALUES, side="right")) - 1
                end = min(max(end, start + 1), start + BLOCK_VALUES, self.n_rows)
                indptr = self._indptr[start : end + 1] - self._indptr[start]
                columns = indices.rows(int(indptr[-1])).astype(np.int64)
                values = data.rows(int(indptr[-1])).astype(np.float64)
                yield self._checked_csr(values, columns, indptr, start)
                start = end

    def _checked_csr(
        self, values: np.ndarray, columns: np.ndarray, indptr: np.ndarray, start: int
    ) -> sparse.csr_array:
        def place(position: int) -> str:
            row = start + int(np.searchsorted(indptr, position, side="right"))
            return f"{self.path}: row {row}, column {int(columns[position]) + 1}"

        outside = np.flatnonzero((columns < 0) | (columns >= self.n_features))
        if len(outside):
            raise InputError(f"{place(outside[0])}: out of range, there are {self.n_features} columns")
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            raise InputError(f"{place(bad[0])}: {values[bad[0]]}: every value must be finite")
        X = sparse.csr_array((values, columns, indptr), shape=(len(indptr) - 1, self.n_features))
        X.sort_indices()  # SciPy does not promise an order, so any order is accepted
        columns = X.indices
        same = np.flatnonzero(columns[1:] == columns[:-1]) + 1
        same = same[~np.isin(same, indptr)]  # neighbours in two different rows
        if len(same):
            raise InputError(
                f"{place(same[0])}: appears twice in the row: call sum_duplicates() before saving"
            )
        return X

    def where(self, row: int) -> str:
        """Name a zero-based row."""
        return f"row {row + 1}"

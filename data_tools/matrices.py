"""Sources without names of columns: LIBSVM text, and NPZ archives, which NumPy reads without pickles.

A block of text is read by scikit-learn, which is exact. Where it refuses, or would forgive, the line and the
token at fault are named.
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any
from weakref import finalize

import numpy as np
from fastadmm.data_tools.blocks import Block, Rows
from fastadmm.data_tools.columns import nearest
from fastadmm.data_tools.opening import OnRead, SourceFile
from fastadmm.errors import InputError
from fastadmm.files.atomic import storage_errors
from fastadmm.store.block_file import first_not_finite, make_csr
from scipy import sparse

#: One mistyped index must not allocate the machine's memory; ``n_features`` lifts the limit.
MAX_FEATURES = 200_000_000

_INT32_MAX = 2**31 - 1
_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\Z")
_INDEX = re.compile(rb"\+?\d+\Z")
_COMMENT = re.compile(rb"#[^\n]*")

#: What scikit-learn reads on over: digits with underscores, query ids, and texts that C takes to end early.
_FORGIVEN = re.compile(rb"[_\0]|qid")


#: What a file of another kind is told.
_READ = ", as LIBSVM text begins with; other files that are read are CSV, Parquet and NPZ"

#: Bytes of parsed rows kept in memory between two passes; more of them wait in files without a name.
CACHE_BYTES = 32 << 20


class LibsvmSource:
    """LIBSVM text, plain or compressed (gzip, bzip2, xz), in one file or several that follow one another.

    Each line is ``label index:value index:value ...``; indices ascend and count from 1 unless
    ``zero_based``. Blank lines and everything after ``#`` are skipped.
    """

    kind = "csr"
    feature_names: list[str] | None = None

    def __init__(
        self,
        files: Sequence[SourceFile],
        path: str | None = None,
        *,
        n_features: int | None = None,
        zero_based: bool = False,
        scratch: str | Path | None = None,
    ) -> None:
        self.files, self._scratch = files, scratch
        self._kept: Any = None  # a file of the arrays of all blocks
        self._shapes: list[tuple[int, int]] = []
        self.path = files[0].shown if path is None else path
        self.n_features, self.zero_based = n_features, zero_based

    def blocks(self, on_read: OnRead | None = None) -> Iterator[Block]:
        """Stream the rows, which are parsed once if there is a scratch folder to keep them in."""
        if self._kept is not None:
            self._kept.seek(0)
            for shape in self._shapes:
                data, indices, indptr, labels = (np.load(self._kept) for _ in range(4))
                yield Block(make_csr(data, indices, indptr, shape), labels)
            return
        kept, shapes = None, []
        if self._scratch is not None:
            kept = SpooledTemporaryFile(CACHE_BYTES, dir=str(self._scratch), prefix=".fastadmm-")  # noqa: SIM115
            finalize(self, kept.close)
        for block in self._parsed(on_read):
            X: Any = block.X
            shapes.append(X.shape)
            if kept is not None:
                with storage_errors(str(self._scratch)):
                    for array in (X.data, X.indices, X.indptr, block.labels):
                        np.save(kept, array)
            yield block
        if kept is not None:
            with storage_errors(str(self._scratch)):
                kept.flush()
        self._kept, self._shapes = kept, shapes

    def _parsed(self, on_read: OnRead | None) -> Iterator[Block]:
        for file in self.files:
            empty = True
            for line, text in file.line_blocks(on_read):
                if (found := self._parse_plain(text)) is None:
                    raise self._fault(text, line, file.shown)
                X, y = found
                if len(y):
                    yield Block(X, y)
                    empty = False
            if empty:
                raise InputError(f"{file.shown}: no data rows, only blank lines or comments")

    def _parse_plain(self, text: bytes) -> tuple[sparse.csr_array, np.ndarray] | None:
        """Rows that scikit-learn reads as they are meant; None where anything is unusual or wrong."""
        from sklearn.datasets import load_svmlight_file

        text = _COMMENT.sub(b"", text) if b"#" in text else text
        if _FORGIVEN.search(text):
            return None
        try:
            X, y = load_svmlight_file(io.BytesIO(text), dtype=np.float64, zero_based=True)
        except (ValueError, OverflowError):
            return None
        indices = X.indices if self.zero_based else X.indices - 1
        limit = min(self.n_features if self.n_features is not None else MAX_FEATURES, _INT32_MAX) - 1
        low, high = (int(indices.min()), int(indices.max())) if len(indices) else (0, -1)
        if low < 0 or high > limit or not (np.isfinite(X.data).all() and np.isfinite(y).all()):
            return None
        shape = (len(y), high + 1 if self.n_features is None else self.n_features)
        return make_csr(X.data, indices.astype(np.int32), X.indptr.astype(np.int32), shape), y

    def _fault(self, text: bytes, first_line: int, path: str) -> InputError:
        """The error about the first token that is wrong."""
        shift = 0 if self.zero_based else 1
        for number, line in enumerate(io.BytesIO(text), start=first_line):
            label, *tokens = line.split(b"#", 1)[0].split() or [b"0"]
            place, last = f"{path}: line {number}", -1
            if not _is_finite(label):
                hint = "; the line has no label" if b":" in label else _READ * (number == 1)
                hint = "; for a CSV file pass --format csv" if b"," in label else hint
                return InputError(f"{place}: label {_show(label)} is not a finite number{hint}")
            for token in tokens:
                index_text, _, value_text = token.partition(b":")
                if not _INDEX.match(index_text) or not _is_finite(value_text):
                    problem = "is not index:value, a whole number and a finite one"
                    return InputError(f"{place}: {_show(token)} {problem}")
                index = int(index_text[:20]) - shift  # 20 digits are out of range already
                if problem := self._out_of_range(index, shift, _show(index_text)):
                    return InputError(f"{place}: index {problem}")
                if index <= last:
                    what = "is repeated" if index == last else f"comes after index {last + shift}"
                    return InputError(
                        f"{place}: index {index + shift} {what}: indices must ascend, each at most once"
                    )
                last = index
        return InputError(f"{path}: line {first_line}: not LIBSVM text")

    def _out_of_range(self, index: int, shift: int, written: str) -> str:
        """What is wrong with an index, here from 0 on; empty where it fits."""
        if index < 0:
            return "0, but indices count from 1: pass --set zero_based=true if this file counts from 0"
        limit = self.n_features if self.n_features is not None else MAX_FEATURES
        if index < min(limit, _INT32_MAX):
            return ""
        if self.n_features is None:
            return f"{written} asks for more than {limit} features; if that is meant, pass --features"
        largest = min(limit, _INT32_MAX) - 1 + shift
        return f"{written} is out of range: there are {limit} features (largest index {largest})"


def _is_finite(token: bytes) -> bool:
    return bool(_NUMBER.match(token)) and bool(np.isfinite(float(token)))


def _show(token: bytes) -> str:
    text = token.decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= 40 else text[:37] + "...")


# --- NPZ archives, dense or CSR -------------------------------------------------------------------------


#: float64 values per block: 1 << 18 is 2 MB.
BLOCK_VALUES = 1 << 18

#: Exceptions of NumPy, zipfile and zlib on damaged archives; MemoryError: a size that nothing has.
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError, ValueError,
            SyntaxError, MemoryError, OverflowError)  # fmt: skip

#: Beyond this a number of columns is a spoiled file: their statistics alone would take gigabytes.
MOST_COLUMNS = 2**28


class NpzSource:
    """A dense matrix (one array) or a sparse one, with the names of ``scipy.sparse.save_npz``, with labels.

    Arrays are in memory as they are stored, and become float64 block by block.
    """

    feature_names: list[str] | None = None

    def __init__(self, source: SourceFile, *, x_key: str | None = None, y_key: str = "y") -> None:
        self.source, self.path, self.label, self._x_key = source, source.shown, y_key, x_key
        with self._open() as archive:
            self.columns = list(archive.files)  # names of all arrays
            if not self.columns:
                raise self._refused("is a zip archive without arrays, not an NPZ file")
            self._y = self._array(archive, y_key, "y_key")
            self._X: Any
            if x_key is None and "X" not in self.columns and {"data", "shape"} <= set(self.columns):
                self.kind, self._X = "csr", self._csr(archive)
            else:
                self.kind, self._X = "dense", self._array(archive, x_key or "X", "x_key")
                if self._X.ndim != 2:
                    raise self._refused(f"has shape {self._X.shape}, expected (rows, columns)", x_key or "X")
            self.n_rows, self.n_features = self._X.shape
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

    def _array(self, archive: Any, key: str, option: str) -> np.ndarray:
        """An array of numbers."""
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
        if not isinstance(found, np.ndarray) or found.dtype.kind not in "biuf":
            kind = getattr(found, "dtype", "of no array")
            raise self._refused(f"has type {kind}, expected numbers", key)
        return found

    def _csr(self, archive: Any) -> sparse.csr_array:
        """Any matrix of ``scipy.sparse.save_npz``; without the name of its format a CSR one."""
        try:
            for key in {"indices", "indptr", "row", "col", "coords", "offsets", "shape"} & set(self.columns):
                if archive[key].dtype.kind not in "iu":
                    raise ValueError(f"{key} of type {archive[key].dtype}")
            shape = archive["shape"].tolist()
            if len(shape) != 2 or shape[0] != self._y.size or shape[1] > MOST_COLUMNS:
                most = f"{self._y.size} numbers {self.label!r}, and at most {MOST_COLUMNS} columns are read"
                raise ValueError(f"shape {shape}, but there are {most}")
            if "format" in self.columns:
                X: Any = sparse.load_npz(self.source.path)
            else:
                parts = tuple(archive[key] for key in ("data", "indices", "indptr"))
                X = sparse.csr_array(parts, shape=shape)
            if X.format in ("csr", "csc", "bsr"):
                X.check_format(full_check=True)
                if len(archive["data"]) != X.indptr[-1]:
                    raise ValueError(f"{len(archive['data'])} data, but 'indptr' ends at {X.indptr[-1]}")
            if X.format == "dia" and (abs(archive["offsets"]) >= max(shape)).any():
                raise ValueError("offsets beyond the matrix")
            if X.dtype.kind not in "biuf" or X.dtype == np.float16:  # which SciPy does not take apart
                raise ValueError(f"values of type {X.dtype}")
            return sparse.csr_array(X)
        except (*_DAMAGED, ArithmeticError, AttributeError, IndexError, KeyError, TypeError) as error:
            reason = " ".join(str(error).split())[:200]
            problem = f"no sparse matrix as scipy.sparse.save_npz writes it: {reason}"
            raise self._refused(problem) from None

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
        if not X.has_canonical_format:
            problem = "a column appears twice in a row: call sum_duplicates() before saving"
            raise self._refused(f"rows {start + 1} to {end}: {problem}")
        return X

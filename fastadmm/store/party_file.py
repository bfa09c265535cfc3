"""One party's file: a feature block, its names, its row ids and its transform. Never labels."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastadmm.errors import FastadmmError, FormatError, InputError
from fastadmm.files.atomic import shown
from fastadmm.files.digest import ContentDigest
from fastadmm.store.compression import compression_options
from fastadmm.store.elements import (
    CsrParts,
    GrowingBlock,
    array_dataset,
    check_rows,
    check_text,
    encode,
    make_csr,
    not_finite,
    plain_dataset,
    read_attribute,
    read_block,
    read_indptr,
    read_strings,
    require_group,
    write_strings,
)
from fastadmm.store.encoder import Encoder
from fastadmm.store.h5file import h5_errors, open_output, read_h5
from fastadmm.store.ids import IdWriter, read_ids, verified_digest
from fastadmm.store.row_reader import RowReader
from fastadmm.store.transform import Transform
from fastadmm.store.writer import Writer

if TYPE_CHECKING:
    import h5py
    from scipy.sparse import csr_array

PARTY_TYPE = "fastadmm-party"
#: 1.1: with an encoder, which a reader of 1.0 would refuse; files without one are still written as 1.0.
PARTY_VERSIONS = ("1.0", "1.1")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LABEL_KEYS = frozenset({"y", "label", "labels", "target", "sample_weight", "offset"})
_ROOT_KEYS = {"": {"X", "obs", "var", "transform", "encoder"}, "obs": {"ids"}, "var": {"names"}}
_STREAM_BYTES = 8 << 20


def check_party_name(name: object, place: str, error: type[FastadmmError] = InputError) -> str:
    """Return a party's name if it can be a file name everywhere, else raise `error`."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name.casefold() == "labels":
        raise error(
            f"{place}: {name!r} cannot name a party; use up to 64 letters, digits, '.', '_' or '-', "
            "beginning with a letter or digit, and not 'labels'"
        )
    return name


class PartyWriter(Writer):
    """Writes a party's file row block by row block, in constant memory; a context manager."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        name: str,
        n_features: int | None = None,
        kind: str = "csr",
        dtype: Any = "float64",
        feature_names: Iterable[str] | None = None,
        transform: Transform | None = None,
        force: bool = False,
        public_path: str | os.PathLike[str] | None = None,
        compression: str = "none",
        encoder: Encoder | None = None,
    ) -> None:
        compression_options(compression)  # before any file is made
        self.path = Path(path)
        self._shown = shown(path if public_path is None else public_path)
        self.name = check_party_name(name, self._shown)
        if kind not in {"csr", "dense"}:
            raise InputError(f"{self._shown}: kind {kind!r} is not 'csr' or 'dense'")
        try:
            self.dtype = np.dtype(dtype)
        except TypeError:
            raise InputError(f"{self._shown}: dtype {dtype!r} is not float64 or float32") from None
        if self.dtype not in (np.float64, np.float32):
            raise InputError(f"{self._shown}: dtype {self.dtype} is not float64 or float32")
        if kind == "csr" and transform is not None and transform.center is not None:
            raise InputError(f"{self._shown}: key 'transform': a sparse block cannot be centred")
        self.kind, self.n_samples, self.n_features = kind, 0, n_features
        if n_features is not None:
            self._check_width(n_features)
        self._names = None if feature_names is None else list(feature_names)
        self._check_names()
        self._transform, self._encoder = transform or Transform(), encoder
        self.row_digest = ""
        self.content_digest = ""
        super().__init__()
        self._file, self._sink = self._stack.enter_context(
            open_output(
                path, PARTY_TYPE, PARTY_VERSIONS[encoder is not None], force=force, public_path=public_path
            )
        )
        self._file.attrs["name"] = self.name
        self._ids = IdWriter(self._file, self._shown)
        self._digest = ContentDigest(kind, self.dtype.name)
        self._block = GrowingBlock(self._file, kind, self.dtype, compression)

    def _check_width(self, width: Any) -> None:
        if isinstance(width, bool) or not isinstance(width, (int, np.integer)) or width < 1:
            raise InputError(f"{self._shown}: {width!r} columns; a party needs at least one")

    def _check_names(self) -> None:
        seen: dict[str, int] = {}
        for i, text in enumerate(self._names or ()):
            check_text(text, f"{self._shown}: key 'var/names': column {i + 1}")
            if text in seen:
                raise InputError(
                    f"{self._shown}: key 'var/names': columns {seen[text] + 1} and {i + 1} are both named "
                    f"{text!r}; rename one"
                )
            seen[text] = i

    def append(self, X: Any, ids: Any = None) -> None:
        """Add rows, already transformed. Shapes: X (k, d); ids (k,)."""
        from scipy.sparse import csr_array, issparse

        self._require_open()
        X = csr_array(X) if issparse(X) else np.asarray(X)
        if X.ndim != 2 or X.dtype.kind not in "biuf":
            raise InputError(
                f"{self._shown}: key 'X': row {self.n_samples + 1}: rows must be a real matrix, not "
                f"{X.ndim}-dimensional {X.dtype}"
            )
        if self.n_features is None:
            self._check_width(X.shape[1])
            self.n_features = int(X.shape[1])
        if X.shape[1] != self.n_features:
            raise InputError(
                f"{self._shown}: key 'X': row {self.n_samples + 1}: {X.shape[1]} columns instead of "
                f"{self.n_features}"
            )
        ids = self._ids.prepare(ids, X.shape[0])
        if self.kind == "dense":
            self._append_dense(X.toarray() if issparse(X) else X)
        else:
            self._append_csr(X if issparse(X) else csr_array(X))
        self._ids.append(ids, X.shape[0])
        self.n_samples += X.shape[0]
        self._sink.check()

    def _cast(self, values: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):  # reported with its place by the caller
            return values.astype(self.dtype, order="C", copy=False)

    def _refuse(self, value: float, row: int, column: int) -> InputError:
        row += self.n_samples + 1
        if np.isfinite(value):
            return InputError(
                f"{self._shown}: key 'X': row {row}, column {column + 1}: value {value} does not fit "
                f"{self.dtype}"
            )
        names = self._names
        name_of = names.__getitem__ if names is not None and column < len(names) else None
        return not_finite(value, self._shown, "X", row, column, name_of)

    def _append_dense(self, X: np.ndarray) -> None:
        block = self._cast(X)
        finite = np.isfinite(block)
        if not finite.all():
            row, column = np.argwhere(~finite)[0]
            raise self._refuse(X[row, column], int(row), int(column))
        self._block.append(block)
        self._digest.update_dense(block)

    def _append_csr(self, X: csr_array) -> None:
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        data = self._cast(X.data)
        finite = np.isfinite(data)
        if not finite.all():
            at = int(np.flatnonzero(~finite)[0])
            row = int(np.searchsorted(X.indptr, at, side="right")) - 1
            raise self._refuse(X.data[at], row, int(X.indices[at]))
        self._block.append(make_csr(data, X.indices, X.indptr, X.shape))
        self._digest.update_csr(data, X.indices, X.indptr.astype(np.int64))

    def _finish(self) -> None:
        d = self.n_features
        if self.n_samples == 0 or d is None:
            raise InputError(f"{self._shown}: key 'X': no rows were written; the source is empty")
        names = self._names if self._names is not None else [f"f{i + 1}" for i in range(d)]
        if len(names) != d:
            raise InputError(f"{self._shown}: key 'var/names': {len(names)} names for {d} columns")
        if self._transform.n_features not in {None, d}:
            raise InputError(
                f"{self._shown}: key 'transform': fitted on {self._transform.n_features} columns, not {d}"
            )
        self._block.close(d)
        self.row_digest = self._ids.close()
        self.content_digest = self._digest.text(names)
        encode(self._file.create_group("var"), "dict")
        write_strings(self._file["var"], "names", names)
        self._transform.to_group(self._file.create_group("transform"))
        if self._encoder is not None:
            self._encoder.to_group(self._file.create_group("encoder"))
        self._file.attrs["n_samples"] = np.int64(self.n_samples)
        self._file.attrs["row-digest"] = self.row_digest
        self._file.attrs["content-digest"] = self.content_digest


class BlockFile:
    """A file with a block of rows, which is read in pieces."""

    path: Path
    name: str
    n_samples: int
    n_features: int
    kind: str
    dtype: np.dtype
    nnz: int | None  # entries of a CSR block
    index_bytes: int  # of one stored column index; 0 for dense
    content_digest: str

    _encoding: tuple[str, tuple[str, ...]]
    _rows_of_file: int

    first_row = 0

    def _open(self) -> AbstractContextManager[h5py.File]:
        return read_h5(self.path, *self._encoding)

    def _read_header(self, file: h5py.File) -> None:
        """What every file with a block says of itself, checked."""
        place = shown(self.path)
        self.name = check_party_name(
            read_attribute(file, "name", str), f"{place}: attribute 'name'", FormatError
        )
        self.n_samples = self._rows_of_file = read_attribute(file, "n_samples", int)
        if self.n_samples < 1:
            raise FormatError(f"{place}: attribute 'n_samples' is {self.n_samples}, not positive")
        self.kind, block = block_of(file)
        parts = block if isinstance(block, CsrParts) else None
        self.dtype = (block.data if isinstance(block, CsrParts) else block).dtype.newbyteorder("=")
        self.nnz = None if parts is None else parts.nnz
        self.index_bytes = 0 if parts is None else parts.indices.dtype.itemsize
        n_rows, self.n_features = (int(n) for n in block.shape)
        if n_rows != self.n_samples:
            raise FormatError(
                f"{place}: key 'X': has {n_rows} rows, but attribute 'n_samples' says {self.n_samples}"
            )
        if self.n_features < 1:
            raise FormatError(f"{place}: key 'X': has no columns")
        self.content_digest = read_attribute(file, "content-digest", str)

    @property
    def nbytes(self) -> int:
        """Bytes that the loaded block takes in memory."""
        if self.nnz is None:
            return self.n_samples * self.n_features * self.dtype.itemsize
        return self.nnz * (self.dtype.itemsize + self.index_bytes) + (self.n_samples + 1) * self.index_bytes

    @property
    def feature_names(self) -> list[str]:
        """Names of the columns."""
        raise NotImplementedError

    def iter_rows(self, rows: int | None = None) -> Iterator[tuple[int, np.ndarray | csr_array]]:
        """Read the block in consecutive pieces, in constant memory. Shapes: block (k, d)."""
        if rows is None:
            rows = max(1, _STREAM_BYTES * self.n_samples // max(1, self.nbytes))
        elif rows < 1:
            raise InputError(f"{rows} rows per piece; at least one is needed")
        return self._read(rows)

    def _read(self, rows: int) -> Iterator[tuple[int, np.ndarray | csr_array]]:
        with self._open() as file:
            kind, block = block_of(file)
            if kind != self.kind or tuple(block.shape) != (self._rows_of_file, self.n_features):
                raise FormatError(f"{shown(self.path)}: key 'X': changed since the file was opened")
            first, indptr = self.first_row, None
            if isinstance(block, CsrParts):
                indptr = read_indptr(block, first, first + self.n_samples)
            for start in range(0, self.n_samples, rows):
                stop = min(start + rows, self.n_samples)
                if isinstance(block, CsrParts) and indptr is not None:
                    yield start, self._csr_rows(block, indptr[start : stop + 1], first + start)
                else:
                    yield start, self._dense_rows(block, first + start, first + stop)

    def _dense_rows(self, dataset: h5py.Dataset, start: int, stop: int) -> np.ndarray:
        out = read_block(dataset, start, stop)
        step = max(1, _STREAM_BYTES // (self.n_features * self.dtype.itemsize))
        for first in range(0, len(out), step):  # a mask of the whole block would cost an eighth more memory
            finite = np.isfinite(out[first : first + step])
            if not finite.all():
                row, column = np.argwhere(~finite)[0]
                raise not_finite(
                    out[first + row, column],
                    shown(self.path),
                    "X",
                    start + first + int(row) + 1,
                    int(column),
                    self._name_of,
                )
        return out

    def _csr_rows(self, parts: CsrParts, indptr: np.ndarray, start: int) -> csr_array:
        first, last = int(indptr[0]), int(indptr[-1])
        data = read_block(parts.data, first, last)
        indices = read_block(parts.indices, first, last)
        local = indptr - first
        check_rows(
            data,
            indices,
            local,
            self.n_features,
            file=shown(self.path),
            key="X",
            first_row=start,
            column_name=self._name_of,
        )
        return make_csr(data, indices, local, (len(local) - 1, self.n_features))

    def _name_of(self, column: int) -> str:
        try:
            return self.feature_names[column]
        except FastadmmError:  # a name only decorates another error
            return "?"


class PartyData(BlockFile):
    """A party's file, checked but not loaded. Made by :func:`open_party`."""

    first_entry = 0
    _encoding = PARTY_TYPE, PARTY_VERSIONS

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        with self._open() as file:
            _refuse_keys(file)
            self._read_header(file)
            names = plain_dataset(require_group(file, "var"), "names")
            if names.shape != (self.n_features,):
                raise FormatError(
                    f"{shown(path)}: key 'var/names': shape {names.shape} for {self.n_features} columns"
                )
            self.transform = Transform.from_group(require_group(file, "transform"))
            if self.transform.n_features not in {None, self.n_features}:
                raise FormatError(
                    f"{shown(path)}: key 'transform': fitted on {self.transform.n_features} columns, but "
                    f"'X' has {self.n_features}"
                )
            if self.kind == "csr" and self.transform.center is not None:
                raise FormatError(f"{shown(path)}: key 'transform/center': not allowed for a sparse block")
            self.encoder = Encoder.from_group(require_group(file, "encoder")) if "encoder" in file else None
            if self.encoder is not None and len(self.encoder.feature_names) != self.n_features:
                raise FormatError(
                    f"{shown(path)}: key 'encoder': makes {len(self.encoder.feature_names)} features, but "
                    f"'X' has {self.n_features} columns"
                )
            self.row_digest = verified_digest(file, self.n_samples)

    def of_rows(self, start: int, stop: int) -> PartyData:
        """Some rows of the file as if it held no others."""
        own = copy(self)
        own.first_row, own.n_samples = self.first_row + start, stop - start
        if self.nnz is not None:
            with self._open() as file:
                ends = CsrParts(file, "X").indptr
                first, last = (
                    int(read_block(ends, k, k + 1)[0]) for k in (own.first_row, self.first_row + stop)
                )
            own.nnz, own.first_entry = max(0, last - first), first
        return own

    def reader(self, keys: tuple[str, ...]) -> RowReader:
        """Open datasets of the file, whose rows or entries are those of the whole file."""
        return RowReader(self.path, keys, PARTY_TYPE, PARTY_VERSIONS)

    def __repr__(self) -> str:
        return f"<PartyData {self.name!r}: {self.n_samples} x {self.n_features} {self.kind} {self.dtype}>"

    @cached_property
    def feature_names(self) -> list[str]:
        """The d names of the columns (read on first use)."""
        with self._open() as file:
            names = read_strings(require_group(file, "var"), "names")
        if len(set(names)) != len(names):
            twice = next(name for i, name in enumerate(names) if name in names[:i])
            raise FormatError(f"{shown(self.path)}: key 'var/names': {twice!r} occurs twice")
        return names

    @property
    def steps(self) -> list[Any]:
        """Every step from the party's table to its columns that the file tells of, in order."""
        return [step for step in (self.encoder, self.transform) if step is not None]

    def ids(self) -> np.ndarray:
        """Return the row ids, shape (N,): int64, or object holding str."""
        with self._open() as file:
            return read_ids(file, self.n_samples)

    def load(self) -> np.ndarray | csr_array:
        """Read and validate the whole block. Shapes: the result (N, d)."""
        ((_, block),) = self._read(self.n_samples)
        return block

    def row_pointers(self) -> np.ndarray:
        """Read and check where in the file each row of a CSR block begins: int64, shape (N + 1,)."""
        with self._open() as file:
            return read_indptr(CsrParts(file, "X"), self.first_row, self.first_row + self.n_samples)

    def add_to(self, digest: ContentDigest) -> None:
        """Read everything and add it to a digest."""
        for _, block in self.iter_rows():
            if isinstance(block, np.ndarray):
                digest.update_dense(block)
            else:
                digest.update_csr(block.data, block.indices, block.indptr)

    def verify(self) -> None:
        """Read everything and compare it with the content digest."""
        digest = ContentDigest(self.kind, self.dtype.name)
        self.add_to(digest)
        if digest.text(self.feature_names) != self.content_digest:
            raise FormatError(
                f"{shown(self.path)}: attribute 'content-digest' does not agree with keys 'X' and "
                "'var/names'; damaged or edited"
            )


def _refuse_keys(file: h5py.File) -> None:
    # A party's file is handed to that party: anything that could be a label is refused, known or not.
    for parent, allowed in _ROOT_KEYS.items():
        group = file if not parent else require_group(file, parent)
        for key in group:
            if key in allowed:
                continue
            full = f"{parent}/{key}".strip("/")
            if key.lower() in _LABEL_KEYS:
                raise FormatError(
                    f"{shown(file.filename)}: key {full!r}: labels, weights and offsets belong in "
                    "labels.h5, never in a party's file; remove it"
                )
            raise FormatError(
                f"{shown(file.filename)}: key {full!r}: unknown in a party's file; remove it or "
                "upgrade fastadmm"
            )


def block_of(file: h5py.File) -> tuple[str, h5py.Dataset | CsrParts]:
    """How the block of a file is stored, and its datasets, checked."""
    import h5py

    with h5_errors(file.filename, "X"):
        is_group = file.get("X", getclass=True) is h5py.Group
    place = f"{shown(file.filename)}: key "
    if is_group:
        parts = CsrParts(file, "X")
        kind, values, key, block = "csr", parts.data, "X/data", parts
    else:
        dataset = array_dataset(file, "X", ndim=2, kind="f")
        kind, values, key, block = "dense", dataset, "X", dataset
    if values.dtype.newbyteorder("=") not in (np.float64, np.float32):
        raise FormatError(f"{place}{key!r}: has dtype {values.dtype}, but float64 or float32 is needed")
    return kind, block


def open_party(path: str | os.PathLike[str]) -> PartyData:
    """Open a party's file: checks its structure and its row digest, does not load the block."""
    return PartyData(path)

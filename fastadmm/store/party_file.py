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
    bad,
    check_rows,
    check_text,
    encode,
    first_not_finite,
    make_csr,
    not_finite,
    plain_dataset,
    read_attribute,
    read_block,
    read_indptr,
    read_positive,
    read_strings,
    require_group,
    write_strings,
)
from fastadmm.store.encoder import Encoder
from fastadmm.store.h5file import h5_errors, read_h5
from fastadmm.store.ids import read_ids, verified_digest
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
        super().__init__(path, public_path)
        self.name = check_party_name(name, self._shown)
        if kind not in {"csr", "dense"}:
            raise InputError(f"{self._shown}: kind {kind!r} is not 'csr' or 'dense'")
        if str(dtype) not in {"float64", "float32"}:
            raise InputError(f"{self._shown}: dtype {dtype!r} is not float64 or float32")
        if kind == "csr" and transform is not None and transform.center is not None:
            raise self._bad("transform", "a sparse block cannot be centred")
        self.kind, self.dtype, self.n_features = kind, np.dtype(str(dtype)), n_features
        if n_features is not None:
            self._check_width(n_features)
        self._names = None if feature_names is None else list(feature_names)
        self._check_names()
        self._transform, self._encoder = transform or Transform(), encoder
        self.content_digest = ""
        self._create(PARTY_TYPE, PARTY_VERSIONS[encoder is not None], force=force, name=self.name)
        self._digest = ContentDigest(kind, self.dtype.name)
        self._block = GrowingBlock(self._file, kind, self.dtype, compression)

    def _check_width(self, width: Any) -> None:
        if isinstance(width, bool) or not isinstance(width, (int, np.integer)) or width < 1:
            raise InputError(f"{self._shown}: {width!r} columns; a party needs at least one")

    def _check_names(self) -> None:
        seen: dict[str, int] = {}
        for i, text in enumerate(self._names or (), start=1):
            check_text(text, f"{self._shown}: key 'var/names': column {i}")
            if (first := seen.setdefault(text, i)) != i:
                raise self._bad("var/names", f"columns {first} and {i} are both named {text!r}; rename one")

    def append(self, X: Any, ids: Any = None) -> None:
        """Add rows, already transformed. Shapes: X (k, d); ids (k,)."""
        from scipy.sparse import csr_array, issparse

        self._require_open()
        X = csr_array(X) if issparse(X) else np.asarray(X)
        row = f"row {self.n_samples + 1}"
        if X.ndim != 2 or X.dtype.kind not in "biuf":
            raise self._bad("X", f"{row}: rows must be a real matrix, not {X.ndim}-dimensional {X.dtype}")
        if self.n_features is None:
            self._check_width(X.shape[1])
            self.n_features = int(X.shape[1])
        if X.shape[1] != self.n_features:
            raise self._bad("X", f"{row}: {X.shape[1]} columns instead of {self.n_features}")
        prepared = self._ids.prepare(ids, X.shape[0])
        if self.kind == "dense":
            X = X.toarray() if issparse(X) else X
        elif not issparse(X):
            X = csr_array(X)
        elif not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        with np.errstate(over="ignore", invalid="ignore"):  # reported with its place
            block = X.astype(self.dtype, copy=False)
        if self.kind == "dense":
            block = np.ascontiguousarray(block)
        if at := first_not_finite(block):
            raise self._refused(X[at], *at)
        self._block.append(block)
        self._digest.update(block)
        self._ids.append(prepared)
        self.n_samples += X.shape[0]
        self._sink.check()

    def _refused(self, value: float, row: int, column: int) -> InputError:
        row += self.n_samples + 1
        if np.isfinite(value):
            return self._bad("X", f"row {row}, column {column + 1}: value {value} does not fit {self.dtype}")
        names = self._names
        name_of = names.__getitem__ if names is not None and column < len(names) else None
        return not_finite(value, self._shown, "X", row, column, name_of)

    def _finish(self) -> None:
        d = self.n_features
        if self.n_samples == 0 or d is None:
            raise self._bad("X", "no rows were written; the source is empty")
        names = self._names if self._names is not None else [f"f{i + 1}" for i in range(d)]
        if len(names) != d:
            raise self._bad("var/names", f"{len(names)} names for {d} columns")
        if self._transform.n_features not in {None, d}:
            raise self._bad("transform", f"fitted on {self._transform.n_features} columns, not {d}")
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
        name = read_attribute(file, "name", str)
        self.name = check_party_name(name, f"{shown(self.path)}: attribute 'name'", FormatError)
        self.n_samples = self._rows_of_file = read_positive(file, "n_samples")
        block = block_of(file)
        self.kind, self.nnz, self.index_bytes = "dense", None, 0
        if isinstance(block, CsrParts):
            self.kind, self.nnz, self.index_bytes = "csr", block.nnz, block.indices.dtype.itemsize
        self.dtype = (block.data if isinstance(block, CsrParts) else block).dtype.newbyteorder("=")
        n_rows, self.n_features = (int(n) for n in block.shape)
        if n_rows != self.n_samples:
            raise bad(file, "X", f"has {n_rows} rows, but attribute 'n_samples' says {self.n_samples}")
        if self.n_features < 1:
            raise bad(file, "X", "has no columns")
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
            block = block_of(file)
            same = isinstance(block, CsrParts) == (self.kind == "csr")
            if not same or tuple(block.shape) != (self._rows_of_file, self.n_features):
                raise bad(file, "X", "changed since the file was opened")
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
            if at := first_not_finite(out[first : first + step]):
                value, row = out[first + at[0], at[1]], start + first + at[0] + 1
                raise not_finite(value, shown(self.path), "X", row, at[1], self._name_of)
        return out

    def _csr_rows(self, parts: CsrParts, indptr: np.ndarray, start: int) -> csr_array:
        first, last = int(indptr[0]), int(indptr[-1])
        data = read_block(parts.data, first, last)
        indices = read_block(parts.indices, first, last)
        local = indptr - first
        check_rows(data, indices, local, self.n_features, shown(self.path), start, self._name_of)
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
            d = self.n_features
            names = plain_dataset(require_group(file, "var"), "names")
            if names.shape != (d,):
                raise bad(file, "var/names", f"shape {names.shape} for {d} columns")
            self.transform = Transform.from_group(require_group(file, "transform"))
            if (own := self.transform.n_features) not in {None, d}:
                raise bad(file, "transform", f"fitted on {own} columns, but 'X' has {d}")
            if self.kind == "csr" and self.transform.center is not None:
                raise bad(file, "transform/center", "not allowed for a sparse block")
            self.encoder = Encoder.from_group(require_group(file, "encoder")) if "encoder" in file else None
            if self.encoder is not None and (made := len(self.encoder.feature_names)) != d:
                raise bad(file, "encoder", f"makes {made} features, but 'X' has {d} columns")
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
            digest.update(block)

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
            if key.lower() in _LABEL_KEYS:
                raise bad(group, key, "labels, weights and offsets belong in labels.h5 alone; remove it")
            if key not in allowed:
                raise bad(group, key, "unknown in a party's file; remove it or upgrade fastadmm")


def block_of(file: h5py.File) -> h5py.Dataset | CsrParts:
    """The datasets of the block of a file, dense or CSR, checked."""
    import h5py

    with h5_errors(file.filename, "X"):
        is_group = file.get("X", getclass=True) is h5py.Group
    block = CsrParts(file, "X") if is_group else array_dataset(file, "X", ndim=2, kind="f")
    values = block.data if isinstance(block, CsrParts) else block
    if values.dtype.newbyteorder("=") not in (np.float64, np.float32):
        key = values.name.strip("/")
        raise bad(file, key, f"has dtype {values.dtype}, but float64 or float32 is needed")
    return block


def open_party(path: str | os.PathLike[str]) -> PartyData:
    """Open a party's file: checks its structure and its row digest, does not load the block."""
    return PartyData(path)

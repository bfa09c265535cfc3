"""One party's file: a feature block, its names, its row ids and its transform. Never labels."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from copy import copy
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from scipy.sparse import csr_array, issparse

from fastadmm.errors import FormatError, InputError
from fastadmm.files.atomic import shown, storage_errors
from fastadmm.files.digest import ContentDigest
from fastadmm.store import elements as h5
from fastadmm.store.block_file import (
    BlockFile,
    StoredBlock,
    Writer,
    check_party_name,
    first_not_finite,
    not_finite,
)
from fastadmm.store.encoder import Encoder
from fastadmm.store.h5file import compression_options, filters_of, h5_errors, read_h5
from fastadmm.store.transform import Transform

__all__ = ["PartyData", "PartyWriter", "check_party_name", "open_party"]

PARTY_TYPE = "fastadmm-party"
#: 1.1: with an encoder, which a reader of 1.0 would refuse; files without one are still written as 1.0.
PARTY_VERSIONS = ("1.0", "1.1")

_LABEL_KEYS = frozenset({"y", "label", "labels", "target", "sample_weight", "offset"})
_ROOT_KEYS = {"": {"X", "obs", "var", "transform", "encoder"}, "obs": {"ids"}, "var": {"names"}}


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
        if n_features is not None and n_features < 1:
            raise InputError(f"{self._shown}: {n_features} columns; a party needs at least one")
        self._names = None if feature_names is None else list(feature_names)
        seen: dict[str, int] = {}
        for i, text in enumerate(self._names or (), start=1):
            h5.check_text(text, f"{self._shown}: key 'var/names': column {i}")
            if (first := seen.setdefault(text, i)) != i:
                raise self._bad("var/names", f"columns {first} and {i} are both named {text!r}; rename one")
        self._transform, self._encoder = transform or Transform(), encoder
        self.content_digest = ""
        self._create(PARTY_TYPE, PARTY_VERSIONS[encoder is not None], force=force, name=self.name)
        self._digest = ContentDigest(kind, self.dtype.name)
        self._compression = compression

    def append(self, X: Any, ids: Any = None) -> None:
        """Add rows, already transformed. Shapes: X (k, d); ids (k,)."""
        self._require_open()
        X = csr_array(X) if issparse(X) else np.asarray(X)
        row = f"row {self.n_samples + 1}"
        if X.ndim != 2 or X.dtype.kind not in "biuf":
            raise self._bad("X", f"{row}: rows must be a real matrix, not {X.ndim}-dimensional {X.dtype}")
        if self.n_features is None:
            self.n_features = int(X.shape[1])
        if X.shape[1] < 1:
            raise InputError(f"{self._shown}: 0 columns; a party needs at least one")
        if X.shape[1] != self.n_features:
            raise self._bad("X", f"{row}: {X.shape[1]} columns instead of {self.n_features}")
        prepared = self._ids.prepare(ids, X.shape[0])
        if self.kind == "dense":
            X = np.ascontiguousarray(X.toarray() if issparse(X) else X)
        elif not issparse(X):
            X = csr_array(X)
        elif not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        with np.errstate(over="ignore", invalid="ignore"):  # reported with its place
            block = X.astype(self.dtype, copy=False)
        if at := first_not_finite(block):
            i, j = self.n_samples + at[0], at[1]
            if np.isfinite(value := X[at]):
                fault = f"row {i + 1}, column {j + 1}: value {value} does not fit {self.dtype}"
                raise self._bad("X", fault)
            name = self._names[j] if self._names is not None and j < len(self._names) else None
            raise not_finite(value, f"{self._shown}: key 'X'", i, j, name)
        self._grow_block(block, self._compression)
        self._digest.update(block)
        self._ids.append(prepared)
        self.n_samples += X.shape[0]
        self._sink.check()

    def _finish(self) -> None:
        d = self.n_features
        if not self.n_samples or not d:
            raise self._bad("X", "no rows were written; the source is empty")
        names = self._names if self._names is not None else [f"f{i + 1}" for i in range(d)]
        if len(names) != d:
            raise self._bad("var/names", f"{len(names)} names for {d} columns")
        if self._transform.n_features not in {None, d}:
            raise self._bad("transform", f"fitted on {self._transform.n_features} columns, not {d}")
        self._close_arrays(d)
        self.row_digest = self._ids.close()
        self.content_digest = self._digest.text(names)
        h5.encode(self._file.create_group("var"), "dict")
        h5.write_strings(self._file["var"], "names", names)
        self._transform.to_group(self._file.create_group("transform"))
        if self._encoder is not None:
            self._encoder.to_group(self._file.create_group("encoder"))
        digests = {"row-digest": self.row_digest, "content-digest": self.content_digest}
        self._file.attrs.update({"n_samples": np.int64(self.n_samples), **digests})


#: Chunk cache of the slow way: a tile rarely ends where a chunk does.
_CACHE_BYTES = 16 * 2**20


class RowReader:
    """Open datasets of one HDF5 file, read by ranges of rows at the speed of the disk or page cache.

    HDF5 copies every value through its own chunk cache, checksums it again, and holds one lock for the whole
    process. If a chunk on disk has the same layout as in memory (no filter, or only a checksum, which follows
    the values), its place in the file is looked up once, and ``preadv`` then copies straight into the buffer,
    without any lock. Mapping the file would save that copy, but the mapping counts as memory of the process,
    gives unaligned addresses, and lets a file that shrinks kill the process: see ``docs/streaming.md``.
    """

    def __init__(self, path: str | os.PathLike[str], keys: tuple[str, ...]) -> None:
        self.path = Path(path)
        with read_h5(path, PARTY_TYPE, PARTY_VERSIONS) as file:
            self._places = {key: _places(file[key]) for key in keys}
            self.dtypes = {key: file[key].dtype.newbyteorder("=") for key in keys}
            self.row_items = {key: int(np.prod(file[key].shape[1:], dtype=np.int64)) for key in keys}
        self.direct = hasattr(os, "preadv") and all(place is not None for place in self._places.values())
        with ExitStack() as stack:
            with storage_errors(path, "read"):
                self.descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
            stack.callback(os.close, self.descriptor)
            self._identity = self._state()
            if not self.direct:
                cached = read_h5(path, PARTY_TYPE, PARTY_VERSIONS, cache_bytes=_CACHE_BYTES)
                self._file = stack.enter_context(cached)
            self._stack = stack.pop_all()

    def _state(self) -> tuple[int, int]:
        status = os.fstat(self.descriptor)
        return status.st_size, status.st_mtime_ns

    def check_unchanged(self) -> None:
        """Raise :class:`InputError` if the file was written to since it was opened."""
        with storage_errors(self.path, "read"):
            state = self._state()
        if state != self._identity:
            raise InputError(f"{shown(self.path)}: changed while it was in use; restore it and resume")

    def _spans(self, key: str, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Where in the file the rows ``start:stop`` lie, chunk by chunk, and their bytes; only if direct."""
        places = self._places[key]
        assert places is not None  # that is what direct says
        offsets, chunk_rows = places
        row_bytes = self.dtypes[key].itemsize * self.row_items[key]
        while start < stop:
            chunk, inside = divmod(start, chunk_rows)
            until = min(stop, (chunk + 1) * chunk_rows)
            yield int(offsets[chunk]) + inside * row_bytes, (until - start) * row_bytes
            start = until

    def read_into(self, key: str, start: int, stop: int, out: np.ndarray) -> None:
        """Read the rows ``start:stop`` of a dataset."""
        if start == stop:
            return
        if not self.direct:
            with h5_errors(self.path, key):
                dataset = self._file[key]
                dataset.read_direct(out.reshape(stop - start, *dataset.shape[1:]), np.s_[start:stop])
            return
        view, done = out.data.cast("B"), 0
        with storage_errors(self.path, "read"):
            for place, length in self._spans(key, start, stop):
                self._read(key, view[done : done + length], place)
                done += length

    def advise(self, key: str, start: int, stop: int) -> None:
        """Tell the system which rows will be read next, so that it fetches them."""
        if self.direct and hasattr(os, "posix_fadvise"):
            for place, length in self._spans(key, start, stop):
                with suppress(OSError):  # advice only
                    os.posix_fadvise(self.descriptor, place, length, os.POSIX_FADV_WILLNEED)

    def _read(self, key: str, view: memoryview, place: int) -> None:
        done = 0
        while done < len(view):
            count = os.preadv(self.descriptor, [view[done:]], place + done)
            if count == 0:
                raise FormatError(
                    f"{shown(self.path)}: key {key!r}: the file ends at byte {place + done}: truncated while "
                    "it was in use; restore it and resume"
                )
            done += count

    def close(self) -> None:
        """Close the file."""
        self._stack.close()


def _places(dataset: h5py.Dataset) -> tuple[np.ndarray, int] | None:
    """Where in the file each chunk of whole rows begins, and its rows; None if not stored as it is."""
    if dataset.dtype.newbyteorder("=") != dataset.dtype:
        return None
    if dataset.chunks is None:
        offset = dataset.id.get_offset()
        return None if offset is None else (np.array([offset], dtype=np.int64), max(1, dataset.shape[0]))
    filters = set(filters_of(dataset))  # a checksum leaves the values as they are in front of it
    if filters - {h5py.h5z.FILTER_FLETCHER32} or dataset.chunks[1:] != dataset.shape[1:]:
        return None
    rows = int(dataset.chunks[0])
    offsets = np.full(-(-dataset.shape[0] // rows), -1, dtype=np.int64)

    def note(chunk: object) -> None:
        offsets[chunk.chunk_offset[0] // rows] = chunk.byte_offset  # type: ignore[attr-defined]

    dataset.id.chunk_iter(note)
    return (offsets, rows) if (offsets >= 0).all() else None


class PartyData(BlockFile):
    """A party's file, checked but not loaded. Made by :func:`open_party`."""

    _encoding = PARTY_TYPE, PARTY_VERSIONS

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        with self._open() as file:
            _refuse_keys(file)
            self._read_header(file)
            d = self.n_features
            names = h5.plain_dataset(h5.require_group(file, "var"), "names")
            if names.shape != (d,):
                raise h5.bad(file, "var/names", f"shape {names.shape} for {d} columns")
            self.transform = Transform.from_group(h5.require_group(file, "transform"))
            self.encoder = Encoder.of_file(file)
            if (own := self.transform.n_features) not in {None, d}:
                raise h5.bad(file, "transform", f"fitted on {own} columns, but 'X' has {d}")
            if self.kind == "csr" and self.transform.center is not None:
                raise h5.bad(file, "transform/center", "not allowed for a sparse block")
            if self.encoder is not None and (made := len(self.encoder.feature_names)) != d:
                raise h5.bad(file, "encoder", f"makes {made} features, but 'X' has {d} columns")
            self.row_digest = h5.verified_digest(file, self.n_samples)

    def of_rows(self, start: int, stop: int) -> PartyData:
        """Some rows of the file as if it held no others."""
        own = copy(self)
        own.first_row, own.n_samples = self.first_row + start, stop - start
        if self.nnz is not None:
            with self._open() as file:
                ends = StoredBlock(file).indptr
                first, last = (
                    int(h5.read_block(ends, self.first_row + k, self.first_row + k + 1)[0])
                    for k in (start, stop)
                )
            own.nnz = max(0, last - first)
        return own

    @property
    def steps(self) -> list[Any]:
        """Every step from the party's table to its columns that the file tells of, in order."""
        return [step for step in (self.encoder, self.transform) if step is not None]

    def needs_transform(
        self, names: list[str], transform: Transform, of: str, remedy: str, *, scaled: bool = False
    ) -> bool:
        """Whether rows have yet to be scaled as those of a party are, whose columns they must have.

        Where they must be `scaled` already, others are refused.
        """
        place, count = shown(self.path), len(self.feature_names)
        if count != len(names):
            raise InputError(f"{place}: {count} features, but {of} has {len(names)}; {remedy}")
        for k, (own, known) in enumerate(zip(self.feature_names, names), start=1):
            if own != known:
                raise InputError(f"{place}: feature {k} is {own!r}, but {of} has {known!r} there; {remedy}")
        if self.transform.digest() == transform.digest():
            return False
        if scaled or not self.transform.is_identity:
            raise InputError(f"{place}: features are scaled otherwise than {of}'s of training; {remedy}")
        return True

    def ids(self) -> np.ndarray:
        """Return the row ids, shape (N,): int64, or object holding str."""
        with self._open() as file:
            return h5.read_ids(file, self.n_samples)

    def load(self) -> np.ndarray | csr_array:
        """Read and validate the whole block. Shapes: the result (N, d)."""
        ((_, block),) = self.iter_rows(self.n_samples)
        return block

    def row_pointers(self) -> np.ndarray:
        """Read and check where in the file each row of a CSR block begins: int64, shape (N + 1,)."""
        with self._open() as file:
            return StoredBlock(file).row_pointers(self.first_row, self.first_row + self.n_samples)

    def verify(self) -> None:
        """Read everything and compare it with the content digest."""
        digest = ContentDigest(self.kind, self.dtype.name)
        for _, block in self.iter_rows():
            digest.update(block)
        if digest.text(self.feature_names) != self.content_digest:
            raise FormatError(
                f"{shown(self.path)}: attribute 'content-digest' does not agree with keys 'X' and "
                "'var/names'; damaged or edited"
            )


def _refuse_keys(file: h5py.File) -> None:
    # A party's file is handed to that party: anything that could be a label is refused, known or not.
    for parent, allowed in _ROOT_KEYS.items():
        group = file if not parent else h5.require_group(file, parent)
        for key in group:
            if key.lower() in _LABEL_KEYS:
                raise h5.bad(group, key, "labels, weights and offsets belong in labels.h5 alone; remove it")
            if key not in allowed:
                raise h5.bad(group, key, "unknown in a party's file; remove it or upgrade fastadmm")


def open_party(path: str | os.PathLike[str]) -> PartyData:
    """Open a party's file: checks its structure and its row digest, does not load the block."""
    return PartyData(path)

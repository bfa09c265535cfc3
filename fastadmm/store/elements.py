"""anndata's on-disk elements in HDF5: ``array``, ``csr_matrix`` and ``string-array``, checked when read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import h5py
import numpy as np

from fastadmm.engine.spilled import let_go
from fastadmm.errors import FormatError, InputError
from fastadmm.files.atomic import shown
from fastadmm.files.digest import row_digest
from fastadmm.store.h5file import (
    check_heaps,
    check_version,
    compression_options,
    h5_errors,
    refuse_oversized,
    require_filters,
)

#: Target size of a chunk; the format allows whole row ranges of 1 to 8 MB.
CHUNK_BYTES = 2 << 20

#: Newest element versions that this release writes, and all that it reads.
ELEMENT_VERSIONS: dict[str, tuple[str, ...]] = {
    "array": ("0.2.0",),
    "csr_matrix": ("0.1.0",),
    "string-array": ("0.2.0",),
    "dict": ("0.1.0",),
}

_Scalar = TypeVar("_Scalar", str, int, float)
_TEXT_AT_ONCE = 64 << 20  # bytes


def key_of(group: h5py.Group, name: str) -> str:
    """Return the path of `name` inside the file, without a leading slash."""
    return f"{group.name}/{name}".strip("/") or "/"


def bad(group: h5py.Group, name: str, problem: str) -> FormatError:
    """The error for what is wrong with `name` in a group of a file."""
    return FormatError(f"{shown(group.file.filename)}: key {key_of(group, name)!r}: {problem}")


def encode(item: h5py.Group | h5py.Dataset, encoding_type: str, version: str | None = None) -> None:
    """Set the two encoding attributes of an element."""
    item.attrs["encoding-type"] = encoding_type
    item.attrs["encoding-version"] = version or ELEMENT_VERSIONS[encoding_type][-1]


# --- writing ---------------------------------------------------------------------------------------------


class GrowingArray:
    """An element written in pieces of any size and stored in whole, checksummed chunks."""

    def __init__(
        self,
        group: h5py.Group,
        name: str,
        dtype: Any,
        row_shape: tuple[int, ...] = (),
        *,
        compression: str = "none",
        encoding: str = "array",
    ) -> None:
        self._group, self._name, self._encoding = group, name, encoding
        self.dtype, self._row_shape = np.dtype(dtype), tuple(row_shape)
        # HDF5 allows neither checksum nor filter on variable-length text; a digest guards it.
        plain = encoding == "string-array"
        self._options = {} if plain else {"fletcher32": True, **compression_options(compression)}
        row_bytes = self.dtype.itemsize * int(np.prod(self._row_shape, dtype=np.int64))
        self._chunk_rows = max(1, CHUNK_BYTES // max(1, row_bytes))
        self._buffer: np.ndarray | None = None
        self._filled = 0
        self._dataset: h5py.Dataset | None = None

    def append(self, rows: np.ndarray) -> None:
        """Add rows, shape ``(k, *row_shape)``."""
        while len(rows):
            some = rows[: self._chunk_rows - self._filled]
            rows = rows[len(some) :]
            if len(some) == self._chunk_rows:  # a whole chunk: no copy
                self._write(some, self._chunk_rows)
                continue
            if self._buffer is None:
                # object: variable-length strings; np.empty of numbers touches no memory until used.
                self._buffer = np.empty((self._chunk_rows, *self._row_shape), dtype=self.dtype)
            self._buffer[self._filled : self._filled + len(some)] = some
            self._filled += len(some)
            if self._filled == self._chunk_rows:
                self._write(self._buffer, self._chunk_rows)
                self._filled = 0

    def _write(self, rows: np.ndarray, chunk_rows: int) -> None:
        if self._dataset is None:
            self._dataset = self._group.create_dataset(
                self._name,
                shape=(0, *self._row_shape),
                maxshape=(None, *self._row_shape),
                chunks=(chunk_rows, *self._row_shape),
                dtype=self.dtype,
                **self._options,
            )
        start = self._dataset.shape[0]
        self._dataset.resize(start + len(rows), axis=0)
        self._dataset[start:] = rows
        let_go(rows)

    def close(self) -> None:
        """Write the rest; a chunk of small data has their exact size."""
        rest = np.empty((0, *self._row_shape), self.dtype) if self._buffer is None else self._buffer
        if self._filled or self._dataset is None:
            self._write(rest[: self._filled], max(1, self._filled))
        encode(self._dataset, self._encoding)
        self._buffer, self._filled = None, 0


def write_array(group: h5py.Group, name: str, array: np.ndarray) -> None:
    """Write a numeric array as anndata's ``array`` 0.2.0. Shapes: array (n,) or (n, d)."""
    array = np.asarray(array)
    if array.dtype.kind not in "biuf" or array.ndim not in {1, 2}:
        raise InputError(f"{key_of(group, name)}: cannot store {array.ndim}-dimensional {array.dtype}")
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    if array.size == 0:  # nothing to chunk
        encode(group.create_dataset(name, data=array), "array")
        return
    growing = GrowingArray(group, name, array.dtype, array.shape[1:])
    growing.append(array)
    growing.close()


def write_strings(group: h5py.Group, name: str, strings: Iterable[str]) -> None:
    """Write strings, shape (n,), as anndata's ``string-array`` 0.2.0 (variable-length UTF-8).

    HDF5 allows no checksum on these; where they matter a digest covers them.
    """
    values = np.asarray(list(strings), dtype=object)
    for i, text in enumerate(values):
        check_text(text, f"{key_of(group, name)}: string {i + 1}")
    encode(group.create_dataset(name, data=values, dtype=h5py.string_dtype("utf-8")), "string-array")


def check_text(text: object, place: str) -> None:
    """Refuse what HDF5 cannot store as text: other types, NUL characters, lone surrogates."""
    if not isinstance(text, str):
        raise InputError(f"{place}: {type(text).__name__} {text!r} is not a string")
    if "\0" in text:
        raise InputError(f"{place}: {text!r} holds a NUL character; remove it")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise InputError(f"{place}: {text!r} is not valid Unicode; repair the encoding") from None


# --- reading ---------------------------------------------------------------------------------------------


def _member(group: h5py.Group, name: str) -> Any:
    with h5_errors(group.file.filename, key_of(group, name)):
        link = group.get(name, getlink=True)
    if link is None:
        raise bad(group, name, "is missing; the file is incomplete, convert it again")
    # A link could make one party's file read any other file of this machine.
    if not isinstance(link, h5py.HardLink):
        raise bad(group, name, "is a link to another place; a file must hold its data itself")
    with h5_errors(group.file.filename, key_of(group, name)):
        return group[name]


def require_group(group: h5py.Group, name: str) -> h5py.Group:
    """Return the subgroup `name`; :class:`FormatError` if it is absent or no group."""
    item = _member(group, name)
    if not isinstance(item, h5py.Group):
        raise bad(group, name, "is a dataset, not a group")
    return item


def plain_dataset(group: h5py.Group, name: str) -> h5py.Dataset:
    """Return the dataset `name` after checking that the file itself holds all of it."""
    item = _member(group, name)
    if not isinstance(item, h5py.Dataset):
        raise bad(group, name, "is a group, not a dataset")
    with h5_errors(group.file.filename, key_of(group, name)):
        if item.is_virtual or item.external:
            raise bad(group, name, "keeps its data in another file; a file must hold its data itself")
        if item.shape is None:
            raise bad(group, name, "is empty")
        require_filters(item)
        # Missing chunks would silently read as zeros.
        if item.chunks is not None:
            expected = int(np.prod([-(-n // c) for n, c in zip(item.shape, item.chunks)], dtype=object))
            present = item.id.get_num_chunks() if item.size else 0
            if item.size and present < expected:
                raise bad(group, name, f"{expected - present} of {expected} chunks are missing; truncated")
        elif item.size and item.id.get_storage_size() < item.size * item.dtype.itemsize:
            raise bad(group, name, "its values were never written; truncated")
    return item


def bad_attribute(item: h5py.Group | h5py.Dataset, name: str, problem: str) -> FormatError:
    """The error for what is wrong with an attribute."""
    return FormatError(
        f"{shown(item.file.filename)}: attribute {name!r} of {item.name.strip('/') or '/'!r}: {problem}"
    )


def read_attribute(item: h5py.Group | h5py.Dataset, name: str, kind: type[_Scalar]) -> _Scalar:
    """Read a scalar attribute of a group or dataset."""
    found = read_optional(item, name, kind)
    if found is None:
        raise bad_attribute(item, name, "is missing; the file is incomplete, convert it again")
    return found


def read_optional(item: h5py.Group | h5py.Dataset, name: str, kind: type[_Scalar]) -> _Scalar | None:
    """As :func:`read_attribute`; None where there is none."""
    with h5_errors(item.file.filename, item.name):
        value: Any = item.attrs.get(name)
    if value is None:
        return None
    accepted: tuple[type, ...] = (str,) if kind is str else (int, np.integer)
    if kind is float:
        accepted += (float, np.floating)
    if not isinstance(value, accepted) or isinstance(value, (bool, np.bool_)):
        raise bad_attribute(item, name, f"is {type(value).__name__}, not {kind.__name__}")
    checked: Any = value  # isinstance above narrowed it to a union that the conversions do not take
    return kind(checked)


def read_positive(item: h5py.Group | h5py.Dataset, name: str) -> int:
    """A number of rows or columns among the attributes."""
    value = read_attribute(item, name, int)
    if value < 1:
        raise bad_attribute(item, name, f"is {value}, not positive")
    return value


def check_encoding(
    item: h5py.Group | h5py.Dataset, expected: str, versions: tuple[str, ...] | None = None
) -> str:
    """Check how an element is encoded; its version, one of those of anndata unless others are given."""
    key = item.name.strip("/")
    found = read_attribute(item, "encoding-type", str)
    if found != expected:
        raise bad(item.file, key, f"is encoded as {found!r}, but {expected!r} is needed")
    version = read_attribute(item, "encoding-version", str)
    known = ELEMENT_VERSIONS[expected] if versions is None else versions
    check_version(item.file.filename, version, known, f"key {key!r} ({expected})")
    return version


def array_dataset(
    group: h5py.Group,
    name: str,
    *,
    ndim: int | None = None,
    length: int | None = None,
    kind: str | None = None,
    encoded: bool = True,
) -> h5py.Dataset:
    """Return a checked numeric dataset without reading its values.

    `encoded` false accepts a dataset without encoding attributes (the parts of a CSR matrix).
    """
    item = plain_dataset(group, name)
    if encoded:
        check_encoding(item, "array")
    kinds = kind or "biuf"
    if item.dtype.kind not in kinds or item.dtype.itemsize > 8:
        wanted = " or ".join({"b": "boolean", "i": "integer", "u": "unsigned", "f": "real"}[k] for k in kinds)
        raise bad(group, name, f"has dtype {item.dtype}, but {wanted} is needed")
    if ndim is not None and item.ndim != ndim:
        raise bad(group, name, f"has {item.ndim} dimensions instead of {ndim}")
    if length is not None and item.shape[:1] != (length,):
        raise bad(group, name, f"has {item.shape[0] if item.shape else 0} entries instead of {length}")
    return item


def read_block(dataset: h5py.Dataset, start: int, stop: int) -> np.ndarray:
    """Read the rows ``start:stop``, C-contiguous and in native byte order."""
    dtype = dataset.dtype.newbyteorder("=")
    if dtype.kind in "fiu" and dtype.metadata is None:
        dtype = np.dtype(dtype.type)  # not only equal to NumPy's own, which copies what is not
    out = np.empty((stop - start, *dataset.shape[1:]), dtype=dtype)
    if out.size:
        with h5_errors(dataset.file.filename, dataset.name.strip("/")):
            dataset.read_direct(out, np.s_[start:stop])
    return out


def read_array(group: h5py.Group, name: str, *, compressed: bool = False, **wanted: Any) -> np.ndarray:
    """Read an ``array`` element, as :func:`array_dataset` takes it. Shapes: the result (n,) or (n, d)."""
    item = array_dataset(group, name, **wanted)
    if not compressed:
        refuse_oversized(item)
    return read_block(item, 0, item.shape[0]) if item.ndim else np.asarray(item[()])


def read_strings(group: h5py.Group, name: str) -> list[str]:
    """Read a ``string-array`` element as a list of str."""
    item = plain_dataset(group, name)
    check_encoding(item, "string-array")
    if h5py.check_string_dtype(item.dtype) is None or item.ndim != 1:
        raise bad(group, name, f"has dtype {item.dtype} and {item.ndim} dimensions, not a list of strings")
    refuse_oversized(item)
    size = group.file.id.get_filesize()
    # So many that even the longest text of the file, at every place, does not fill the memory; what is being
    # written holds texts of ours.
    longest = check_heaps(group.file.filename, group.file) if group.file.mode == "r" else 1
    step = max(1, _TEXT_AT_ONCE // max(1, longest))
    strings: list[str] = []
    length = 0
    for start in range(0, item.shape[0], step):
        with h5_errors(group.file.filename, key_of(group, name)):
            raw: Sequence[Any] = item[start : start + step]
        for value in raw:
            text = value if isinstance(value, bytes) else str(value).encode()
            length += len(text)
            if length > size:
                problem = f"claims more than {size} bytes of text in a file of {size}"
                raise bad(group, name, f"{problem}; damaged, or made to fill the memory")
            try:
                strings.append(text.decode("utf-8"))
            except UnicodeDecodeError:
                raise bad(group, name, f"entry {len(strings) + 1} is not valid UTF-8; damaged") from None
    return strings


def read_ids(file: h5py.File, n_samples: int) -> np.ndarray:
    """Read the row ids: int64, or object (str), shape (n_samples,)."""
    group = require_group(file, "obs")
    place = f"{shown(file.filename)}: key 'obs/ids'"
    encoding = read_attribute(plain_dataset(group, "ids"), "encoding-type", str)
    if encoding == "string-array":
        ids = np.array(read_strings(group, "ids"), dtype=object)
        if len(ids) != n_samples:
            raise FormatError(f"{place}: has {len(ids)} entries instead of {n_samples}")
        return ids
    return read_array(group, "ids", ndim=1, length=n_samples, kind="iu", compressed=True).astype(
        np.int64, copy=False
    )


def verified_digest(file: h5py.File, n_samples: int) -> str:
    """Recompute the row digest from the ids and compare it with the attribute."""
    digest = row_digest(read_ids(file, n_samples))
    if digest != read_attribute(file, "row-digest", str):
        raise FormatError(
            f"{shown(file.filename)}: attribute 'row-digest' does not agree with key 'obs/ids'; "
            "the rows were damaged or edited, convert the file again"
        )
    return digest

"""Open HDF5 files so that every failure is one line: which file, which key, what to do."""

from __future__ import annotations

import io
import math
import os
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import h5py

from fastadmm.errors import ConfigError, FastadmmError, FormatError, StorageError
from fastadmm.files.atomic import atomic_file, shown, storage_error, storage_errors
from fastadmm.files.reading import TRANSIENT, require_regular


@contextmanager
def h5_errors(path: str | os.PathLike[str], key: str = "/") -> Iterator[None]:
    """Turn what h5py raises while reading `key` into a :class:`FormatError` of one line."""
    try:
        yield
    except FastadmmError:
        raise
    except MemoryError as error:
        raise StorageError(f"{shown(path)}: key {key!r}: not enough memory to read it") from error
    except (OSError, KeyError, RuntimeError, ValueError, TypeError, AttributeError, OverflowError) as error:
        text = " ".join(str(error).split())
        # HDF5 hands on the system's error in its text only.
        told = re.search(r"errno = (\d+)", text)
        code = int(told[1]) if told else getattr(error, "errno", None)
        if code in TRANSIENT:
            raise storage_error(path, OSError(code, os.strerror(code)), "read") from error
        # "filter returned failure" is how HDF5 reports fletcher32 (and gzip) on reading.
        if any(word in text.lower() for word in ("fletcher32", "checksum", "filter returned failure")):
            reason = "checksum mismatch, the file is damaged; restore or convert it again"
        else:
            # HDF5's own words end with internals in brackets: keep what precedes them.
            reason = (
                f"damaged or truncated ({re.sub(r' ?[(].*', '', text)[:120]}); restore or convert it again"
            )
        raise FormatError(f"{shown(path)}: key {key!r}: {reason}") from error


def check_version(path: str | os.PathLike[str], found: str, known: tuple[str, ...], what: str) -> None:
    """Refuse an unknown format version."""
    if found not in known:
        reads = f"but this fastadmm reads {', '.join(known)}; upgrade fastadmm"
        raise FormatError(f"{shown(path)}: {what}: version {found}, {reads}")


# Texts of variable length lie in *global heaps* (``GCOL`` blocks), which HDF5 neither checksums nor
# validates: a damaged size there makes it loop for ever. So the blocks are walked before it reads any text.
# They lie outside the stored arrays: only what remains without those is read. As any number of places may
# hold the same text, the longest says how much memory a small file can make its reader need.
_DEPTH = 8
_HEADER = struct.Struct("<4sB3xQ")  # signature, version, size of the block
#: Bytes of an attribute's texts that are harmless, whatever the size of the file.
_HARMLESS = 64 << 20
_OBJECT = struct.Struct("<HH4xQ")  # index, references, size of the object


#: Length of the longest text of each file, which is checked once.
_CHECKED: dict[tuple[str, int, int, int], int] = {}


def check_heaps(path: str | os.PathLike[str], file: h5py.File) -> int:
    """Refuse an HDF5 file with an inconsistent global heap. Returns: the length of its longest text."""
    status = os.stat(path)
    state = os.fspath(path), status.st_ino, status.st_size, status.st_mtime_ns
    if state not in _CHECKED:
        _CHECKED[state] = _longest_text(os.fspath(path), status.st_size, file)
    return _CHECKED[state]


def _longest_text(path: str, size: int, file: h5py.File) -> int:
    ranges: list[tuple[int, int]] = []  # offset and length of all stored array data
    texts: dict[str, int] = {}  # the most texts in an attribute, by key

    waiting: list[tuple[str, Any]] = [("", file)]
    while waiting:
        key, item = waiting.pop()
        with h5_errors(path, key or "/"):
            for name in item.attrs:
                attribute = item.attrs.get_id(name)
                if attribute.shape and attribute.dtype.kind == "O":
                    texts[key or "/"] = max(texts.get(key or "/", 0), math.prod(attribute.shape))
            if isinstance(item, h5py.Dataset) and item.size and item.chunks is not None:
                item.id.chunk_iter(lambda chunk: ranges.append((chunk.byte_offset, chunk.size)))
            elif isinstance(item, h5py.Dataset) and item.size and item.id.get_offset() is not None:
                ranges.append((item.id.get_offset(), item.id.get_storage_size()))
        for name in item if isinstance(item, h5py.Group) else ():
            inner = f"{key}/{name}".strip("/")
            with h5_errors(path, inner):
                # Links elsewhere are refused by the readers; a group inside itself must not be followed.
                if isinstance(item.get(name, getlink=True), h5py.HardLink) and inner.count("/") <= _DEPTH:
                    waiting.append((inner, item[name]))
    longest = end = 0
    with open(path, "rb") as raw:
        for start, length in [*sorted(ranges), (size, 0)]:
            if start > end:
                raw.seek(end)
                longest = max(longest, _check_gap(path, raw.read(start - end), end, size))
            end = max(end, start + length)
    for key, count in texts.items():
        if count * longest > max(size, _HARMLESS):
            raise FormatError(
                f"{shown(path)}: key {key!r}: an attribute claims {count} texts of up to {longest} bytes "
                f"in a file of {size}; damaged, or made to fill the memory"
            )
    return longest


def _check_gap(path: str, raw: bytes, base: int, file_size: int) -> int:
    """Check the blocks of a part of the file; return the length of the longest text."""
    at, longest = raw.find(b"GCOL"), 0
    while at >= 0:
        found = _check_block(raw, at)
        if found is None:
            raise FormatError(
                f"{shown(path)}: key '/': text heap at byte {base + at} of {file_size} is damaged; "
                "restore or convert it again"
            )
        length, text = found
        at, longest = raw.find(b"GCOL", at + length), max(longest, text)
    return longest


def _check_block(raw: bytes, at: int) -> tuple[int, int] | None:
    """Lengths of the heap block at `at` and of its longest text, or None where it does not add up."""
    if at + _HEADER.size > len(raw):
        return None
    _, version, length = _HEADER.unpack_from(raw, at)
    if version != 1 or length < _HEADER.size or at + length > len(raw):
        return None
    position, longest = _HEADER.size, 0
    while position + _OBJECT.size <= length:
        index, _, size = _OBJECT.unpack_from(raw, at + position)
        if index == 0:  # free space: its size counts its own header and reaches the end
            return (length, longest) if size == length - position else None
        if size > length:
            return None
        longest = max(longest, size)
        position += _OBJECT.size + -(-size // 8) * 8
    return (length, longest) if position <= length else None


_Method = TypeVar("_Method", bound=Callable[..., Any])


def _called_by_hdf5(method: _Method) -> _Method:
    """Let no Ctrl-C pass through the C library, which cannot: it is kept until :meth:`FileSink.check`."""

    @wraps(method)
    def call(self: FileSink, *arguments: Any) -> Any:
        try:
            return method(self, *arguments)
        except KeyboardInterrupt as stop:
            self._error = self._error or stop
            return method(self, *arguments)  # every one of them may be done twice

    return cast(_Method, call)


class FileSink(io.RawIOBase):
    """A file object for HDF5 that remembers the first write error and from then on keeps data in memory.

    The HDF5 library cannot close a file whose writes fail: it keeps the file open, and the
    process crashes at exit when it tries again. So HDF5 never sees the error; the
    caller asks :meth:`check` and removes the file. When HDF5 reads back parts of its own structures, it
    gets them as it wrote them; anything else would crash it.
    """

    def __init__(self, path: Path, public_path: str | os.PathLike[str]) -> None:
        self._file = open(path, "w+b", buffering=0)  # noqa: SIM115 (closed by close())
        self._public_path = public_path
        self._error: OSError | KeyboardInterrupt | None = None
        self._at = 0
        self._unwritten: list[tuple[int, bytes]] = []

    def check(self) -> None:
        """Raise :class:`StorageError` if a write has failed, or the interrupt that came meanwhile."""
        if isinstance(self._error, OSError):
            raise storage_error(self._public_path, self._error) from self._error
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Close the file, without raising: a late error is reported by :meth:`check`."""
        self._unwritten.clear()
        try:
            self._file.close()
        except OSError as error:
            self._error = self._error or error

    # What h5py calls.
    @_called_by_hdf5
    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move the position."""
        begin = self._at if whence == os.SEEK_CUR else self._end() if whence == os.SEEK_END else 0
        self._at = begin + offset
        return self._at

    def _end(self) -> int:
        ends = [start + len(data) for start, data in self._unwritten]
        return max([self._file.seek(0, os.SEEK_END), *ends])

    @_called_by_hdf5
    def readinto(self, buffer: Any) -> int:
        """Read what was written at the position, zeros where nothing was."""
        view = memoryview(buffer).cast("B")
        self._file.seek(self._at)
        done = 0
        while done < len(view) and (count := self._file.readinto(view[done:])):
            done += count
        view[done:] = bytes(len(view) - done)
        for start, data in self._unwritten:
            begin, end = max(start, self._at), min(start + len(data), self._at + len(view))
            if begin < end:
                view[begin - self._at : end - self._at] = data[begin - start : end - start]
        return len(view)

    @_called_by_hdf5
    def write(self, data: Any) -> int:
        """Write all of `data` at the position, or note the error and keep it in memory."""
        view = memoryview(data).cast("B")
        done = 0
        try:
            self._file.seek(self._at)
            while self._error is None and done < len(view):
                done += self._file.write(view[done:])
        except OSError as error:
            self._error = error
        if done < len(view):
            self._unwritten.append((self._at + done, bytes(view[done:])))
        return len(view)

    @_called_by_hdf5
    def truncate(self, size: int | None = None) -> int:
        """Set the length of the file, or note the error and pretend."""
        size = self._at if size is None else size
        if self._error is None:
            try:
                self._file.truncate(size)
            except OSError as error:
                self._error = error
        return size


@contextmanager
def open_output(
    path: str | os.PathLike[str],
    encoding_type: str,
    version: str = "1.0",
    *,
    force: bool = True,
    public_path: str | os.PathLike[str] | None = None,
) -> Iterator[tuple[h5py.File, FileSink]]:
    """Like :func:`create_h5`, also yielding the sink, whose ``check()`` tells early that the disk is full.

    `public_path` is the path that messages name, where `path` itself lies in a temporary directory.
    """
    public_path = path if public_path is None else public_path
    with storage_errors(public_path), atomic_file(path, force=force) as temporary:
        sink = FileSink(temporary, public_path)
        try:
            # v110 adds checksums to HDF5's own metadata; every HDF5 since 1.10 (2016) reads it.
            with h5py.File(sink, "w", libver=("v110", "v110")) as file:
                file.attrs["encoding-type"] = encoding_type
                file.attrs["encoding-version"] = version
                yield file, sink
        except BaseException:
            sink.check()  # a full disk explains every later error
            raise
        finally:
            sink.close()
        sink.check()


@contextmanager
def create_h5(
    path: str | os.PathLike[str], encoding_type: str, version: str = "1.0", *, force: bool = True
) -> Iterator[h5py.File]:
    """Create an HDF5 file atomically, with the root attributes of our files."""
    with open_output(path, encoding_type, version, force=force) as (file, _sink):
        yield file


@contextmanager
def read_h5(
    path: str | os.PathLike[str],
    encoding_type: str | None = None,
    versions: tuple[str, ...] = ("1.0",),
    cache_bytes: int | None = None,
) -> Iterator[h5py.File]:
    """Open one of our HDF5 files for reading."""
    size = require_regular(path)
    with storage_errors(path, "read"), open(path, "rb") as raw:
        signature = raw.read(8)
    if signature != b"\x89HDF\r\n\x1a\n":
        what = "is empty" if size == 0 else "is not an HDF5 file"
        raise FormatError(f"{shown(path)}: key '/': the file {what}; make it with 'fastadmm convert'")
    with ExitStack() as stack:
        stack.enter_context(h5_errors(path))
        # best-effort: network file systems and read-only media without locks are fine for reading.
        file = stack.enter_context(
            h5py.File(os.fspath(path), "r", locking="best-effort", rdcc_nbytes=cache_bytes)
        )
        check_heaps(path, file)
        if encoding_type is not None:
            found = _root_attribute(path, file, "encoding-type")
            if found != encoding_type:
                raise FormatError(
                    f"{shown(path)}: attribute 'encoding-type' of '/': a {found!r} file, but "
                    f"{encoding_type!r} is needed here"
                )
            version = _root_attribute(path, file, "encoding-version")
            check_version(path, version, versions, "attribute 'encoding-version' of '/'")
        yield file


def _root_attribute(path: str | os.PathLike[str], file: h5py.File, name: str) -> str:
    value = file.attrs.get(name)
    if not isinstance(value, str):
        raise FormatError(
            f"{shown(path)}: attribute {name!r} of '/' is missing or not text; not a fastadmm file"
        )
    return value


# --- compression: smaller files, useful if the disk is slower than decompression --------------------------
# gzip is part of HDF5; Zstandard and Blosc2 come with the package ``hdf5plugin``, for writing as for reading.

#: What blocks may be stored with.
COMPRESSIONS = ("none", "gzip", "zstd", "blosc2")

_NAMES = {32015: "Zstandard", 32026: "Blosc2", 32001: "Blosc", 32004: "LZ4", 32008: "Bitshuffle"}
_INSTALL = "install it with: pip install 'fastadmm[compression]'"


def compression_options(name: str) -> dict[str, Any]:
    """Arguments of h5py's ``create_dataset`` for a compression."""
    if name not in COMPRESSIONS:
        raise ConfigError(f"compression: unknown choice {name!r}; choose {', '.join(COMPRESSIONS)}")
    if name == "none":
        return {}
    if name == "gzip":
        return {"compression": "gzip", "compression_opts": 4, "shuffle": True}
    try:
        import hdf5plugin
    except ImportError:
        raise ConfigError(f"compression: {name!r} needs the package hdf5plugin; {_INSTALL}") from None
    if name == "zstd":
        return {**hdf5plugin.Zstd(clevel=3), "shuffle": True}
    return dict(hdf5plugin.Blosc2(cname="zstd", clevel=3, filters=hdf5plugin.Blosc2.SHUFFLE))


def filters_of(dataset: h5py.Dataset) -> list[int]:
    """Numbers of the filters that a dataset's chunks went through."""
    properties = dataset.id.get_create_plist()
    return [properties.get_filter(k)[0] for k in range(properties.get_nfilters())]


def _place(dataset: h5py.Dataset) -> str:
    return f"{shown(dataset.file.filename)}: key {dataset.name.strip('/')!r}"


def require_filters(dataset: h5py.Dataset) -> None:
    """Make the filters of a dataset available, or say which package has them."""
    for number in filters_of(dataset):
        if h5py.h5z.filter_avail(number):
            continue
        with suppress(ImportError):
            import hdf5plugin  # noqa: F401 (registers its filters)
        if not h5py.h5z.filter_avail(number):
            what = f"compressed with {_NAMES.get(number, f'HDF5 filter {number}')}"
            needs = f"which needs the package hdf5plugin; {_INSTALL}"
            raise StorageError(f"{_place(dataset)}: {what}, {needs}")


def refuse_packed(dataset: h5py.Dataset) -> None:
    """Refuse a dataset that takes more memory than its file has bytes.

    Files that organisations exchange are written without compression, so that a few bytes cannot become
    gigabytes before they are checked.
    """
    again = "have it sent again"
    if set(filters_of(dataset)) - {h5py.h5z.FILTER_FLETCHER32}:
        raise FormatError(f"{_place(dataset)}: is compressed, but what is sent must not be; {again}")
    refuse_oversized(dataset, 0, again)


#: Bytes of an array that are harmless, whatever the size of the file.
_HARMLESS_ARRAY = 1 << 20


def refuse_oversized(
    dataset: h5py.Dataset,
    harmless: int = _HARMLESS_ARRAY,
    remedy: str = "damaged, or made to fill the memory",
) -> None:
    """Refuse a dataset that the format does not compress and that takes far more memory than its file."""
    size = dataset.file.id.get_filesize()
    for shape in (dataset.shape, dataset.chunks or ()):
        needed = math.prod(shape) * dataset.dtype.itemsize
        if needed > max(size, harmless):
            raise FormatError(f"{_place(dataset)}: claims {needed} bytes in a file of {size}; {remedy}")

"""Open HDF5 files so that every failure is one line: which file, which key, what to do."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from fastadmm.errors import FormatError
from fastadmm.files.atomic import atomic_file, shown, storage_error, storage_errors
from fastadmm.files.reading import require_regular
from fastadmm.store.h5errors import check_version, h5_errors
from fastadmm.store.heap_guard import check_heaps

if TYPE_CHECKING:
    import h5py

__all__ = ["FileSink", "check_version", "create_h5", "h5_errors", "open_output", "read_h5"]


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


class FileSink:
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
        """Move the position, from the beginning or the end."""
        self._at = offset + (self._end() if whence == os.SEEK_END else 0)
        return self._at

    def _end(self) -> int:
        ends = [start + len(data) for start, data in self._unwritten]
        return max([self._file.seek(0, os.SEEK_END), *ends])

    @_called_by_hdf5
    def tell(self) -> int:
        """Return the position."""
        return self._at

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

    def read(self, size: int = -1) -> bytes:
        """Read bytes; h5py knows a file object by this method."""
        found = bytearray(self._end() - self._at if size < 0 else size)
        self.readinto(found)
        return bytes(found)

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

    def flush(self) -> None:
        """Do nothing: writes are unbuffered and :func:`atomic_file` syncs at the end."""


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
    import h5py

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
    import h5py

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

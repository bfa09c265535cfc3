"""A file of records that only grows, and is put on disk before anybody relies on it."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fastadmm.errors import FormatError
from fastadmm.files.atomic import atomic_file, shown, storage_errors, synchronise

__all__ = ["Journal", "synchronise_data"]

#: Mark, checksum of what follows the prefix, size of it: number of parts, their sizes, and they themselves.
_PREFIX = struct.Struct("<4sIQ")
_MARK = b"rec1"
_SIZE = struct.Struct("<Q")


class Journal:
    """Records of some parts of bytes each.

    What a kill left of the last record was never acted upon, and goes.

    Parameters
    ----------
    path : Path
        Made if absent; its directory exists.

    Raises
    ------
    FormatError
        A record other than the last is damaged.
    StorageError
        It cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with storage_errors(path):
            is_new = not path.exists()
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
            if is_new:
                synchronise(path.parent)
            #: Where each record begins, and the end.
            self._places = [0]
            for _, end in _records(self._file, self.path):
                self._places.append(end)
            if os.fstat(self._file).st_size > self._places[-1]:
                self._cut(self._places[-1])

    def __len__(self) -> int:
        return len(self._places) - 1

    @property
    def n_bytes(self) -> int:
        """Size of all records."""
        return self._places[-1]

    def records(self) -> Iterator[list[bytes]]:
        """All records, oldest first; each is read when it is asked for."""
        with storage_errors(self.path, "read"):
            for parts, _ in _records(self._file, self.path):
                yield parts

    def append(self, parts: Sequence[bytes]) -> None:
        """Add a record; it is on disk when this returns.

        Parameters
        ----------
        parts : sequence of bytes
        """
        sizes = [len(parts), *(len(part) for part in parts)]
        content = [b"".join(_SIZE.pack(size) for size in sizes), *parts]
        checksum, n_bytes = 0, sum(len(part) for part in content)
        for part in content:
            checksum = zlib.crc32(part, checksum)
        at = self._places[-1]
        with storage_errors(self.path):
            try:
                for part in (_PREFIX.pack(_MARK, checksum, n_bytes), *content):
                    _write(self._file, part, at)
                    at += len(part)
                synchronise_data(self._file)
            except OSError:
                self._cut(self._places[-1])
                raise
        self._places.append(at)

    def drop_last(self) -> None:
        """Take the last record back."""
        self._places.pop()
        with storage_errors(self.path):
            self._cut(self._places[-1])

    def restart(self) -> None:
        """Drop all records: what they say is kept elsewhere by now."""
        self._places = [0]
        with storage_errors(self.path):
            self._cut(0)

    def rewrite(self, records: Iterable[Sequence[bytes]]) -> None:
        """Put others in place of all records; a kill leaves the ones or the others.

        Parameters
        ----------
        records : iterable of sequence of bytes
            May come from :meth:`records`.
        """
        with atomic_file(self.path) as temporary:
            other = Journal(temporary)
            try:
                for parts in records:
                    other.append(parts)
            except BaseException:
                other.close()
                raise
        os.close(self._file)
        self._file, self._places = other._file, other._places

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _cut(self, size: int) -> None:
        os.ftruncate(self._file, size)
        os.fsync(self._file)


def synchronise_data(file: int) -> None:
    """Put an open file's content on disk, and of its description what reading it needs.

    Parameters
    ----------
    file : int
        Descriptor.
    """
    getattr(os, "fdatasync", os.fsync)(file)


def _write(file: int, raw: bytes, at: int) -> None:
    view = memoryview(raw)
    os.lseek(file, at, os.SEEK_SET)
    while view:
        view = view[os.write(file, view) :]


def _records(file: int, path: Path) -> Iterator[tuple[list[bytes], int]]:
    """Whole records, and where each ends; stops before one that a kill cut."""
    size, at, number = os.fstat(file).st_size, 0, 0
    while at < size:
        number += 1
        prefix = _read(file, _PREFIX.size, at)
        begin = at + _PREFIX.size
        if len(prefix) < _PREFIX.size or not any(prefix):
            return  # cut, or a length without its content
        mark, checksum, n_bytes = _PREFIX.unpack(prefix)
        if mark != _MARK:
            raise FormatError(f"{shown(path)}: record {number} is damaged; restore the file")
        content = _read(file, n_bytes, begin) if begin + n_bytes <= size else b""
        if len(content) < n_bytes or zlib.crc32(content) != checksum:
            if begin + n_bytes >= size:
                return
            raise FormatError(f"{shown(path)}: record {number} is damaged; restore the file")
        at = begin + n_bytes
        yield _parts(content), at


def _parts(content: bytes) -> list[bytes]:
    n_parts = _SIZE.unpack_from(content)[0]
    at, parts = (1 + n_parts) * _SIZE.size, []
    for k in range(1, 1 + n_parts):
        n_bytes = _SIZE.unpack_from(content, k * _SIZE.size)[0]
        parts.append(content[at : at + n_bytes])
        at += n_bytes
    return parts


def _read(file: int, n_bytes: int, at: int) -> bytes:
    os.lseek(file, at, os.SEEK_SET)
    parts = []
    while n_bytes and (part := os.read(file, n_bytes)):
        parts.append(part)
        n_bytes -= len(part)
    return b"".join(parts)

"""A file of records that only grows, and is put on disk before anybody relies on it.

It begins with a mark, a number drawn at random and their checksum; each record's checksum begins with that
number. A record ends with a mark and the file's number too, which are written last: a record without its end
was cut by a kill and never acted upon, and a record with its end that does not verify is damaged. Room for
the next records is written ahead: putting a record on disk then changes neither the file's
size nor its blocks, which file systems keep a log of, and which takes longer than the record itself.
"""

import mmap
import os
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, pairwise
from pathlib import Path

from fastadmm.errors import FormatError
from fastadmm.files.atomic import atomic_file, shown, storage_errors, synchronise, write_all

#: Mark, the file's number, and the checksum of both. Older files have another mark, or no head and the
#: number 0, and records without an end.
_HEAD = struct.Struct("<4sII")
_HEAD_MARK, _OLD_MARK = b"jrn3", b"jrn2"

#: Mark and number at the end of a record.
_END = struct.Struct("<4sI")
_END_MARK = b"end1"

#: Mark, checksum of what follows the prefix, size of it: number of parts, their sizes, and they themselves.
_PREFIX = struct.Struct("<4sIQ")
_MARK = b"rec1"
_SIZE = struct.Struct("<Q")

#: Bytes that a disk keeps or loses together.
_PAGE = 4096

#: Room written ahead: for so many records of the last one's size, and at least and at most so many bytes.
_RECORDS, _LEAST, _MOST = 8, 1 << 16, 1 << 26


class Journal:
    """Records of some parts of bytes each.

    What a kill left of the last record was never acted upon, and goes: no whole record comes after it. A
    damaged record is refused.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with storage_errors(path):
            is_new = not path.exists()
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
            if is_new:
                synchronise(path.parent)
            try:
                #: Where the first record begins, what checksums begin with, and what ends a record.
                self._begin, self._number, self._end = _head(self._file, path)
                #: Where each record begins, and the end.
                self._places = [self._begin]
                while (record := self._record(self._places[-1])) is not None:
                    self._places.append(record[1])
                if self._ended_after(self._places[-1]):
                    raise self._damaged(len(self._places), self._places[-1])
            except BaseException:
                os.close(self._file)
                raise
            #: Bytes of the file, with the room for more records.
            self._size = os.fstat(self._file).st_size
            if not self._end:  # a file of an older release
                self.rewrite(list(self.records()))
            elif not self._begin:
                self._mark()
            else:
                if len(self):
                    # A kill may have come just before.
                    _write(self._file, self._end, self._places[-1] - _END.size)
                self._cut(self._places[-1])

    def __len__(self) -> int:
        return len(self._places) - 1

    @property
    def n_bytes(self) -> int:
        """Size of all records."""
        return self._places[-1] - self._begin

    def records(self) -> Iterator[list[bytes]]:
        """All records, oldest first; each is read when it is asked for."""
        with storage_errors(self.path, "read"):
            for number, at in enumerate(self._places[:-1], start=1):
                if (record := self._record(at)) is None:
                    raise self._damaged(number, at)
                yield record[0]

    def append(self, parts: Sequence[bytes]) -> None:
        """Add a record; it is on disk when this returns."""
        sizes = [len(parts), *(len(part) for part in parts)]
        content = [b"".join(_SIZE.pack(size) for size in sizes), *parts]
        checksum, n_bytes = self._number, sum(len(part) for part in content)
        for part in content:
            checksum = zlib.crc32(part, checksum)
        begin = at = self._places[-1]
        end = begin + _PREFIX.size + n_bytes + _END.size
        with storage_errors(self.path):
            try:
                if end > self._size:
                    self._size = self._room(end)
                for part in (_PREFIX.pack(_MARK, checksum, n_bytes), *content):
                    _write(self._file, part, at)
                    at += len(part)
                # A power cut may keep some pages and lose others: the end is true of all of them. Where it is
                # lost alone, the record verifies without it.
                is_long = (end - 1) // _PAGE > begin // _PAGE
                if is_long:
                    synchronise_data(self._file)
                _write(self._file, self._end, at)
                if not is_long:
                    synchronise_data(self._file)
            except OSError:
                self._cut(begin)
                raise
        self._places.append(end)

    def drop_last(self) -> None:
        """Take the last record back."""
        self._places.pop()
        with storage_errors(self.path):
            self._cut(self._places[-1])

    def restart(self) -> None:
        """Drop all records: what they say is kept elsewhere by now; a kill leaves all of them or none."""
        self.rewrite(())

    def _mark(self) -> None:
        """Begin the file."""
        self._begin, self._number = _HEAD.size, int.from_bytes(os.urandom(4))
        self._end, self._places = _END.pack(_END_MARK, self._number), [self._begin]
        with storage_errors(self.path):
            _write(self._file, _head_bytes(_HEAD_MARK, self._number), 0)
            self._size = max(self._size, self._begin)
            synchronise_data(self._file)

    def rewrite(self, records: Iterable[Sequence[bytes]]) -> None:
        """Put others in place of all records; a kill leaves the ones or the others."""
        with atomic_file(self.path) as temporary:
            other = Journal(temporary)
            try:
                for parts in records:
                    other.append(parts)
                other._cut(other._places[-1])
            except BaseException:
                other.close()
                raise
        os.close(self._file)
        self.__dict__ |= vars(other) | {"path": self.path}

    def close(self) -> None:
        """Close the file, without the room for more records."""
        if self._size > self._places[-1]:
            with suppress(OSError):  # it is room all the same
                os.ftruncate(self._file, self._places[-1])
        os.close(self._file)

    def _room(self, at: int) -> int:
        """Write room for more records after a place, as far as there is any; where it ends."""
        size = min(max(_RECORDS * (at - self._places[-1]), _LEAST), _MOST)
        with suppress(OSError):  # a record needs it not
            _write(self._file, bytes(size), at)
        return os.fstat(self._file).st_size

    def _cut(self, size: int) -> None:
        os.ftruncate(self._file, size)
        os.fsync(self._file)
        self._size = size

    def _damaged(self, number: int, at: int) -> FormatError:
        return FormatError(
            f"{shown(self.path)}: record {number}, at byte {at:,}, is damaged; restore the file"
        )

    def _record(self, at: int) -> tuple[list[bytes], int] | None:
        """The whole record at a place, and where it ends."""
        prefix = _read(self._file, _PREFIX.size, at)
        if len(prefix) < _PREFIX.size:
            return None
        mark, checksum, n_bytes = _PREFIX.unpack(prefix)
        end = at + _PREFIX.size + n_bytes
        if mark != _MARK or end > os.fstat(self._file).st_size:
            return None
        content = _read(self._file, n_bytes, at + _PREFIX.size)
        if zlib.crc32(content, self._number) != checksum:
            return None
        # What verifies is whole, even where a kill came before its end was written.
        return _parts(content), end + len(self._end)

    def _ended_after(self, at: int) -> bool:
        """Whether a record ends after a place: then what stands there was one that was written to its end."""
        if os.fstat(self._file).st_size <= at:
            return False
        with mmap.mmap(self._file, 0, access=mmap.ACCESS_READ) as content:
            if self._end:
                return content.find(self._end, at) >= 0
            while (at := content.find(_MARK, at + 1)) >= 0:
                if self._record(at) is not None:
                    return True
        return False


def synchronise_data(file: int) -> None:
    """Put an open file's content on disk, and of its description what reading it needs."""
    getattr(os, "fdatasync", os.fsync)(file)


def _write(file: int, raw: bytes, at: int) -> None:
    os.lseek(file, at, os.SEEK_SET)
    write_all(file, raw)


def _head(file: int, path: Path) -> tuple[int, int, bytes]:
    """Where the first record begins, the file's number, and what ends a record; zeros without a head."""
    raw = _read(file, _HEAD.size, 0)
    if len(raw) == _HEAD.size:
        mark, number, _ = _HEAD.unpack(raw)
        if mark in (_HEAD_MARK, _OLD_MARK) and raw == _head_bytes(mark, number):
            return _HEAD.size, number, _END.pack(_END_MARK, number) if mark == _HEAD_MARK else b""
    if raw[:4] == _MARK:
        return 0, 0, b""
    if os.fstat(file).st_size > _HEAD.size:
        raise FormatError(f"{shown(path)}: its beginning, at byte 0, is damaged; restore the file")
    return 0, 0, _END.pack(_END_MARK, 0)


def _head_bytes(mark: bytes, number: int) -> bytes:
    head = _HEAD.pack(mark, number, 0)[:-4]
    return head + zlib.crc32(head).to_bytes(4, "little")


def _parts(content: bytes) -> list[bytes]:
    (n_parts,) = _SIZE.unpack_from(content)
    begin = (1 + n_parts) * _SIZE.size
    ends = list(accumulate(struct.unpack_from(f"<{n_parts}Q", content, _SIZE.size), initial=begin))
    return [content[a:b] for a, b in pairwise(ends)]


def _read(file: int, n_bytes: int, at: int) -> bytes:
    os.lseek(file, at, os.SEEK_SET)
    parts = []
    while n_bytes and (part := os.read(file, n_bytes)):
        parts.append(part)
        n_bytes -= len(part)
    return b"".join(parts)

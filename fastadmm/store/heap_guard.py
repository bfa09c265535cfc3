"""Checks the one part of an HDF5 file that HDF5 neither checksums nor validates.

Text of variable length lies in *global heaps* (``GCOL`` blocks). A damaged object size
there makes the HDF5 library loop for ever, so the blocks are walked once, before the
library reads any text. They lie outside the stored arrays: only what remains of the
file when those are subtracted is read, which is small.
"""

from __future__ import annotations

import os
import struct
from functools import lru_cache
from typing import TYPE_CHECKING

from fastadmm.errors import FormatError
from fastadmm.files.atomic import shown
from fastadmm.store.h5errors import h5_errors

if TYPE_CHECKING:
    import h5py

__all__ = ["check_heaps"]

_HEADER = struct.Struct("<4sB3xQ")  # signature, version, size of the block
_DEPTH = 8
_OBJECT = struct.Struct("<HH4xQ")  # index, references, size of the object


def check_heaps(path: str | os.PathLike[str], file: h5py.File) -> None:
    """Refuse an HDF5 file with an inconsistent global heap.

    Parameters
    ----------
    path : path
        The file.
    file : h5py.File
        The same, open for reading; no attribute and no text is read from it.

    Raises
    ------
    FormatError
        A block does not add up.
    """
    status = os.stat(path)
    _check_once(os.fspath(path), status.st_ino, status.st_size, status.st_mtime_ns, _Opened(file))


class _Opened:
    """Hides the open file from the cache: equal to every other, because the path and times decide."""

    def __init__(self, file: h5py.File) -> None:
        self.file = file

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Opened)

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=256)
def _check_once(path: str, inode: int, size: int, mtime: int, opened: _Opened) -> None:
    ranges = _stored_ranges(opened.file)
    opened.file = None  # the cache must not keep the file open
    with open(path, "rb") as raw:
        end = 0
        for start, length in [*sorted(ranges), (size, 0)]:
            if start > end:
                raw.seek(end)
                _check_gap(path, raw.read(start - end), end, size)
            end = max(end, start + length)


def _stored_ranges(file: h5py.File) -> list[tuple[int, int]]:
    """Return (offset, length) of all stored array data."""

    ranges: list[tuple[int, int]] = []
    _visit(file, ranges, 0)
    return ranges


def _visit(group: h5py.Group, ranges: list[tuple[int, int]], depth: int) -> None:
    import h5py

    for name in group:
        key = f"{group.name}/{name}".strip("/")
        with h5_errors(group.file.filename, key):
            # Links elsewhere are refused by the readers; a group inside itself must not be followed.
            if not isinstance(group.get(name, getlink=True), h5py.HardLink) or depth > _DEPTH:
                continue
            item = group[name]
            if isinstance(item, h5py.Group):
                _visit(item, ranges, depth + 1)
            elif not isinstance(item, h5py.Dataset) or not item.size:
                continue
            elif item.chunks is not None:
                item.id.chunk_iter(lambda chunk: ranges.append((chunk.byte_offset, chunk.size)))
            elif item.id.get_offset() is not None:
                ranges.append((item.id.get_offset(), item.id.get_storage_size()))


def _check_gap(path: str, raw: bytes, base: int, file_size: int) -> None:
    at = raw.find(b"GCOL")
    while at >= 0:
        length = _check_block(raw, at)
        if length is None:
            raise FormatError(
                f"{shown(path)}: key '/': text heap at byte {base + at} of {file_size} is damaged; "
                "restore or convert it again"
            )
        at = raw.find(b"GCOL", at + length)


def _check_block(raw: bytes, at: int) -> int | None:
    """Return the length of the heap block at `at`, or None where it does not add up."""
    if at + _HEADER.size > len(raw):
        return None
    _, version, length = _HEADER.unpack_from(raw, at)
    if version != 1 or length < _HEADER.size or at + length > len(raw):
        return None
    position = _HEADER.size
    while position + _OBJECT.size <= length:
        index, _, size = _OBJECT.unpack_from(raw, at + position)
        if index == 0:  # free space: its size counts its own header and reaches the end
            return length if size == length - position else None
        if size > length:
            return None
        position += _OBJECT.size + -(-size // 8) * 8
    return length if position <= length else None

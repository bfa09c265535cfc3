"""Checks the one part of an HDF5 file that HDF5 neither checksums nor validates: its texts.

Text of variable length lies in *global heaps* (``GCOL`` blocks). A damaged object size
there makes the HDF5 library loop for ever, so the blocks are walked once, before the
library reads any text. They lie outside the stored arrays: only what remains of the
file when those are subtracted is read, which is small.

Any number of places may hold the same text. So a small file can make its reader need any amount of memory;
how much at most, the longest text says.
"""

from __future__ import annotations

import math
import os
import struct
from functools import lru_cache
from typing import TYPE_CHECKING

from fastadmm.errors import FormatError
from fastadmm.files.atomic import shown
from fastadmm.store.h5errors import h5_errors

if TYPE_CHECKING:
    import h5py

_HEADER = struct.Struct("<4sB3xQ")  # signature, version, size of the block
_DEPTH = 8
#: Bytes of an attribute's texts that are harmless, whatever the size of the file.
_HARMLESS = 64 << 20
_OBJECT = struct.Struct("<HH4xQ")  # index, references, size of the object


def check_heaps(path: str | os.PathLike[str], file: h5py.File) -> int:
    """Refuse an HDF5 file with an inconsistent global heap."""
    status = os.stat(path)
    return _check_once(os.fspath(path), status.st_ino, status.st_size, status.st_mtime_ns, _Opened(file))


class _Opened:
    """Hides the open file from the cache: equal to every other, because the path and times decide."""

    def __init__(self, file: h5py.File) -> None:
        self.file = file

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Opened)

    def __hash__(self) -> int:
        return 0


@lru_cache(maxsize=256)
def _check_once(path: str, inode: int, size: int, mtime: int, opened: _Opened) -> int:
    ranges: list[tuple[int, int]] = []
    texts: dict[str, int] = {}
    _visit(opened.file, ranges, texts, 0)
    opened.file = None  # the cache must not keep the file open
    longest = 0
    with open(path, "rb") as raw:
        end = 0
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


def _visit(group: h5py.Group, ranges: list[tuple[int, int]], texts: dict[str, int], depth: int) -> None:
    """Collect (offset, length) of all stored array data, and the most texts in an attribute by key."""
    import h5py

    _count_texts(group, texts)
    for name in group:
        key = f"{group.name}/{name}".strip("/")
        with h5_errors(group.file.filename, key):
            # Links elsewhere are refused by the readers; a group inside itself must not be followed.
            if not isinstance(group.get(name, getlink=True), h5py.HardLink) or depth > _DEPTH:
                continue
            item = group[name]
            if isinstance(item, h5py.Group):
                _visit(item, ranges, texts, depth + 1)
                continue
            _count_texts(item, texts)
            if not isinstance(item, h5py.Dataset) or not item.size:
                continue
            if item.chunks is not None:
                item.id.chunk_iter(lambda chunk: ranges.append((chunk.byte_offset, chunk.size)))
            elif item.id.get_offset() is not None:
                ranges.append((item.id.get_offset(), item.id.get_storage_size()))


def _count_texts(item: h5py.Group | h5py.Dataset, texts: dict[str, int]) -> None:
    for name in item.attrs:
        attribute = item.attrs.get_id(name)
        if attribute.shape and attribute.dtype.kind == "O":
            key = item.name.strip("/") or "/"
            texts[key] = max(texts.get(key, 0), math.prod(attribute.shape))


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

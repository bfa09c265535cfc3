"""Reads ranges of rows of a stored dataset into given buffers, at the speed of the disk or page cache.

HDF5 copies every value through its own chunk cache, checksums it again, and holds one lock for the whole
process. If a chunk on disk has the same layout as in memory (no filter, or only a checksum, which follows
the values), its place in the file is looked up once, and ``preadv`` then copies straight into the buffer,
without any lock. Mapping the file would save that copy, but the mapping counts as memory of the process,
gives unaligned addresses, and lets a file that shrinks kill the process: see ``docs/streaming.md``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import h5py
import numpy as np

from fastadmm.errors import FormatError, InputError
from fastadmm.files.atomic import shown, storage_errors
from fastadmm.store.h5file import filters_of, h5_errors, read_h5

#: Chunk cache of the slow way: a tile rarely ends where a chunk does.
_CACHE_BYTES = 16 * 2**20


class RowReader:
    """Open datasets of one HDF5 file, read by ranges of rows."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        keys: tuple[str, ...],
        encoding_type: str,
        versions: tuple[str, ...],
    ) -> None:
        self.path = Path(path)
        with read_h5(path, encoding_type, versions) as file:
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
                cached = read_h5(path, encoding_type, versions, cache_bytes=_CACHE_BYTES)
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

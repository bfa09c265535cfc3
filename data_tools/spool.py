"""Parsed rows between the two passes of a conversion: text is parsed once, whatever its size."""

from __future__ import annotations

import errno
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from fastadmm.data_tools.blocks import Block
from fastadmm.errors import StorageError
from fastadmm.files.atomic import storage_errors
from fastadmm.store.elements import make_csr

#: Numbers that are looked at before all of them are.
_LOOK = 1000


@dataclass(frozen=True)
class Held:
    """A block that was kept: how many rows, and what gives it, in any thread."""

    n_rows: int
    get: Callable[[], Block]

    @classmethod
    def of(cls, block: Block) -> Held:
        """A block in memory."""
        return cls(len(block.labels), lambda: block)


class Spool:
    """A file without a name, which is gone when nobody needs it; any thread may write to it."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = folder
        self._lock, self._end = threading.Lock(), 0
        with storage_errors(folder, "write"):
            self._file = tempfile.TemporaryFile(dir=folder, prefix=".fastadmm-", buffering=0)  # noqa: SIM115 - closed by the finalizer
        weakref.finalize(self, self._file.close)

    def put(self, block: Block) -> Held | None:
        """Write a block; None if the disk is full, so that the source has to be read again."""
        X = block.X
        whole: Any = (X,) if isinstance(X, np.ndarray) else (X.data, X.indices, X.indptr)
        places = []
        try:
            with storage_errors(self.folder, "write"), self._lock:
                for given in whole:
                    array = _narrowed(np.ascontiguousarray(given))
                    places.append((self._end, array.shape, array.dtype, given.dtype))
                    view = array.data.cast("B") if array.size else memoryview(b"")
                    self._file.seek(self._end)
                    while len(view):
                        done = self._file.write(view)
                        view, self._end = view[done:], self._end + done
        except StorageError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                return None
            raise
        labels, shape = block.labels, X.shape

        def get() -> Block:
            with storage_errors(self.folder, "read"), self._lock:
                arrays = [self._read(*place) for place in places]
            own = arrays[0] if len(arrays) == 1 else make_csr(arrays[0], arrays[1], arrays[2], shape)
            return Block(own, labels)

        return Held(len(labels), get)

    def _read(self, place: int, shape: tuple[int, ...], stored: np.dtype, dtype: np.dtype) -> np.ndarray:
        array = np.empty(shape, dtype=stored)
        view = array.data.cast("B") if array.size else memoryview(b"")
        self._file.seek(place)
        while len(view):
            view = view[self._file.readinto(view) :]
        return array.astype(dtype, copy=False)


def _narrowed(array: np.ndarray) -> np.ndarray:
    """An array's numbers, to the last bit, in fewer bytes where there is such a type."""
    if array.size == 0:
        return array
    if array.dtype.kind in "iu":
        return array.astype(np.min_scalar_type(array.max()), copy=False) if array.min() >= 0 else array
    for kind in (np.int8, np.int16, np.float32):
        for some in (array.reshape(-1)[:_LOOK], array):  # a few tell nearly always
            with np.errstate(invalid="ignore", over="ignore"):
                narrow = some.astype(kind)
            if not np.array_equal(narrow.astype(array.dtype).view(np.int64), some.view(np.int64)):
                break
        else:
            return narrow
    return array


class Kept:
    """Parsed blocks of a source: in memory while they are few, then in a spool, where a folder has one."""

    def __init__(self, folder: str | Path | None, most: int) -> None:
        self._folder, self._left = folder, most
        self._spool: Spool | None = None
        #: Blocks in memory; None once they are in the spool.
        self.in_memory: list[Block] | None = []
        self._spooled: list[Held] | None = []

    def put(self, block: Block) -> None:
        """Keep a block."""
        X = block.X
        arrays = (X,) if isinstance(X, np.ndarray) else (X.data, X.indices, X.indptr)
        self._left -= sum(array.nbytes for array in arrays)
        blocks = [block]
        if self.in_memory is not None:
            self.in_memory.append(block)
            if self._left >= 0:
                return
            blocks, self.in_memory = self.in_memory, None
            if self._folder is not None:
                self._spool = Spool(self._folder)
        for one in blocks:
            written = self._spool.put(one) if self._spool is not None and self._spooled is not None else None
            if written is None or self._spooled is None:
                self._spooled = None
                return
            self._spooled.append(written)

    def blocks(self) -> Iterator[Held] | None:
        """All blocks in turn; None if they were not kept."""
        if self.in_memory is not None:
            return map(Held.of, self.in_memory)
        return None if self._spooled is None else iter(self._spooled)

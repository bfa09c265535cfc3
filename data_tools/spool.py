"""Parsed rows between the two passes of a conversion: text is parsed once, whatever its size."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from fastadmm.data_tools.blocks import Block
from fastadmm.data_tools.columns import Growing, Scratch
from fastadmm.errors import StorageError
from fastadmm.store.elements import make_csr


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
    """Sparse blocks in files without a name, which are gone when nobody needs them."""

    def __init__(self, folder: str | Path) -> None:
        scratch = Scratch(folder, 0)
        self._arrays = [Growing(scratch, kind) for kind in (np.float64, np.int32, np.int32)]

    def put(self, block: Block) -> Held | None:
        """Write a block; None if the disk is full, so that the source has to be read again."""
        X, spans = block.X, []
        assert not isinstance(X, np.ndarray)  # dense sources are read quickly
        try:
            for array, values in zip(self._arrays, (X.data, X.indices, X.indptr)):
                spans.append(slice(array.size, array.size + len(values)))
                array.append(values)
        except StorageError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                return None
            raise
        labels, shape = block.labels, X.shape

        def get() -> Block:
            own = [array.array()[span] for array, span in zip(self._arrays, spans)]
            return Block(make_csr(own[0], own[1], own[2], shape), labels)

        return Held(len(labels), get)


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

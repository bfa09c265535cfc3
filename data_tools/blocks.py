"""What every reader yields: row blocks, in the order of the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

import numpy as np
from scipy import sparse

#: Called with the number of bytes of the source consumed since the last call (compressed bytes, as on disk).
OnRead = Callable[[int], None]


@dataclass(frozen=True)
class Block:
    """Consecutive rows of a source."""

    X: np.ndarray | sparse.csr_array  # ``(k, d)`` float64, finite; CSR with sorted, distinct column indices
    labels: np.ndarray  # ``(k,)`` float64, or object (strings, stripped) where the source keeps text labels


class Source(Protocol):
    """A data file that can be streamed any number of times."""

    path: str  # for messages
    kind: str  # what the blocks hold
    feature_names: list[str] | None  # none where the format has no names (LIBSVM, NPZ)

    @property
    def n_features(self) -> int | None:
        """Read-only here, so that a reader may promise an int."""
        ...

    def blocks(self, on_read: OnRead | None = None) -> Iterator[Block]:
        """Stream the rows from the beginning."""
        ...


#: A sparse block with more than this fraction of non-zeros is stored dense.
DENSE_ABOVE = 0.5


def stored_kind(storage: str | None, kind: str, filled: int, cells: int) -> str:
    """How a source's values are stored: as stated, or by how many are not zero."""
    if storage in ("dense", "csr"):
        return storage
    return "dense" if kind == "dense" or filled > DENSE_ABOVE * cells else "csr"


#: ``progress(stage, done, total)``.
Progress = Callable[[str, int, int], None]


class Steps:
    """Adds up the steps of one stage, from any thread."""

    def __init__(self, progress: Progress | None, stage: str, total: int) -> None:
        self._progress, self._stage, self._total = progress, stage, total
        self._done, self._lock = 0, Lock()

    def __call__(self, step: int) -> None:
        if self._progress is not None and step:
            with self._lock:
                self._done = min(self._total, self._done + step)
                self._progress(self._stage, self._done, self._total)

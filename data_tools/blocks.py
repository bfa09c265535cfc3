"""What every reader yields: row blocks, in the order of the file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy import sparse

__all__ = ["Block", "OnRead", "Source"]

#: Called with the number of bytes of the source consumed so far (compressed bytes, as on disk).
OnRead = Callable[[int], None]


@dataclass(frozen=True)
class Block:
    """Consecutive rows of a source.

    Attributes
    ----------
    X : ndarray or scipy.sparse.csr_array
        ``(k, d)`` float64, finite; CSR with sorted, distinct column indices. A LIBSVM block whose number of
        features is not known yet has as many columns as its largest index.
    labels : ndarray
        ``(k,)`` float64, or object (strings, stripped) where the source keeps text labels.
    first_row : int
        Zero-based number of the block's first row in the source.
    """

    X: np.ndarray | sparse.csr_array
    labels: np.ndarray
    first_row: int


class Source(Protocol):
    """A data file that can be streamed any number of times.

    Attributes
    ----------
    path : str
        For messages.
    kind : {"dense", "csr"}
        What the blocks hold.
    n_features : int or None
        None where only a pass over the file can tell (LIBSVM without ``--features`` or widths).
    feature_names : list of str or None
        None where the format has no names (LIBSVM, NPZ).
    quick : bool
        Whether a second pass costs little: nothing is parsed.
    """

    path: str
    kind: str
    quick: bool
    feature_names: list[str] | None

    @property
    def n_features(self) -> int | None:
        """Read-only here, so that a reader may promise an int."""
        ...

    def blocks(self, on_read: OnRead | None = None) -> Iterator[Block]:
        """Stream the rows from the beginning."""
        ...

    def where(self, row: int) -> str:
        """Place of a zero-based row for messages, such as ``"line 12"``."""
        ...

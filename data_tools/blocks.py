"""Blocks of rows: what readers yield, what is added up over them, and how they are stored.

Statistics of columns take one pass: chunks are reduced to counts, means and sums of squared deviations, and
merged by the update of Chan, Golub and LeVeque (1983). Unlike sums of squares, this loses no accuracy where
means are large.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from fastadmm.data_tools.label_columns import LabelCollector
from fastadmm.data_tools.opening import OnRead
from fastadmm.errors import InputError
from fastadmm.store.block_file import make_csr
from scipy import sparse

if TYPE_CHECKING:
    from fastadmm.store.transform import Transform

#: Some rows: float64, finite; CSR with sorted, distinct column indices.
Rows: TypeAlias = "np.ndarray | sparse.csr_array"


@dataclass(frozen=True)
class Block:
    """Consecutive rows of a source."""

    X: Rows  # ``(k, d)``
    labels: np.ndarray  # ``(k,)`` float64, or object (strings, stripped) where the source keeps text labels


#: A sparse block with more than this fraction of non-zeros is stored dense.
DENSE_ABOVE = 0.5


def stored_kind(storage: str | None, kind: str, filled: int, cells: int) -> str:
    """How a source's values are stored: as stated, or by how many are not zero."""
    if storage in ("dense", "csr"):
        return storage
    return "dense" if kind == "dense" or filled > DENSE_ABOVE * cells else "csr"


def widened(X: Rows, width: int) -> Rows:
    """Rows with all columns: those of LIBSVM end with the last that occurs."""
    if isinstance(X, np.ndarray) or X.shape[1] >= width:
        return X
    return make_csr(X.data, X.indices, X.indptr, (X.shape[0], width))


def stored(X: Rows, kind: str, transform: Transform) -> Rows:
    """Rows as they are stored: dense or sparse, and scaled."""
    if isinstance(X, np.ndarray):
        X = X if kind == "dense" else sparse.csr_array(X)
    elif kind == "dense":
        X = X.toarray()
    with np.errstate(over="ignore", invalid="ignore"):  # who writes them names the value that does not fit
        return X if transform.is_identity else transform.apply(X)


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


class ColumnStatistics:
    """Count, mean, variance and range of every column, over blocks of rows.

    The number of columns may grow from block to block; rows seen before count as zeros there.
    """

    def __init__(self) -> None:
        self.n_rows = 0
        self.mean, self.m2, self.low, self.high = (np.zeros(0) for _ in range(4))

    @property
    def n_features(self) -> int:
        """Columns seen."""
        return len(self.mean)

    def widen(self, width: int) -> None:
        """Grow to at least ``width`` columns; new columns are zero in all rows so far."""
        more = (0, max(0, width - self.n_features))
        self.mean, self.m2, self.low, self.high = (
            np.pad(own, more) for own in (self.mean, self.m2, self.low, self.high)
        )

    @np.errstate(over="ignore", invalid="ignore")  # what is not finite is refused when it is used
    def update(self, X: Rows) -> None:
        """Merge a block of rows."""
        k = X.shape[0]
        if k == 0:
            return
        self.widen(X.shape[1])
        d = self.n_features
        if isinstance(X, np.ndarray):
            if X.shape[1] < d:
                raise ValueError("dense blocks of different widths")
            mean = X.mean(axis=0)
            m2 = np.square(X - mean).sum(axis=0)
            low, high = X.min(axis=0), X.max(axis=0)
        else:
            nonzeros = np.bincount(X.indices, minlength=d)
            mean = np.bincount(X.indices, weights=X.data, minlength=d) / k
            deviations = np.square(X.data - mean[X.indices])
            m2 = np.bincount(X.indices, weights=deviations, minlength=d) + (k - nonzeros) * mean**2
            # A column with an absent value has a zero among its values.
            low = np.where(nonzeros < k, 0.0, np.inf)
            high = np.where(nonzeros < k, 0.0, -np.inf)
            np.minimum.at(low, X.indices, X.data)
            np.maximum.at(high, X.indices, X.data)
        total, first = self.n_rows + k, self.n_rows == 0
        delta = mean - self.mean
        self.mean = self.mean + delta * (k / total)
        self.m2 = self.m2 + m2 + delta**2 * (self.n_rows * k / total)
        self.low = low if first else np.minimum(self.low, low)
        self.high = high if first else np.maximum(self.high, high)
        self.n_rows = total

    def scale(self) -> np.ndarray:
        """Population standard deviation of each column; exactly 1 where the column is constant."""
        deviation = np.sqrt(self.m2 / max(self.n_rows, 1))
        return np.where((self.low == self.high) | (deviation == 0), 1.0, deviation)

    def center(self) -> np.ndarray:
        """Mean of each column; a constant column's value itself, so that it becomes exactly zero."""
        return np.where(self.low == self.high, self.low, self.mean)


def fit_transform_of(
    part: slice | np.ndarray, kind: str, statistics: ColumnStatistics | None, normalize: str, path: str = ""
) -> Transform:
    """The transform of one party, by statistics of its columns and others; `path` is for messages."""
    from fastadmm.store.transform import Transform

    if statistics is None:
        return Transform(normalize=normalize)
    center = statistics.center()[part] if kind == "dense" else None
    try:
        return Transform(normalize=normalize, center=center, scale=statistics.scale()[part])
    except InputError as error:
        raise InputError(f"{path}: values too large to standardise: {error}") from None


class Scan:
    """What the first pass over sources finds: readers with path, kind, names of features, and blocks."""

    def __init__(
        self,
        readers: Sequence[Any],
        on_read: OnRead | None = None,
        statistics: ColumnStatistics | None = None,
        look: Callable[[Block], None] | None = None,
    ) -> None:
        self.labels = LabelCollector(readers[0].path)
        self.rows = [0] * len(readers)  # of each source
        self.n_features = 0  # as far as seen
        self.nonzeros = np.zeros(0, dtype=np.int64)  # per column; CSR sources only
        for k, reader in enumerate(readers):
            for block in reader.blocks(on_read):
                X = block.X
                self.labels.append(block.labels)
                self.rows[k] += X.shape[0]
                if isinstance(X, np.ndarray):
                    self.n_features = max(self.n_features, X.shape[1])
                else:
                    counts = np.bincount(X.indices, minlength=len(self.nonzeros))
                    self.n_features = max(self.n_features, len(counts) if X.nnz else 0)
                    counts[: len(self.nonzeros)] += self.nonzeros
                    self.nonzeros = counts
                if statistics is not None:
                    statistics.update(X)
                if look is not None:
                    look(block)
        self.n_rows = sum(self.rows)
        if self.n_features == 0:
            raise InputError(f"{readers[0].path}: no features in any row")
        self.width = max(self.n_features, *(reader.n_features or 0 for reader in readers))
        self.nonzeros = np.pad(self.nonzeros, (0, self.width - len(self.nonzeros)))
        if statistics is not None:
            statistics.widen(self.width)

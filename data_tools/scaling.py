"""Column statistics in one pass, and the transforms made of them.

Chunks are reduced to counts, means and sums of squared deviations, and merged pairwise by the update of Chan,
Golub and LeVeque (1983). Unlike sums of squares, this loses no accuracy where means are large.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

if TYPE_CHECKING:
    from fastadmm.store import Transform


class ColumnStatistics:
    """Count, mean, variance and range of every column, over blocks of rows.

    The number of columns may grow from block to block; rows seen before count as zeros there.
    """

    def __init__(self) -> None:
        self.n_rows = 0
        self.mean = np.zeros(0)
        self.m2 = np.zeros(0)
        self.low = np.zeros(0)
        self.high = np.zeros(0)

    @property
    def n_features(self) -> int:
        """Columns seen."""
        return len(self.mean)

    def widen(self, width: int) -> None:
        """Grow to at least ``width`` columns; new columns are zero in all rows so far."""
        missing = width - self.n_features
        if missing > 0:
            for name in ("mean", "m2", "low", "high"):
                setattr(self, name, np.pad(getattr(self, name), (0, missing)))

    def update(self, X: np.ndarray | sparse.csr_array) -> None:
        """Merge a block of rows."""
        k = X.shape[0]
        if k == 0:
            return
        self.widen(X.shape[1])
        d = self.n_features
        if isinstance(X, np.ndarray):
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
        if X.shape[1] < d and isinstance(X, np.ndarray):
            raise ValueError("dense blocks of different widths")
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
    columns: slice | np.ndarray, kind: str, statistics: ColumnStatistics | None, normalize: str
) -> Transform:
    """The transform of one party, by statistics of its columns and others."""
    from fastadmm.store import Transform

    if statistics is None:
        return Transform(normalize=normalize)
    center = statistics.center()[columns] if kind == "dense" else None
    return Transform(normalize=normalize, center=center, scale=statistics.scale()[columns])

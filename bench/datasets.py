"""The data sets that the timings share, cut into the parties' blocks."""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Dataset(NamedTuple):
    """Features (CSR with 32-bit indices, or dense), labels 0/1, and the columns where parties end."""

    name: str
    X: Any
    y: np.ndarray
    bounds: list[int]

    @property
    def blocks(self) -> list[Any]:
        """One matrix per party."""
        return cut(self.X, self.bounds)


def find_data(*needed: str) -> Path:
    """Directory of the public data sets; ends the program with one line where one is missing."""
    named = os.environ.get("FASTADMM_DATA")
    path = Path(named) if named else Path(__file__).resolve().parents[2] / "shared" / "data"
    missing = [name for name in needed if not (path / name).is_file()]
    if missing:
        sys.exit(f"{sys.argv[0]}: {', '.join(missing)} not found; set FASTADMM_DATA to the public data sets")
    return path


def cut(X: Any, bounds: list[int]) -> list[Any]:
    """Consecutive columns of a matrix; sparse blocks as CSR."""
    if isinstance(X, np.ndarray):
        return [np.ascontiguousarray(X[:, a:b]) for a, b in itertools.pairwise(bounds)]
    columns = X.tocsc()
    return [columns[:, a:b].tocsr() for a, b in itertools.pairwise(bounds)]


def _equal(d: int, parties: int) -> list[int]:
    return [d * k // parties for k in range(parties + 1)]


def _csr(X: Any) -> Any:
    X = X.tocsr()
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return X


def a9a(data: Path) -> Dataset:
    """Adult, one-hot, 32,561 x 123; the paper's 66 + 57 columns."""
    from sklearn.datasets import load_svmlight_file

    X, y = load_svmlight_file(str(data / "a9a.bz2"), n_features=123)
    return Dataset("a9a", _csr(X), (y > 0) * 1.0, [0, 66, 123])


def gisette_like(data: Path) -> Dataset:
    """A stand-in for gisette, 6,000 x 5,000 dense, scaled to 0 ... 1; the paper's three parties."""
    archive = np.load(data / "gisette_like.npz")
    X = archive["X_train"].astype(np.float64)
    X /= max(1.0, float(np.abs(X).max()))
    return Dataset("gisette_like", X, (archive["y_train"] > 0) * 1.0, [0, 2000, 4000, 5000])


def imdb(data: Path) -> Dataset:
    """IMDB reviews, tf-idf of word counts, 25,000 x 74,851; four parties of equal width."""
    import scipy.sparse as sp
    from sklearn.feature_extraction.text import TfidfTransformer

    archive = np.load(data / "imdb_counts_train.npz")
    shape = tuple(int(n) for n in archive["shape"])
    counts = sp.csr_matrix((archive["data"], archive["indices"], archive["indptr"]), shape=shape)
    X = TfidfTransformer(sublinear_tf=True).fit_transform(counts.astype(np.float64))
    return Dataset("IMDB tf-idf", _csr(X), (archive["y"] > 0) * 1.0, _equal(shape[1], 4))


def mnist_4v9(data: Path) -> Dataset:
    """MNIST, four against nine, 11,791 x 784 dense, scaled to 0 ... 1; four parties."""
    archive = np.load(data / "mnist_4v9.npz")
    return Dataset("MNIST 4/9", archive["X"] / 255.0, (archive["y"] > 0) * 1.0, _equal(784, 4))


def synthetic(n_samples: int = 2_000_000, n_columns: int = 200, per_row: int = 20) -> Dataset:
    """Sparse rows with normal values and a logistic model; four parties of equal width."""
    import scipy.sparse as sp

    rng = np.random.default_rng(0)
    # distinct and sorted in each row: one column from each of `per_row` equal bands
    band = n_columns // per_row
    indices = (rng.integers(0, band, (n_samples, per_row)) + band * np.arange(per_row)).astype(np.int32)
    values = rng.normal(size=(n_samples, per_row))
    indptr = np.arange(0, n_samples * per_row + 1, per_row, dtype=np.int32)
    X = sp.csr_matrix((values.ravel(), indices.ravel(), indptr), shape=(n_samples, n_columns))
    z = X @ rng.normal(size=n_columns) * 0.5
    y = (rng.random(n_samples) < 1.0 / (1.0 + np.exp(-z))) * 1.0
    return Dataset(f"synthetic {n_samples:,} x {n_columns}", X, y, _equal(n_columns, 4))

"""Blocks of rows: what readers yield, what is added up over them, how they are stored, and where they go.

Statistics of columns take one pass: chunks are reduced to counts, means and sums of squared deviations, and
merged by the update of Chan, Golub and LeVeque (1983). Unlike sums of squares, this loses no accuracy where
means are large. Where a partition goes is checked before anything is read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from operator import call
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from fastadmm.data_tools.label_columns import LabelCollector
from fastadmm.data_tools.opening import OnRead
from fastadmm.data_tools.per_table import TableOptions
from fastadmm.errors import FastadmmError, InputError, StorageError
from fastadmm.files.atomic import atomic_directory, refuse_parent, shown, storage_errors
from fastadmm.store.block_file import make_csr
from scipy import sparse

if TYPE_CHECKING:
    from fastadmm.store.label_file import LabelData
    from fastadmm.store.partition import Partition
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


# --- where a partition goes -----------------------------------------------------------------------------


#: Number of a party, number of the first row, and consecutive rows of the party's block.
Piece: TypeAlias = "tuple[int, int, Any]"


@dataclass(frozen=True)
class Plan:
    """Everything a partition needs, nothing of it written."""

    parties: Sequence[dict[str, Any]]  # what the writer of each party's file is told
    blocks: Callable[[Progress | None], Generator[list[Piece], None, None]]
    labels: LabelData | None
    task: str
    source: str  # name of the first table
    n_samples: int
    ids: np.ndarray | None = None  # of the rows, where they are stored
    digest: str = ""  # of the ids
    compression: str = "none"
    report: list[str] = field(default_factory=list)  # what a user should know: joined rows, filled cells ...
    columns: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # what they were taken for
    test: Plan | None = None  # rows that are held out


def check_out(out: str | Path, force: bool) -> None:
    """Refuse early what the store would refuse only after reading everything."""
    with storage_errors(out):
        if not force and os.path.lexists(out) and not (os.path.isdir(out) and not os.listdir(out)):
            raise StorageError(f"{shown(out)}: exists already; choose another name or pass --force")
        refuse_parent(out)


def write_planned(
    plan: Callable[[TableOptions, Path, Progress | None], Plan],
    out: str | Path,
    *,
    force: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Partition:
    """Plan a partition, and write it."""
    check_out(out, force)
    made = plan(TableOptions(**options), Path(out).absolute().parent, progress)
    return write_plan(made, out, force=force, progress=progress)


def write_plan(
    plan: Plan, out: str | Path, *, force: bool = False, progress: Progress | None = None
) -> Partition:
    """Write a planned partition; with held-out rows a directory of two, and return that of training."""
    from fastadmm.engine.engine import default_threads
    from fastadmm.store.label_file import write_columns
    from fastadmm.store.partition import create_partition, open_partition

    if plan.test is not None:
        with atomic_directory(out, force=force, only=("train.parts", "test.parts")) as folder:
            try:
                write_plan(replace(plan, test=None), folder / "train.parts", progress=progress)
                write_plan(plan.test, folder / "test.parts", progress=progress)
            except FastadmmError as error:
                error.args = (str(error).replace(shown(folder), shown(out)),)
                raise
        return open_partition(Path(out) / "train.parts", require_labels=False)
    ids, labels = plan.ids, plan.labels
    with create_partition(out, task=plan.task, source=plan.source, force=force) as partition:
        writers: list[Any] = [
            partition.party(n_features=len(p["feature_names"]), **p, compression=plan.compression)
            for p in plan.parties
        ]

        def append(piece: Piece) -> None:
            m, start, rows = piece
            writers[m].append(rows, None if ids is None else ids[start : start + rows.shape[0]])

        # Each party has a file of its own. No file is written by the main thread: an interrupt, which is
        # raised there alone, would pass through HDF5.
        threads = min(len(writers), default_threads())
        with ThreadPoolExecutor(threads) as pool, closing(plan.blocks(progress)) as blocks:
            for block in blocks:
                list(pool.map(append, block))
            if labels is not None:
                how = {"classes": labels.classes, "reading": labels.reading, "exposure": labels.exposure}
                target = partition.labels(**how)
                pool.submit(write_columns, target, labels, ids).result()
                writers.append(target)
            list(pool.map(call, [writer.close for writer in writers]))
    return open_partition(out, require_labels=False)

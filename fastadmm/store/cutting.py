"""Row shards: a partition that is written as several, each with some consecutive rows of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.cluster.engine import nodes_of
from fastadmm.engine.tree import leaves_of, node_range
from fastadmm.errors import ConfigError, InputError
from fastadmm.files.atomic import atomic_directory, shown
from fastadmm.files.digest import ContentDigest, RowDigest
from fastadmm.store.label_file import LabelWriter, write_columns
from fastadmm.store.manifest import SHARDS, Shard, shard_name, write_shards
from fastadmm.store.partition import PartitionWriter, create_partition, open_partition
from fastadmm.store.party_file import PartyWriter


def shard_rows(n_rows: int, shards: int) -> list[tuple[int, int]]:
    """Rows of each shard: those of a worker, where there are as many workers."""
    if not 1 <= shards <= n_rows:
        raise ConfigError(f"--shards {shards}: from 1 to {n_rows}, the number of rows")
    if shards <= leaves_of(n_rows):
        nodes = [nodes_of(n_rows, rank, shards) for rank in range(shards)]
        return [(node_range(n_rows, *own[0])[0], node_range(n_rows, *own[-1])[1]) for own in nodes]
    return [(n_rows * k // shards, n_rows * (k + 1) // shards) for k in range(shards)]


class _Cut:
    """One file of every shard, filled in turn."""

    def __init__(self, whole: ShardsWriter, begin: Any) -> None:
        self._whole, self._begin = whole, begin
        self._writers: list[Any] = []
        self._row = 0
        self._ids: RowDigest | None = None

    def pieces(self, n_rows: int, ids: Any) -> Iterator[tuple[Any, slice, Any]]:
        """Writer, rows and ids of each part of the next rows."""
        if ids is None:
            ids = np.arange(self._row, self._row + n_rows, dtype=np.int64)
        ids = ids if isinstance(ids, np.ndarray) else np.array(list(ids), dtype=object)
        done = 0
        while done < n_rows:
            k = len(self._writers) - 1
            if k < 0 or self._row == self._whole.rows[k][1]:
                if k >= 0:
                    self._writers[-1].close()
                k += 1
                if k == len(self._whole.rows):
                    raise InputError(
                        f"{self._whole.shown}: more rows than the {self._row} that were announced"
                    )
                self._writers.append(self._begin(self._whole.parts[k]))
            until = min(n_rows, done + self._whole.rows[k][1] - self._row)
            yield self._writers[-1], slice(done, until), ids[done:until]
            self._row += until - done
            done = until
        if n_rows:
            self._ids = self._ids or RowDigest("int64" if ids.dtype.kind in "iu" else "utf-8")
            self._ids.update(ids)

    def close(self) -> str:
        """Complete the last file; the digest of all row ids."""
        n_rows = self._whole.rows[-1][1]
        if self._row != n_rows:
            raise InputError(f"{self._whole.shown}: {self._row} rows, but {n_rows} were announced")
        if self._writers[-1].state == "open":
            self._writers[-1].close()
        assert self._ids is not None  # there is a row
        return self._ids.text()


class _CutParty(_Cut):
    def append(self, X: Any, ids: Any = None) -> None:
        for writer, rows, own in self.pieces(X.shape[0], ids):
            if writer.whole_digest is None:
                writer.whole_digest = self.digest(writer)
            writer.append(X[rows], own)

    def digest(self, writer: PartyWriter) -> ContentDigest:
        """Digest of the whole, which all shards feed."""
        if len(self._writers) == 1:
            self._content = ContentDigest(writer.kind, writer.dtype.name)
        return self._content

    def content_digest(self, names: list[str]) -> str:
        return self._content.text(names)


class _CutLabels(_Cut):
    def append(self, y: Any, *, sample_weight: Any = None, offset: Any = None, ids: Any = None) -> None:
        for writer, rows, own in self.pieces(len(y), ids):
            weight, fixed = (None if v is None else v[rows] for v in (sample_weight, offset))
            writer.append(y[rows], sample_weight=weight, offset=fixed, ids=own)


class ShardsWriter:
    """Fills the partitions of all shards; as :class:`fastadmm.store.partition.PartitionWriter`."""

    def __init__(self, parts: list[PartitionWriter], rows: list[tuple[int, int]], shown: str) -> None:
        self.parts, self.rows, self.shown = parts, rows, shown
        self._parties: list[_CutParty] = []
        self._names: list[list[str]] = []
        self._labels: _CutLabels | None = None

    def party(self, name: str, *, feature_names: Any, **described: Any) -> Any:
        """Begin the next party; see :meth:`PartitionWriter.party`."""
        names = list(feature_names)

        def begin(part: PartitionWriter) -> PartyWriter:
            return part.party(name, feature_names=names, **described)

        self._parties.append(_CutParty(self, begin))
        self._names.append(names)
        return self._parties[-1]

    def labels(self, **described: Any) -> Any:
        """Begin the labels; see :meth:`PartitionWriter.labels`."""

        def begin(part: PartitionWriter) -> LabelWriter:
            return part.labels(**described)

        self._labels = _CutLabels(self, begin)
        return self._labels

    def finish(self) -> Shard:
        """Complete all shards; what they state of the whole."""
        digests = {cut.close() for cut in (*self._parties, *([self._labels] if self._labels else []))}
        if len(digests) != 1:
            raise InputError(
                f"{self.shown}: key 'obs/ids': parties or labels with other rows; align them by id"
            )
        digest = digests.pop()
        contents = [cut.content_digest(names) for cut, names in zip(self._parties, self._names)]
        for k, (part, (first, _)) in enumerate(zip(self.parts, self.rows), start=1):
            shard = Shard(k, len(self.parts), first, self.rows[-1][1], digest, contents)
            part.finish(shard)
        return shard

    def abort(self) -> None:
        """Discard all files."""
        for part in self.parts:
            part.abort()


@contextmanager
def _create_shards(
    path: str | os.PathLike[str], shards: int, n_samples: int, task: str, source: str | None, force: bool
) -> Iterator[ShardsWriter]:
    rows = shard_rows(n_samples, shards)
    with atomic_directory(path, force=force, marker=SHARDS, only=(SHARDS, "shard-*")) as directory:
        parts = []
        for k in range(1, shards + 1):
            name = shard_name(k, shards)
            (directory / name).mkdir()
            parts.append(PartitionWriter(directory / name, Path(path) / name, task, source, shard=True))
        writer = ShardsWriter(parts, rows, shown(path))
        try:
            yield writer
            write_shards(directory, writer.finish())
            open_partition(
                directory, require_labels=False
            )  # what the whole may not be, for example one class
        except BaseException:
            writer.abort()
            raise


def new_partition(
    path: str | os.PathLike[str],
    *,
    task: str,
    n_samples: int,
    shards: int | None = None,
    source: str | os.PathLike[str] | None = None,
    force: bool = False,
) -> AbstractContextManager[Any]:
    """Build a partition, or one that is cut into shards, of which as many are open as there are parties."""
    if shards is None or shards == 1:
        return create_partition(path, task=task, source=source, force=force)
    name = None if source is None else Path(source).name
    return _create_shards(path, shards, n_samples, task, name, force)


def cut_partition(
    source: str | os.PathLike[str],
    path: str | os.PathLike[str],
    shards: int,
    *,
    compression: str = "none",
    force: bool = False,
) -> None:
    """Cut a partition, or shards, into so many shards; into one: put them together."""
    whole = open_partition(source, require_labels=False)
    with new_partition(
        path, task=whole.task, n_samples=whole.n_samples, shards=shards, source=whole.source, force=force
    ) as writer:
        for party in whole.parties:
            target = writer.party(
                party.name, n_features=party.n_features, kind=party.kind, dtype=party.dtype.name,
                feature_names=party.feature_names, transform=party.transform, encoder=party.encoder,
                compression=compression,
            )  # fmt: skip
            ids = party.ids()
            for start, block in party.iter_rows():
                target.append(block, ids[start : start + block.shape[0]])
        if (known := whole.labels) is not None:
            labels = writer.labels(classes=known.classes, reading=known.reading, exposure=known.exposure)
            write_columns(labels, known.y, known.sample_weight, known.offset, known.ids())

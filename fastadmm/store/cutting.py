"""Row shards: a partition that is written as several, each with some consecutive rows of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastadmm.cluster.engine import nodes_of
from fastadmm.engine.tree import leaves_of, node_range
from fastadmm.errors import ConfigError
from fastadmm.files.atomic import atomic_directory
from fastadmm.store.label_file import write_columns
from fastadmm.store.manifest import SHARDS, Shard, shard_name, write_shards
from fastadmm.store.partition import Partition, PartitionWriter, create_partition, open_partition


def shard_rows(n_rows: int, shards: int) -> list[tuple[int, int]]:
    """Rows of each shard: those of a worker, where there are as many workers."""
    if not 1 <= shards <= n_rows:
        raise ConfigError(f"--shards {shards}: from 1 to {n_rows}, the number of rows")
    if shards <= leaves_of(n_rows):
        nodes = [nodes_of(n_rows, rank, shards) for rank in range(shards)]
        return [(node_range(n_rows, *own[0])[0], node_range(n_rows, *own[-1])[1]) for own in nodes]
    return [(n_rows * k // shards, n_rows * (k + 1) // shards) for k in range(shards)]


@contextmanager
def new_partition(
    path: str | os.PathLike[str],
    *,
    task: str,
    n_samples: int,
    shards: int | None = None,
    source: str | None = None,
    force: bool = False,
    compression: str = "none",
) -> Iterator[PartitionWriter]:
    """Build a partition, or one that is cut into shards when its rows are complete."""
    if shards is None or shards == 1:
        with create_partition(path, task=task, source=source, force=force) as writer:
            yield writer
        return
    rows = shard_rows(n_samples, shards)
    with _new_shards(path, force) as directory:
        whole = directory / "whole"
        whole.mkdir()
        writer = PartitionWriter(whole, path, task, source)
        try:
            yield writer
            writer.finish()
        except BaseException:
            writer.abort()
            raise
        _cut(open_partition(whole, require_labels=False), directory, path, rows, compression)
        shutil.rmtree(whole)


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
    rows = shard_rows(whole.n_samples, shards)
    if shards == 1:
        with create_partition(path, task=whole.task, source=whole.source, force=force) as writer:
            _copy_rows(whole, writer, *rows[0], compression)
        return
    with _new_shards(path, force) as directory:
        _cut(whole, directory, path, rows, compression)


@contextmanager
def _new_shards(path: str | os.PathLike[str], force: bool) -> Iterator[Path]:
    """A directory for shards, which must be one whole when the block is left."""
    with atomic_directory(path, force=force, marker=SHARDS, only=(SHARDS, "shard-*")) as directory:
        yield directory
        open_partition(directory, require_labels=False)  # what the whole may not be, for example one class


def _cut(
    whole: Partition,
    directory: Path,
    path: str | os.PathLike[str],
    rows: list[tuple[int, int]],
    compression: str,
) -> None:
    """Write the shards with these rows of a partition, which messages call parts of `path`."""
    contents = [party.content_digest for party in whole.parties]
    for number, (start, stop) in enumerate(rows, start=1):
        name = shard_name(number, len(rows))
        (directory / name).mkdir()
        writer = PartitionWriter(directory / name, Path(path) / name, whole.task, whole.source, shard=True)
        shard = Shard(number, len(rows), start, whole.n_samples, whole.row_digest, contents)
        try:
            _copy_rows(whole, writer, start, stop, compression)
            writer.finish(shard)
        except BaseException:
            writer.abort()
            raise
    write_shards(directory, shard)


def _copy_rows(whole: Partition, writer: PartitionWriter, start: int, stop: int, compression: str) -> None:
    """Write some rows of all files of a partition."""
    ids = whole.parties[0].ids()[start:stop]
    for party in whole.parties:
        with writer.party(
            party.name, n_features=party.n_features, kind=party.kind, dtype=party.dtype.name,
            feature_names=party.feature_names, transform=party.transform, encoder=party.encoder,
            compression=compression,
        ) as target:  # fmt: skip
            for first, block in party.of_rows(start, stop).iter_rows():
                target.append(block, ids[first : first + block.shape[0]])
    if (known := whole.labels) is not None:
        y, weight, offset = (
            None if column is None else column[start:stop]
            for column in (known.y, known.sample_weight, known.offset)
        )
        assert y is not None
        labels = writer.labels(classes=known.classes, reading=known.reading, exposure=known.exposure)
        write_columns(labels, y, weight, offset, ids)

"""Where a partition goes: checked before anything is read, and written when all is known."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from fastadmm.data_tools.threads import on_threads
from fastadmm.errors import StorageError
from fastadmm.files.atomic import refuse_parent, shown, storage_errors

if TYPE_CHECKING:
    from fastadmm.data_tools.labels import Labels
    from fastadmm.store import Partition

#: Number of a party, number of the first row, and consecutive rows of the party's block.
Piece: TypeAlias = "tuple[int, int, Any]"


def check_out(out: str | Path, force: bool) -> None:
    """Refuse early what the store would refuse only after reading everything."""
    with storage_errors(out):
        if not force and os.path.lexists(out) and not (os.path.isdir(out) and not os.listdir(out)):
            raise StorageError(f"{shown(out)}: exists already; choose another name or pass --force")
        refuse_parent(out)


def write_partition(
    out: str | Path,
    parties: Sequence[dict[str, Any]],
    blocks: Generator[list[Piece], None, None],
    labels: Labels | None,
    *,
    task: str,
    ids: np.ndarray | None,
    source: str,
    force: bool,
    compression: str,
) -> Partition:
    """Write a partition with one file for each described party; what is together in a block is of several."""
    from fastadmm.store import create_partition, open_partition
    from fastadmm.store.label_file import write_columns

    with create_partition(out, task=task, source=source, force=force) as partition:
        writers: list[Any] = [
            partition.party(n_features=len(p["feature_names"]), **p, compression=compression) for p in parties
        ]

        def append(piece: Piece) -> None:
            m, start, rows = piece
            writers[m].append(rows, None if ids is None else ids[start : start + rows.shape[0]])

        # Each party has a file of its own. No file is written by the main thread: an interrupt, which is
        # raised there alone, would pass through HDF5.
        with on_threads(len(writers)) as every, closing(blocks):
            for block in blocks:
                every(append, block)
            if labels is not None:
                how = {"classes": labels.classes, "reading": labels.reading, "exposure": labels.exposure}
                target = partition.labels(**how)
                every(_call, [partial(write_columns, target, labels.y, labels.weight, labels.offset, ids)])
                writers.append(target)
            every(_call, [writer.close for writer in writers])
    return open_partition(out, require_labels=False)


def _call(function: Callable[[], None]) -> None:
    function()

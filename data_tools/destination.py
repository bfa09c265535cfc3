"""Where a partition goes: checked before anything is read, and written when all is known."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from operator import call
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from fastadmm.data_tools.blocks import Progress
from fastadmm.data_tools.per_table import TableOptions
from fastadmm.data_tools.threads import on_threads
from fastadmm.errors import FastadmmError, StorageError
from fastadmm.files.atomic import atomic_directory, refuse_parent, shown, storage_errors

if TYPE_CHECKING:
    from fastadmm.data_tools.label_columns import Labels
    from fastadmm.store.partition import Partition

#: Number of a party, number of the first row, and consecutive rows of the party's block.
Piece: TypeAlias = "tuple[int, int, Any]"


@dataclass(frozen=True)
class Plan:
    """Everything a partition needs, nothing of it written."""

    parties: Sequence[dict[str, Any]]  # what the writer of each party's file is told
    blocks: Callable[[Progress | None], Generator[list[Piece], None, None]]
    labels: Labels | None
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
        with on_threads(len(writers)) as every, closing(plan.blocks(progress)) as blocks:
            for block in blocks:
                every(append, block)
            if labels is not None:
                how = {"classes": labels.classes, "reading": labels.reading, "exposure": labels.exposure}
                target = partition.labels(**how)
                every(call, [partial(write_columns, target, labels.y, labels.weight, labels.offset, ids)])
                writers.append(target)
            every(call, [writer.close for writer in writers])
    return open_partition(out, require_labels=False)

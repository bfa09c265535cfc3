"""Looks at the rows of partitions: what they may get wrong, one line each; none where privacy is on."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.errors import FastadmmError
from fastadmm.files.atomic import shown
from fastadmm.files.digest import row_digest
from fastadmm.judging.looks import say, separation
from fastadmm.runs.check import CheckedRun
from fastadmm.runs.config import recorded
from fastadmm.runs.display import Display
from fastadmm.runs.load import LoadedRun
from fastadmm.runs.provenance import provenance_of
from fastadmm.store.label_file import LabelData, open_labels
from fastadmm.store.partition import Partition, open_partition
from fastadmm.store.party_file import PartyData
from fastadmm.store.table_columns import column_values, table_columns

Array = np.ndarray

#: A column that tells classes, or numbers, better than this is a leak.
_LEAK, _CORRELATED = 0.95, 0.99

#: Values that are read of a party, at most, and its widest table.
_VALUES, _WIDEST = 1_000_000, 2000


def look_at(
    checked: CheckedRun, loaded: LoadedRun, private: bool, validation: object, display: Display
) -> LoadedRun:
    """Look at the rows of a run, and show what is seen; ``validation`` is as in its configuration."""
    # Where privacy is on, or memory is short, headers are all that is looked at.
    headers = private or checked.plan.limited
    lines = [] if headers else partition_looks(loaded.partition)
    others = [checked.test] if checked.test is not None else []
    if isinstance(validation, str):
        others.append(open_partition(validation))
    for other in others:
        trained, asked = loaded.partition, other.labels
        if trained.labels is not None and asked is not None:
            alike = partial(same_content, trained, other)
            lines += seen_by_ids(trained.labels, asked, headers, alike=alike)
    for line in lines:
        display.note(line)
    return replace(loaded, looks=(*loaded.looks, *lines))


def partition_looks(partition: Partition, alignment: Path | None = None) -> list[str]:
    """What is seen in the columns of each party, by the labels where there are any.

    Rows without labels may have those that 'federate align' wrote beside their list, ``alignment``.
    """
    labels = partition.labels
    if labels is None and alignment is not None and (beside := alignment.parent / "labels.h5").exists():
        found = open_labels(beside)
        labels = found if found.row_digest == partition.row_digest else None
    return [] if labels is None else [line for party in partition.parties for line in _leaks(party, labels)]


def _leaks(party: PartyData, labels: LabelData) -> list[str]:
    if party.n_features > _WIDEST:
        return []
    table, n = table_columns(party), party.n_samples
    # A stretch of rows here and there: files may be sorted.
    count = max(1000, _VALUES // party.n_features)
    starts = [0] if n <= count else [k * n // 16 for k in range(16)]
    parts = [(start, min(n, start + 1 + count // len(starts))) for start in starts]
    y = np.concatenate([labels.y[start:stop] for start, stop in parts])
    n_classes = len(labels.classes or ())
    found = []
    for own in zip(*(column_values(party.of_rows(*part), table) for part in parts), strict=True):
        column, values = own[0][0], np.concatenate([piece for _, piece in own])
        score = separation(values, y, n_classes, column.levels is not None)
        if score > (_LEAK if n_classes else _CORRELATED):
            found.append((score, column.name))
    if not found:
        return []
    found.sort(key=lambda pair: -pair[0])
    named = ", ".join(f"{name!r} ({score:.3f})" for score, name in found[:3])
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    what = "AUC" if n_classes else "rank correlation"
    columns = f"{what} of {'column' if len(found) == 1 else 'columns'} {named}{more} alone"
    prefix = party.encoder.prefix if party.encoder is not None else ""
    listed = ",".join(name.removeprefix(prefix) for _, name in found[:3])
    numbered = party.encoder is None and re.fullmatch(r"f\d+", found[0][1])
    settles = "leave it out of the source" if numbered else None
    return [say("leak", place=party.name, columns=columns, column=listed, settles=settles)]


def seen_by_ids(
    trained: LabelData,
    other: LabelData,
    headers: bool,
    ids: Array | None = None,
    alike: Callable[[], bool] = lambda: True,
) -> list[str]:
    """Whether rows are rows of training, by their ids; where these number the rows, by all labels.

    ``alike`` says whether the features are the same, too, where somebody knows. Shapes: ids (N,), of rows
    that come from a table.
    """
    same = trained.row_digest == (other.row_digest if ids is None else row_digest(ids))
    numbered = np.array_equal(trained.ids(), np.arange(trained.n_samples))
    if numbered or headers or same:
        same = same and (not numbered or (np.array_equal(trained.y, other.y) and alike()))
        count = other.n_samples if same else 0
    else:
        rows = (trained.ids(), other.ids() if ids is None else ids)
        known, asked = (np.asarray(own.tolist(), dtype=str) for own in rows)
        count = int(np.isin(asked, known).sum())
    return [say("seen", place=shown(other.path), count=count, n=other.n_samples)] if count else []


def seen_in_training(
    run: Path, other: LabelData, alike: Callable[[Partition], bool], ids: Array | None = None
) -> list[str]:
    """The same of the rows that a run was trained on, if these are still where they were."""
    try:
        found = recorded(run)
        trained = open_partition(found.config.data)
        if trained.labels is None or provenance_of(trained) != _training(found.provenance):
            return []
        private = found.config.privacy.mode != "none"
        return seen_by_ids(trained.labels, other, private, ids, lambda: alike(trained))
    except FastadmmError:
        return []  # of a model alone, or without its data, nothing is known


def same_content(one: Partition, other: Partition) -> bool:
    """Whether two partitions have the same features."""
    return provenance_of(one)["content"] == provenance_of(other)["content"]


def _training(provenance: Any) -> Any:
    keys = ("row_digest", "content", "labels")
    return {key: provenance[key] for key in keys if key in provenance} if provenance else None

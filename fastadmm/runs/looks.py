"""Looks at the rows of partitions: what they may get wrong, one line each; none where privacy is on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from fastadmm.errors import FastadmmError
from fastadmm.files.atomic import shown
from fastadmm.judging.looks import say, separation
from fastadmm.runs.check import CheckedRun
from fastadmm.runs.config import recorded
from fastadmm.runs.display import Display
from fastadmm.runs.load import LoadedRun
from fastadmm.runs.provenance import provenance_of
from fastadmm.store.label_file import LabelData, open_labels
from fastadmm.store.model import Model
from fastadmm.store.partition import Partition, open_partition
from fastadmm.store.party_file import PartyData
from fastadmm.store.table_columns import column_values, table_columns, transform_for
from fastadmm.store.transform import Transform

Array = np.ndarray

#: Blocks of each party's rows, and what scales them.
Rows: TypeAlias = "Sequence[tuple[Iterable[Any], Transform | None]]"

#: A column that tells classes, or numbers, better than this is a leak.
_LEAK, _CORRELATED = 0.95, 0.99

#: Values that are read of a party, at most, and its widest table.
_VALUES, _WIDEST = 1_000_000, 2000

#: Values up to which all rows of a party are compared.
_COMPARED = 20_000_000


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
        like = loaded.partition.parties
        content = provenance_of(other)["content"]
        rows = _rows(other.parties, like)
        lines += _seen(shown(other.path), other.n_samples, rows, content, loaded.partition, headers)
    for line in lines:
        display.note(line)
    return replace(loaded, looks=(*loaded.looks, *lines))


def partition_looks(partition: Partition, labels: LabelData | None = None) -> list[str]:
    """What is seen in the columns of each party, by labels of the same rows where there are any."""
    labels = partition.labels if labels is None else labels
    lines = []
    for party in partition.parties:
        lines += [] if labels is None else _leaks(party, labels)
        lines += _repeats(party)
    return lines


def looks_beside(partition: Partition, alignment: Path | None) -> list[str]:
    """The same, by the labels that 'federate align' wrote beside a list of rows where the rows have none."""
    labels = None if alignment is None else alignment.parent / "labels.h5"
    if partition.labels is not None or labels is None or not labels.exists():
        return partition_looks(partition)
    beside = open_labels(labels)
    return partition_looks(partition, beside if beside.row_digest == partition.row_digest else None)


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


def _repeats(party: PartyData) -> list[str]:
    if party.n_features > _WIDEST or party.n_samples * party.n_features > _COMPARED:
        return []
    marks = _marks(_rows([party], [party]))
    if len(marks) - len(np.unique(marks)) < 2:
        return []
    # Codes recur by chance, but not beside a column whose values recur with them alone.
    columns = [values for _, values in column_values(party, table_columns(party)) if np.ptp(values)]
    if len(columns) < 2:
        return []
    best = max(columns, key=lambda values: len(np.unique(values)))
    values, counts = np.unique(best, return_counts=True)
    marks, best = (own[best != values[np.argmax(counts)]] for own in (marks, best))  # perhaps filled cells
    n, distinct = party.n_samples, len(np.unique(marks))
    again = len(marks) - distinct
    if again < max(2, 0.005 * n) or len(values) < 0.9 * distinct:
        return []
    return [say("repeats", place=party.name, count=again, n=n)]


def _rows(parties: Sequence[PartyData], like: Sequence[Any]) -> Rows:
    """Rows of a partition's parties, as a model's or another partition's are scaled."""
    pairs = zip(parties, like, strict=True)
    return [((X for _, X in party.iter_rows()), transform_for(party, other)) for party, other in pairs]


def _marks(rows: Rows) -> Array:
    """A number for each row, which equal rows share. Shapes: the result (N,)."""
    from scipy.sparse import csr_array, issparse

    spread, one = np.uint64(0x9E3779B97F4A7C15), np.uint64(1)
    total: Any = np.uint64(0)
    for part, (blocks, transform) in enumerate(rows):
        found = []
        for X in blocks:
            if transform is not None:
                X = transform.apply(X.toarray() if issparse(X) and transform.center is not None else X)
            X = csr_array(X)
            # Odd factors for columns, and sums of products modulo 2^64: different rows agree by chance alone.
            drawn = np.random.default_rng(part).integers(0, 1 << 63, X.shape[1], dtype=np.uint64)
            with np.errstate(over="ignore", under="ignore"):  # -0.0, and what float32 cannot tell from zero
                bits = (X.data.astype("<f4") + np.float32(0.0)).view("<u4").astype(np.uint64) * spread
            bits = (bits ^ (bits >> np.uint64(32))) * (drawn << one | one)[X.indices]
            ends = np.concatenate([np.zeros(1, np.uint64), np.cumsum(bits, dtype=np.uint64)])
            found.append(np.diff(ends[X.indptr]))
        total = total + np.concatenate(found)
    return np.asarray(total)


def _seen(place: str, n: int, rows: Rows, content: Any, trained: Partition, headers: bool) -> list[str]:
    count = n
    if content != provenance_of(trained)["content"]:
        if headers or sum(p.n_features for p in trained.parties) * (n + trained.n_samples) > _COMPARED:
            return []
        known = _marks(_rows(trained.parties, trained.parties))
        counts = np.unique(known, return_counts=True)[1]
        # Rows of few codes recur: a fresh row is known with the chance of one less the share seen once.
        chance = 1.0 - np.count_nonzero(counts == 1) / len(known)
        count = int(np.isin(_marks(rows), known).sum())
        if count <= n * chance + 3.0 * np.sqrt(n * chance + 1.0) and (count < n or chance > 0.5):
            return []
    return [say("seen", place=place, count=count, n=n)]


def seen_in_training(run: Path, data: Partition, model: Model) -> list[str]:
    """Whether rows are among those that a run was trained on, if these are still where they were."""
    rows = _rows(data.parties, model.parties)
    return _seen_by(run, shown(data.path), data.n_samples, rows, provenance_of(data)["content"])


def seen_by_ids(trained: LabelData, other: LabelData, headers: bool) -> list[str]:
    """The same of rows whose features are elsewhere, by their ids; numbers of rows are none."""
    same = trained.row_digest == other.row_digest
    numbered = np.array_equal(trained.ids(), np.arange(trained.n_samples))
    if numbered or headers or same:
        count = other.n_samples * (same and (not numbered or np.array_equal(trained.y, other.y)))
    else:
        known, asked = (np.asarray(labels.ids().tolist(), dtype=str) for labels in (trained, other))
        count = int(np.isin(asked, known).sum())
    return [say("seen", place=shown(other.path), count=count, n=other.n_samples)] if count else []


def seen_in_tables(run: Path, path: Path, blocks: Sequence[Any], model: Model) -> list[str]:
    """The same of rows of tables, as features that are not scaled yet."""
    rows = [([X], party.transform) for X, party in zip(blocks, model.parties, strict=True)]
    return _seen_by(run, shown(path), blocks[0].shape[0], rows, None)


def _seen_by(run: Path, place: str, n: int, rows: Rows, content: Any) -> list[str]:
    try:
        found = recorded(run)
        began = (found.provenance or {}).get("content", {})
        if content == began:
            return [say("seen", place=place, count=n, n=n)]
        trained = open_partition(found.config.data)
        if provenance_of(trained)["content"] != began:
            return []
        return _seen(place, n, rows, content, trained, found.config.privacy.mode != "none")
    except FastadmmError:
        return []  # of a model alone, or without its data, nothing is known

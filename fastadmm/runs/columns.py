"""Reports about columns: how they have moved, how they repeat each other, what they say about labels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.errors import ConfigError, InputError
from fastadmm.files.atomic import shown, storage_errors
from fastadmm.judging.columns import correlations, information_value, variance_inflation
from fastadmm.judging.drift import bin_edges, bin_weights, stability_index
from fastadmm.store.label_file import LabelData, check_two_classes, open_labels
from fastadmm.store.partition import open_partition
from fastadmm.store.party_file import PartyData, open_party
from fastadmm.store.table_columns import TableColumn, column_values, table_columns, transform_for

__all__ = ["column_drift", "column_report"]

Array = np.ndarray

#: Beyond it a few d x d matrices do not fit most memories.
_MOST_FEATURES = 5000


def _parties(path: Path) -> list[PartyData]:
    with storage_errors(path, "read"):
        is_directory = path.is_dir()
    return open_partition(path, require_labels=False).parties if is_directory else [open_party(path)]


def column_drift(reference: Path, new: Path) -> list[dict[str, Any]]:
    """How far each column has moved between two sets of rows; no party's columns meet another's."""
    old, now = _parties(reference), _parties(new)
    if [p.name for p in old] != [p.name for p in now]:
        raise InputError(f"{shown(new)}: other parties than {shown(reference)}; convert with --like it")
    rows: list[dict[str, Any]] = []
    for before, after in zip(old, now, strict=True):
        to_new = transform_for(after, before) if not before.transform.is_identity else None
        to_old = transform_for(before, after) if before.transform.is_identity else None
        columns = table_columns(before)
        both = zip(column_values(before, columns, to_old), column_values(after, columns, to_new), strict=True)
        for (column, one), (_, other) in both:
            rows.append({"party": before.name, "column": column.name, **_moved(column, one, other)})
    return rows


def _moved(column: TableColumn, old: Array, new: Array) -> dict[str, Any]:
    edges = bin_edges(old) if column.levels is None else np.arange(len(column.levels)) + 0.5
    before, after = bin_weights(old, edges), bin_weights(new, edges)
    used = before + after > 0.0
    deviation = old.std() if column.levels is None else 0.0
    shift = float((new.mean() - old.mean()) / deviation) if deviation > 0.0 else None
    return {"psi": stability_index(before[used], after[used]), "bins": int(used.sum()), "mean_shift": shift}


def column_report(path: Path, labels: Path | None = None) -> list[dict[str, Any]]:
    """Variance inflation and correlation of each party's columns, and their information value."""
    found = None if labels is None else _two_classes(labels)
    rows: list[dict[str, Any]] = []
    for party in _parties(path):
        if party.n_features > _MOST_FEATURES:
            raise InputError(f"{shown(party.path)}: {party.n_features} columns; at most {_MOST_FEATURES} fit")
        if found is not None and found.row_digest != party.row_digest:
            raise InputError(f"{shown(found.path)}: other rows than {shown(party.path)} (row digests differ)")
        columns = table_columns(party)
        own = _repeats(party, columns)
        if found is not None:
            for row, (column, values) in zip(own, column_values(party, columns), strict=True):
                row["iv"] = _information(column, values, found)
        rows += own
    return rows


def _two_classes(path: Path) -> LabelData:
    labels = open_labels(path)
    if labels.classes is None or len(labels.classes) != 2 or np.any(labels.y % 1):
        raise ConfigError(f"{shown(path)}: information values need labels of two classes")
    check_two_classes(labels)
    return labels


def _repeats(party: PartyData, columns: list[TableColumn]) -> list[dict[str, Any]]:
    found = correlations(_covariance(party))
    whole = np.flatnonzero(np.isfinite(np.diag(found)))
    place = np.full(party.n_features, -1)
    place[whole] = np.arange(len(whole))
    # All categories together are the intercept: the first that occurs is left out.
    groups = [np.array([j for j in column.features if place[j] >= 0], dtype=int) for column in columns]
    groups = [own[1:] if column.levels else own for own, column in zip(groups, columns, strict=True)]
    used = np.concatenate([*groups, np.zeros(0, dtype=int)])
    place[:] = -1
    place[used] = np.arange(len(used))
    factors = variance_inflation(found[np.ix_(used, used)], [place[own] for own in groups])
    rows = []
    for column, factor in zip(columns, factors, strict=True):
        own = [j for j in column.features if np.isfinite(found[j, j])]
        size = np.abs(np.nan_to_num(found[own]))
        size[:, column.features.start : column.features.stop] = 0.0
        row: dict[str, Any] = {
            "party": party.name,
            "column": column.name,
            "vif": None,
            "correlation": None,
            "with": None,
        }
        if not np.isnan(factor):
            row["vif"] = float(factor)
        if own and size.max(initial=0.0) > 0.0:
            at, other = np.unravel_index(int(np.argmax(size)), size.shape)
            row |= {"correlation": float(found[own[at], other]), "with": party.feature_names[int(other)]}
        rows.append(row)
    return rows


def _covariance(party: PartyData) -> Array:
    """Sums of products of deviations from the means, (d, d); exact zeros of constant columns."""
    d = party.n_features
    first, low, high = np.zeros(d), np.full(d, np.inf), np.full(d, -np.inf)
    for block in _dense_rows(party):
        first += block.sum(axis=0)
        low, high = np.minimum(low, block.min(axis=0)), np.maximum(high, block.max(axis=0))
    mean, found = first / party.n_samples, np.zeros((d, d))
    for block in _dense_rows(party):
        found += (block - mean).T @ (block - mean)
    constant = low == high
    found[constant] = found[:, constant] = 0.0
    return found


def _dense_rows(party: PartyData) -> Iterator[Array]:
    """Some rows at a time."""
    from scipy.sparse import issparse

    for _, rows in party.iter_rows(max(1, (1 << 22) // party.n_features)):
        block: Any = rows
        yield np.asarray(block.toarray() if issparse(rows) else block, dtype=np.float64)


def _information(column: TableColumn, values: Array, labels: LabelData) -> float:
    weight = np.ones(len(values)) if labels.sample_weight is None else labels.sample_weight
    weight = weight / weight.mean()  # an empty cell counts as half a row
    edges = bin_edges(values, weight) if column.levels is None else np.arange(len(column.levels)) + 0.5
    events = bin_weights(values, edges, weight * labels.y)
    return information_value(events, bin_weights(values, edges, weight) - events)

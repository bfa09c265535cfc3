"""Reports about columns: how they have moved, how they repeat each other, what they say about labels."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.errors import InputError
from fastadmm.files.atomic import shown
from fastadmm.files.reading import is_directory
from fastadmm.judging.binning import Rules, fit_bins, information_value, parting
from fastadmm.runs.scorecard import raw_columns, said_of_labels, two_classes
from fastadmm.store.encoder import Bins, ColumnEncoding, Encoder
from fastadmm.store.label_file import LabelData
from fastadmm.store.partition import open_partition
from fastadmm.store.party_file import PartyData, open_party
from fastadmm.store.table_columns import TableColumn, column_values, table_columns, transform_for

Array = np.ndarray

#: Beyond it a few d x d matrices do not fit most memories.
_MOST_FEATURES = 5000

#: What is told of a column's information.
_INFORMATION = ("iv", "iv_cross", "luck")

#: What an empty bin counts as, in rows, so that its logarithm exists.
_EMPTY = 0.5


def _parties(path: Path) -> list[PartyData]:
    return open_partition(path, require_labels=False).parties if is_directory(path) else [open_party(path)]


def column_drift(reference: Path, new: Path) -> list[dict[str, Any]]:
    """How far each column has moved between two sets of rows; no party's columns meet another's."""
    old, now = _parties(reference), _parties(new)
    if [p.name for p in old] != [p.name for p in now]:
        raise InputError(f"{shown(new)}: other parties than {shown(reference)}; convert with --like it")
    rows: list[dict[str, Any]] = []
    for before, after in zip(old, now, strict=True):
        columns, plain = table_columns(before), before.transform.is_identity
        to_old = transform_for(before, after) if plain else None
        to_new = None if plain else transform_for(after, before)
        both = zip(column_values(before, columns, to_old), column_values(after, columns, to_new), strict=True)
        for (column, one), (_, other) in both:
            rows.append({"party": before.name, "column": column.name, **_moved(column, one, other)})
    return rows


def _moved(column: TableColumn, old: Array, new: Array) -> dict[str, Any]:
    numbers = column.levels is None
    edges = bin_edges(old) if numbers else np.arange(len(column.levels or ())) + 0.5
    before, after = (_rows_in(column.bins, values, edges) for values in (old, new))
    deviation = old.std() if numbers else 0.0
    return {
        "psi": stability_index(before, after),
        "bins": int((before + after > 0.0).sum()),
        "outside": int(after[before == 0.0].sum()),
        "mean_shift": float((new.mean() - old.mean()) / deviation) if deviation > 0.0 else None,
    }


def _rows_in(bins: Bins | None, values: Array, edges: Array) -> Array:
    """Rows of each bin; training rows are those that the bins counted."""
    if bins is None:
        return bin_weights(values, edges)
    levels, counts = np.unique(bins.woe), None
    if not np.isin(values, levels).all():
        values, counts = np.array(bins.woe), np.add(bins.events, bins.others)
    return bin_weights(values, levels[:-1], counts)


def score_drift(old: Array, new: Array, weights: tuple[Array | None, Array | None]) -> dict[str, Any]:
    """How far scores have moved between two sets of rows. Shapes: old, new (N,)."""
    # An empty bin counts as half a row: the mean weight is 1, on whatever scale weights are given.
    first, second = (None if weight is None else weight / weight.mean() for weight in weights)
    edges = bin_edges(old, first)
    before, after = bin_weights(old, edges, first), bin_weights(new, edges, second)
    rows = zip([None, *edges.tolist()], (before / before.sum()).tolist(), (after / after.sum()).tolist())
    return {
        "n_samples": len(old),
        "psi": stability_index(before, after),
        "outside": int(bin_weights(new, edges)[before == 0.0].sum()),
        "bins": [{"above": above, "reference": p, "new": q} for above, p, q in rows if p + q > 0.0],
    }


def column_report(path: Path, labels: Path | None = None) -> list[dict[str, Any]]:
    """Correlation of each party's columns, and their information value."""
    found = None if labels is None else two_classes(labels, None, labels)
    rows: list[dict[str, Any]] = []
    for party in _parties(path):
        if party.n_features > _MOST_FEATURES:
            raise InputError(f"{shown(party.path)}: {party.n_features} columns; at most {_MOST_FEATURES} fit")
        if found is not None and found.row_digest != party.row_digest:
            raise InputError(f"{shown(found.path)}: other rows than {shown(party.path)} (row digests differ)")
        columns = table_columns(party)
        own = _repeats(party, columns)
        if found is not None:
            told = _information(party, found)
            for row in own:  # a mark of missing cells is a bin of its column
                row |= told.get(row["column"], dict.fromkeys(_INFORMATION))
        rows += own
    return rows


def _repeats(party: PartyData, columns: list[TableColumn]) -> list[dict[str, Any]]:
    found = correlations(_covariance(party))
    rows = []
    for column in columns:
        row: dict[str, Any] = {"party": party.name, "column": column.name, "correlation": None, "with": None}
        own = [j for j in column.features if np.isfinite(found[j, j])]
        size = np.abs(np.nan_to_num(found[own]))
        size[:, column.features.start : column.features.stop] = 0.0
        if size.max(initial=0.0) > 0.0:
            at, other = divmod(int(np.argmax(size)), size.shape[1])
            row |= {"correlation": float(found[own[at], other]), "with": party.feature_names[other]}
        rows.append(row)
    return rows


def _covariance(party: PartyData) -> Array:
    """Sums of products of deviations from the means, (d, d); exact zeros of constant columns."""
    from scipy.sparse import issparse

    def blocks() -> Iterator[Array]:
        block: Any
        for _, block in party.iter_rows(max(1, (1 << 22) // party.n_features)):
            yield np.asarray(block.toarray() if issparse(block) else block, dtype=np.float64)

    ends = [(block.sum(axis=0), block.min(axis=0), block.max(axis=0)) for block in blocks()]
    total, low, high = (np.array(own) for own in zip(*ends, strict=True))
    mean = total.sum(axis=0) / party.n_samples
    found = sum(((block - mean).T @ (block - mean) for block in blocks()), np.zeros((len(mean), len(mean))))
    constant = low.min(axis=0) == high.max(axis=0)
    found[constant] = found[:, constant] = 0.0
    return found


def _information(party: PartyData, labels: LabelData) -> dict[str, dict[str, float]]:
    """Information values by column, as ``scorecard bins`` tells them."""
    target, weight = said_of_labels(labels)
    encoder = party.encoder or Encoder(tuple(ColumnEncoding(name) for name in party.feature_names))
    found = {}
    for encoding, name, cells in raw_columns(party, encoder):
        if (bins := encoding.bins) is None:
            fitted = fit_bins(cells, target, weight, Rules())
            values = fitted.iv, fitted.iv_cross, fitted.luck
        else:  # its numbers are weights of evidence
            assert cells.numbers is not None
            plain = information_value(*map(np.array, (bins.events, bins.others, bins.woe)))
            n_levels = len(encoding.levels or ())
            values = plain, *parting(cells.numbers[cells.codes], target, weight, n_levels)
        found[name] = dict(zip(_INFORMATION, values, strict=True))
    return found


# --- the numbers -------------------------------------------------------------------------------------------


def correlations(covariance: Array) -> Array:
    """Correlation matrix; rows and columns of constants are NaN. Shapes: covariance (d, d)."""
    diagonal = np.diag(covariance)
    with np.errstate(invalid="ignore", divide="ignore"):
        scale = np.where(diagonal > 0.0, 1.0 / np.sqrt(diagonal), np.nan)
    return np.asarray(covariance * scale * scale[:, np.newaxis])


def bin_edges(values: Array, weight: Array | None = None, count: int = 10) -> Array:
    """Upper edges of bins that hold equal shares of a reference, or one value each of a few.

    What lies below or above the reference, or between its few values, has bins of its own.

    Shapes: values, weight (N,).
    """
    counted = np.ones(len(values)) if weight is None else weight
    levels, at = np.unique(values[counted > 0.0], return_inverse=True)
    if len(levels) <= count:
        return np.unique([np.nextafter(levels, -np.inf), levels])
    mass = np.cumsum(np.bincount(at, counted[counted > 0.0]))
    wanted = mass[-1] * np.arange(1, count) / count
    inner = levels[np.searchsorted(mass, wanted * (1.0 - 1e-12))]
    return np.unique([np.nextafter(levels[0], -np.inf), *inner, levels[-1]])


def bin_weights(values: Array, edges: Array, weight: Array | None = None) -> Array:
    """Summed weight in each bin. Shapes: values, weight (N,)."""
    return np.bincount(np.searchsorted(edges, values, "left"), weight, minlength=len(edges) + 1).astype(float)


def stability_index(reference: Array, new: Array) -> float:
    """Population stability index: Σ (p - q) ln(p / q) of the shares of two sets of rows in the same bins.

    Returns: 0 where the shares are equal. Rules of thumb: below 0.1 stable, above 0.25 shifted.
    """
    used = reference + new > 0.0
    p, q = (np.maximum(bins[used], _EMPTY) / bins.sum() for bins in (reference, new))
    shares = p / p.sum() - q / q.sum()
    return float(shares @ np.log(p * q.sum() / (q * p.sum())))

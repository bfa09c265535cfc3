"""The columns of a party's table, one at a time: numbers as stored, categories put together again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse

from fastadmm.errors import InputError
from fastadmm.files.atomic import shown
from fastadmm.store.encoder import Bins
from fastadmm.store.party_file import PartyData
from fastadmm.store.transform import Transform

Array = np.ndarray

#: Bytes of columns that are held at a time.
_BYTES = 128 << 20


@dataclass(frozen=True)
class TableColumn:
    """A column of a party's table."""

    name: str  # of the table's column, or of the feature where the file does not know its table
    features: range  # numbers of the features that it became
    levels: tuple[str, ...] | None = None  # categories; None for a column of numbers
    bins: Bins | None = None  # where its numbers are weights of evidence


def table_columns(party: PartyData) -> list[TableColumn]:
    """The columns of a party's table; what marks missing cells is a column of its own."""
    if party.encoder is None:
        return [TableColumn(name, range(j, j + 1)) for j, name in enumerate(party.feature_names)]
    found, at = [], 0
    for column in party.encoder.columns:
        width = 1 if column.one_hot is None else len(column.one_hot)
        if width:
            name, features = party.encoder.prefix + column.name, range(at, at + width)
            found.append(TableColumn(name, features, column.one_hot, column.bins))
        at += width
        if column.indicator:
            found.append(TableColumn(party.feature_names[at], range(at, at + 1)))
            at += 1
    return found


def transform_for(party: PartyData, reference: PartyData) -> Transform | None:
    """What brings a party's rows to the scale of a reference; None where they have it."""
    if party.name != reference.name:
        place = shown(party.path)
        raise InputError(f"{place}: the party is {party.name}, but the reference is {reference.name}")
    names, transform = reference.feature_names, reference.transform
    needed = party.needs_transform(names, transform, reference.name, "convert with --like the reference")
    return transform if needed else None


def column_values(
    party: PartyData, columns: list[TableColumn], like: Transform | None = None
) -> Iterator[tuple[TableColumn, Array]]:
    """Read columns, as many at a time as memory allows. Shapes: values (N,)."""
    transform = party.transform if like is None else like
    room = max(1, _BYTES // (8 * max(party.n_samples, 1)))
    while columns:
        low = columns[0].features.start
        fitting = [column for column in columns if column.features.stop - low <= room]
        some, columns = fitting or columns[:1], columns[max(1, len(fitting)) :]
        held = _read(party, low, some[-1].features.stop, like)
        for column in some:
            own = held[:, column.features.start - low : column.features.stop - low]
            yield column, own[:, 0] if column.levels is None else _codes(own, column, transform)


def _read(party: PartyData, low: int, high: int, like: Transform | None) -> Array:
    out = np.empty((party.n_samples, high - low))
    for start, rows in party.iter_rows(max(1, _BYTES // (32 * party.n_features))):
        block: Any = rows
        if like is not None:
            block = like.apply(block.toarray() if issparse(block) and like.center is not None else block)
        block = block[:, low:high]
        out[start : start + block.shape[0]] = block.toarray() if issparse(block) else block
    return out


def _codes(block: Array, column: TableColumn, transform: Transform) -> Array:
    """Which level a row has: the feature that is 1 before the transform."""
    own = slice(column.features.start, column.features.stop)
    center = np.zeros(len(column.features)) if transform.center is None else transform.center[own]
    # Scales are positive: what is above the centre was 1. A level that all rows have is its own centre.
    on = np.where(center < 1.0, block > 0.0, block >= 0.0)
    return np.where(on.any(axis=1), np.argmax(on, axis=1), len(column.features)).astype(np.float64)

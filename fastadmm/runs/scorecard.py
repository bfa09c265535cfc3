"""Bins and weights of evidence of parties' columns, from which a scorecard's model is trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.errors import ConfigError, InputError
from fastadmm.files.atomic import shown, storage_errors
from fastadmm.judging.binning import MONOTONE, evidence, numeric_edges, ordered_groups
from fastadmm.judging.columns import information_value
from fastadmm.privacy.public import randomise_labels, soft_targets
from fastadmm.store.bins import Bins
from fastadmm.store.encoder import ColumnEncoding, Encoder
from fastadmm.store.label_file import LabelData, LabelWriter, check_two_classes, open_labels
from fastadmm.store.partition import create_partition, open_partition
from fastadmm.store.party_file import PartyData, PartyWriter, open_party
from fastadmm.store.table_columns import TableColumn, column_values, table_columns

__all__ = ["Binning", "bin_data", "release_labels"]

Array = np.ndarray


@dataclass(frozen=True)
class Binning:
    """How columns are binned; the defaults are those of the command line."""

    most: int = 6  # largest number of bins of a column, without that of missing cells
    share: float = 0.05  # of the rows that each bin has at least
    monotone: str = "auto"  # how the rate of class 1 goes along a column of numbers
    of_column: Mapping[str, str] = field(default_factory=dict)  # the same for columns by name
    least: float = 0.0  # columns with a smaller information value are left out, as are those with one bin

    def __post_init__(self) -> None:
        if not 2 <= self.most <= 1000:
            raise ConfigError(f"--max-bins {self.most}: choose from 2 to 1000")
        if not 0.0 < self.share <= 0.5:
            raise ConfigError(f"--min-share {self.share:g}: a share above 0 and up to 0.5 is needed")
        if not self.least >= 0.0:
            raise ConfigError(f"--min-iv {self.least:g}: is not 0 or more")
        for way in (self.monotone, *self.of_column.values()):
            if way not in MONOTONE:
                raise ConfigError(f"--monotone {way!r}: choose one of {', '.join(MONOTONE)}")


def bin_data(
    path: Path, out: Path, binning: Binning, labels: Path | None = None, *, force: bool = False
) -> tuple[list[dict[str, Any]], list[str]]:
    """Bin columns against labels of two classes, and write their weights of evidence as features."""
    with storage_errors(path, "read"):
        whole = open_partition(path, require_labels=False) if path.is_dir() else None
    parties = [open_party(path)] if whole is None else whole.parties
    found = _labels(labels, None if whole is None else whole.labels, path)
    names = {column.name for party in parties for column in table_columns(party)}
    if unknown := sorted(binning.of_column.keys() - names):
        raise ConfigError(f"--monotone {unknown[0]}: no party has a column of that name")
    rows: list[dict[str, Any]] = []
    made = []
    for party in parties:
        if party.row_digest != found.row_digest:
            raise InputError(f"{shown(found.path)}: other rows than {shown(party.path)} (row digests differ)")
        made.append(_bin_party(party, found, binning, rows))
    if whole is None:
        with PartyWriter(out, name=parties[0].name, force=force, **_layout(made[0])) as writer:
            writer.append(made[0].X, ids=parties[0].ids())
    else:
        with create_partition(out, task="classification", source=whole.source, force=force) as partition:
            for party, own in zip(parties, made, strict=True):
                partition.party(party.name, **_layout(own)).append(own.X, party.ids())
            if whole.labels is not None:
                true = whole.labels
                partition.labels(classes=true.classes, reading=true.reading).append(
                    true.y, sample_weight=true.sample_weight, offset=true.offset, ids=true.ids()
                )
    left = [f"{row['party']}: {row['column']}" for row in rows if not row["used"]]
    notes = [f"left out, IV below {binning.least:g} or one bin: {', '.join(left)}"] if left else []
    if found.label_epsilon is not None:
        notes.append(f"labels are randomised with epsilon {found.label_epsilon:g}: bins and IV are estimates")
    return rows, notes


def release_labels(
    path: Path, out: Path, epsilon: float, ledger: Path, most: float, *, force: bool = False
) -> int:
    """Write labels after randomised response, charged first, for a party to bin its columns with.

    Guarantee: ``docs/fusion.md#f6-labels``.
    """
    from fastadmm.engine.engine import Engine
    from fastadmm.privacy.accounts import label_account
    from fastadmm.privacy.ledger import Charge, Ledger
    from fastadmm.privacy.noise import NoiseSource
    from fastadmm.privacy.releases import Payment
    from fastadmm.runs.private import new_run_id

    if not 0.0 < epsilon <= 50.0:
        raise ConfigError(f"--label-epsilon {epsilon:g}: is not above 0 and up to 50")
    labels = _labels(path, None, path)
    if labels.label_epsilon is not None:
        raise InputError(f"{shown(path)}: labels are randomised already")
    if labels.sample_weight is not None or labels.offset is not None:
        raise InputError(
            f"{shown(path)}: has sample weights or offsets, which randomised response does not hide"
        )
    account = label_account(labels.ids(), "the label holder")
    charge = Charge.to(account, new_run_id(), "randomised labels for bins", pure=epsilon)
    payment = Payment(Ledger(ledger), [charge], most, 0.0)
    payment.check()
    with Engine(1) as engine:
        noisy = randomise_labels(labels.y, epsilon, NoiseSource(), 0, engine)
    with LabelWriter(
        out, task="classification", classes=labels.classes, force=force, label_epsilon=epsilon
    ) as writer:
        writer.append(noisy, ids=labels.ids())
        payment.charge("")  # the file gets its name afterwards
    return labels.n_samples


def _labels(path: Path | None, own: LabelData | None, place: Path) -> LabelData:
    found = own if path is None else open_labels(path)
    if found is None:
        raise ConfigError(f"--labels: {shown(place)} has no labels")
    if found.classes is None or len(found.classes) != 2 or np.any(found.y % 1):
        raise ConfigError(f"{shown(found.path)}: bins need labels of two classes")
    check_two_classes(found)
    return found


@dataclass(frozen=True)
class _Binned:
    """A party's columns with bins, and its rows as weights of evidence."""

    encoder: Encoder
    X: Array


def _layout(own: _Binned) -> dict[str, Any]:
    return {
        "n_features": own.X.shape[1],
        "kind": "dense",
        "feature_names": own.encoder.feature_names,
        "encoder": own.encoder,
    }


def _bin_party(party: PartyData, labels: LabelData, binning: Binning, rows: list[dict[str, Any]]) -> _Binned:
    weight = np.ones(party.n_samples) if labels.sample_weight is None else labels.sample_weight
    weight = weight / weight.mean()  # an empty cell counts as half a row
    target = labels.y if labels.label_epsilon is None else soft_targets(labels.y, labels.label_epsilon)
    if party.transform.normalize != "none":
        raise InputError(f"{shown(party.path)}: rows are divided by their norms: convert without --normalize")
    known = party.encoder
    if known is not None and any(column.bins is not None for column in known.columns):
        raise InputError(f"{shown(party.path)}: its columns are binned already")
    if known is not None and any(column.low != column.high for column in known.columns):
        raise InputError(
            f"{shown(party.path)}: has a public description of its columns, which bins do not keep"
        )
    encoder = known or Encoder(tuple(ColumnEncoding(name) for name in party.feature_names))
    kept, features = [], []
    for column, (shown_as, values, absent) in zip(encoder.columns, _raw_columns(party, encoder), strict=True):
        ways = {**dict.fromkeys((column.name, shown_as), binning.monotone)} | dict(binning.of_column)
        bins, place = _bins(column, values, absent, target, weight, binning, ways[shown_as])
        iv = information_value(np.array(bins.events), np.array(bins.others))
        used = iv >= binning.least and len(set(bins.woe[: None if bins.knows_missing else -1])) > 1
        rows.append(
            {"party": party.name, "column": shown_as, "bins": bins.count, "iv": float(iv), "used": used}
        )
        if used:
            kept.append(replace(column, indicator=False, bins=bins))
            features.append(np.array(bins.woe)[place])
    if not kept:
        raise InputError(f"{shown(party.path)}: no column of {party.name} says anything about the labels")
    return _Binned(Encoder(tuple(kept), encoder.missing, encoder.prefix), np.column_stack(features))


def _raw_columns(party: PartyData, encoder: Encoder) -> Iterator[tuple[str, Array, Array]]:
    """Name, numbers or codes of categories, and missing cells of each column of the table."""
    held = column_values(party, table_columns(party))
    center, scale = party.transform.center, party.transform.scale

    def unscaled(column: TableColumn, values: Array) -> Array:
        at = column.features.start
        values = values if scale is None else values * scale[at]
        return values if center is None else values + center[at]

    for encoding in encoder.columns:
        column, values = next(held)
        if encoding.levels is None:
            values = unscaled(column, values)
        absent = np.zeros(len(values), dtype=bool)
        if encoding.levels is not None:
            values = values.astype(np.intp)
            absent = values == len(encoding.levels)
        if encoding.indicator:
            absent = unscaled(*next(held)) > 0.5
        yield column.name, values, absent


def _bins(
    column: ColumnEncoding,
    values: Array,
    absent: Array,
    target: Array,
    weight: Array,
    binning: Binning,
    way: str,
) -> tuple[Bins, Array]:
    """Bins of a column, and each row's bin; the last one is that of missing cells."""
    here = ~absent
    own_target, own_weight = target[here], weight[here]
    edges, groups, low, high = np.empty(0), np.empty(0, dtype=np.intp), 0.0, 0.0
    most, share = binning.most, binning.share
    if column.levels is None:
        edges = numeric_edges(values[here], own_target, own_weight, most=most, share=share, monotone=way)
        place = np.searchsorted(edges, values, "left")
        count, low, high = len(edges) + 1, float(values[here].min()), float(values[here].max())
    else:
        n_levels = len(column.levels)
        groups = ordered_groups(values[here], n_levels, own_target, own_weight, most=most, share=share)
        count = int(groups.max()) + 1
        place = np.append(groups, count)[values]
    place[absent] = count
    events = np.bincount(place, weight * target, minlength=count + 1)
    others = np.bincount(place, weight * (1.0 - target), minlength=count + 1)
    bins = Bins(
        edges=tuple(edges.tolist()),
        groups=tuple(groups.tolist()),
        woe=tuple(evidence(events, others).tolist()),
        events=tuple(events.tolist()),
        others=tuple(others.tolist()),
        low=low,
        high=high,
    )
    return bins, place

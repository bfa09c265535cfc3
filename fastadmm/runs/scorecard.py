"""Columns of parties: bins and weights of evidence for a scorecard, how they moved, what they repeat."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, InputError
from fastadmm.files.atomic import shown
from fastadmm.files.reading import is_directory
from fastadmm.judging.binning import MONOTONE, Cells, Rules, fit_bins, information_value, parting
from fastadmm.privacy.accounts import label_account
from fastadmm.privacy.ledger import Charge, Ledger
from fastadmm.privacy.noise import NoiseSource
from fastadmm.privacy.public import randomise_labels, soft_targets
from fastadmm.privacy.releases import Payment
from fastadmm.runs.result import new_run_id
from fastadmm.store.encoder import Bins, ColumnEncoding, Encoder
from fastadmm.store.label_file import LabelData, LabelWriter, check_two_classes, open_labels
from fastadmm.store.partition import Partition, create_partition, open_partition
from fastadmm.store.party_file import PartyData, PartyWriter, open_party
from fastadmm.store.streamed import TableColumn, column_values, table_columns, transform_for

Array = np.ndarray


@dataclass(frozen=True)
class Binning:
    """How columns are binned; the defaults are those of the command line."""

    rules: Rules = field(default_factory=Rules)
    monotone: Mapping[str, str] = field(default_factory=dict)  # of columns by name, where it is another
    own: Mapping[str, str] = field(default_factory=dict)  # edges or categories, where bins are given
    least: float | None = 0.0  # columns with less cross-fitted information value are left out; None: none

    def __post_init__(self) -> None:
        rules, least = self.rules, self.least
        wrong = {
            f"max_bins {rules.most}: choose from 2 to 1000": not 2 <= rules.most <= 1000,
            f"min_share {rules.share:g}: a share above 0 and up to 0.5 is needed": not 0 < rules.share <= 0.5,
            f"min_events {rules.least:g}: is not 0 or more": not 0.0 <= rules.least < np.inf,
            f"min_iv {least or 0.0:g}: is not 0 or more": least is not None and not least >= 0.0,
        }
        for way in (rules.monotone, *self.monotone.values()):
            wrong[f"--monotone {way!r}: choose one of {', '.join(MONOTONE)}"] = way not in MONOTONE
        for said, there in wrong.items():
            if there:
                raise ConfigError(said)

    def check_names(self, names: Collection[str]) -> None:
        """Refuse what is asked of columns that there are not."""
        for option, given in (("--monotone", self.monotone), ("--bins", self.own)):
            if unknown := sorted(given.keys() - set(names)):
                raise ConfigError(f"{option} {unknown[0]}: no party has a column of that name")

    def of_column(self, levels: tuple[str, ...] | None, *names: str) -> Rules:
        """What holds for a column that goes by these names, with these categories."""
        ways = (self.monotone[name] for name in names if name in self.monotone)
        rules = replace(self.rules, monotone=next(ways, self.rules.monotone))
        for name in names:
            if name in self.own and levels is None:
                return replace(rules, edges=_edges(name, self.own[name]))
            if name in self.own and levels is not None:
                return replace(rules, groups=_groups(name, self.own[name], levels))
        return rules


def _edges(name: str, text: str) -> tuple[float, ...]:
    """Edges of bins, from ``1,2.5,5``."""
    try:
        numbers = tuple(map(float, text.split(",")))
    except ValueError:
        numbers = ()
    if not numbers or not np.isfinite(numbers).all() or (np.diff(numbers) <= 0.0).any():
        raise ConfigError(f"--bins {name}={text}: {name} has numbers: edges that rise, as in {name}=25,40.5")
    return numbers


def _groups(name: str, text: str, levels: tuple[str, ...]) -> tuple[int, ...]:
    """Bin of each category, from ``Rome|Oslo,Paris``; those that are not named share the last bin."""
    # Of the categories that may stand there the longest, as some have commas.
    listed = "|".join(re.escape(level) for level in sorted(levels, key=len, reverse=True))
    found: dict[str, int] = {}
    count, at, mark = 0, 0, ","
    while mark:
        match = re.compile(rf"({listed})([|,]|\Z)").match(text, at)
        word = match[1] if match else re.split("[|,]", text[at:])[0]
        if match is None or word in found:
            near = [] if match else difflib.get_close_matches(word, levels, n=1)
            why = "is in two bins" if match else "is no category of the column"
            hint = f"; is it {near[0]!r}?" if near else ""
            raise ConfigError(f"--bins {name}={text}: {word!r} {why}{hint}")
        found[word], mark, at = count, match[2], match.end()
        count += mark == ","
    return tuple(found.get(level, count + 1) for level in levels)


def read_bins(text: str) -> tuple[str, str]:
    """A column's name and its bins, from ``COLUMN=1,2.5,5`` or ``COLUMN=Rome|Oslo,Paris``."""
    name, _, own = text.rpartition("=")  # a name may have such a sign
    if not re.fullmatch(r"[-+.,\deE]*", own):
        name, _, own = text.partition("=")  # or a category
    if not name or not own:
        raise ConfigError(f"--bins {text}: is not COLUMN=BINS, as in age=25,40.5,60 or city=Rome|Oslo,Paris")
    return name, own


def _opened(path: Path) -> tuple[Partition | None, list[PartyData]]:
    """A partition and its parties, or the party of a file alone."""
    whole = open_partition(path, require_labels=False) if is_directory(path) else None
    return whole, [open_party(path)] if whole is None else whole.parties


def bin_data(
    path: Path, out: Path, binning: Binning, labels: Path | None = None, *, force: bool = False
) -> tuple[list[dict[str, Any]], list[str]]:
    """Bin columns against labels of two classes, and write their weights of evidence as features."""
    whole, parties = _opened(path)
    found = two_classes(labels, None if whole is None else whole.labels, path)
    binning.check_names({column.name for party in parties for column in table_columns(party)})
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    made = []
    for party in parties:
        if party.row_digest != found.row_digest:
            raise InputError(f"{shown(found.path)}: other rows than {shown(party.path)} (row digests differ)")
        made.append(_bin_party(party, found, binning, rows, notes))
    if whole is None:
        with PartyWriter(out, name=parties[0].name, force=force, **_layout(made[0][0])) as writer:
            writer.append(made[0][1], ids=parties[0].ids())
    else:
        with create_partition(out, task="classification", source=whole.source, force=force) as partition:
            for party, (encoder, X) in zip(parties, made, strict=True):
                partition.party(party.name, **_layout(encoder)).append(X, party.ids())
            if (true := whole.labels) is not None:
                about = {"sample_weight": true.sample_weight, "offset": true.offset, "ids": true.ids()}
                partition.labels(classes=true.classes, reading=true.reading).append(true.y, **about)
    left = ", ".join(f"{row['party']}: {row['column']}" for row in rows if not row["used"])
    if left:
        low = f"below {binning.least:g} or " if binning.least else ""
        notes.append(f"left out, one bin, or cross-fitted IV {low}no more than luck: {left}")
    other, event = map(repr, found.classes or ())
    notes.append(f"WOE = ln(share of {other} / share of {event}): low where {event} is frequent")
    if found.label_epsilon is not None:
        notes.append(f"labels are randomised with epsilon {found.label_epsilon:g}: bins and IV are estimates")
    return rows, notes


def release_labels(
    path: Path, out: Path, epsilon: float, ledger: Path, most: float, *, force: bool = False
) -> int:
    """Write labels after randomised response, charged first, for a party to bin its columns with.

    Guarantee: ``docs/fusion.md#f6-labels``.
    """
    if not 0.0 < epsilon <= 50.0:
        raise ConfigError(f"--label-epsilon {epsilon:g}: is not above 0 and up to 50")
    labels = two_classes(path, None, path)
    if labels.label_epsilon is not None:
        raise InputError(f"{shown(path)}: labels are randomised already")
    if labels.sample_weight is not None or labels.offset is not None:
        said = "has sample weights or offsets, which randomised response does not hide"
        raise InputError(f"{shown(path)}: {said}")
    account = label_account(labels.ids(), "the label holder")
    charge = Charge.to(account, new_run_id(), "randomised labels for bins", pure=epsilon)
    payment = Payment(Ledger(ledger), [charge], most, 0.0)
    payment.check()
    with Engine(1) as engine:
        noisy = randomise_labels(labels.y, epsilon, NoiseSource(), 0, engine)
    about: Any = {"task": "classification", "classes": labels.classes, "label_epsilon": epsilon}
    with LabelWriter(out, force=force, **about) as writer:
        writer.append(noisy, ids=labels.ids())
        payment.charge("")  # the file gets its name afterwards
    return labels.n_samples


def two_classes(path: Path | None, own: LabelData | None, place: Path) -> LabelData:
    """Labels of a file, else a partition's own, if they are of two classes."""
    found = own if path is None else open_labels(path)
    if found is None:
        raise ConfigError(f"--labels: {shown(place)} has no labels")
    if found.classes is None or len(found.classes) != 2 or np.any(found.y % 1):
        raise ConfigError(f"{shown(found.path)}: bins and information values need labels of two classes")
    check_two_classes(found)
    return found


def said_of_labels(labels: LabelData) -> tuple[Array, Array]:
    """Class 1 of each row, as an unbiased estimate where labels are randomised, and weights of mean 1.

    Shapes: both results (N,).
    """
    weight = np.ones(labels.n_samples) if labels.sample_weight is None else labels.sample_weight
    target = labels.y if labels.label_epsilon is None else soft_targets(labels.y, labels.label_epsilon)
    return target, weight / weight.mean()  # an empty cell counts as half a row


def _layout(encoder: Encoder) -> dict[str, Any]:
    names = encoder.feature_names
    return {"n_features": len(names), "kind": "dense", "feature_names": names, "encoder": encoder}


def _bin_party(
    party: PartyData, labels: LabelData, binning: Binning, rows: list[dict[str, Any]], notes: list[str]
) -> tuple[Encoder, Array]:
    encoder = party.encoder or Encoder(tuple(ColumnEncoding(name) for name in party.feature_names))
    wrong = ""
    if party.transform.normalize != "none":
        wrong = "rows are divided by their norms: convert without normalize"
    elif any(column.bins is not None for column in encoder.columns):
        wrong = "its columns are binned already: give the data before"
    elif any(column.low != column.high for column in encoder.columns):
        wrong = "has a public description of its columns, which bins do not keep"
    if not wrong:
        columns, said = raw_columns(party, encoder), said_of_labels(labels)
        found = bin_columns(party.name, encoder, columns, said, binning, rows, notes)
        if found[0].columns:
            return found
        wrong = f"no column of {party.name} says anything about the labels beyond luck: leave the party out "
        wrong += "('fastadmm columns --labels' prints why), or bring more rows"
    raise InputError(f"{shown(party.path)}: {wrong}")


def bin_columns(
    party: str,
    encoder: Encoder,
    columns: Iterable[tuple[ColumnEncoding, str, Cells]],
    said: tuple[Array, Array],
    binning: Binning,
    rows: list[dict[str, Any]],
    notes: list[str],
) -> tuple[Encoder, Array]:
    """Bins of a party's columns, its rows as weights of evidence, and a line about each column in ``rows``.

    Shapes: said (N,), (N,): class 1 of each row, and weights of mean 1.
    """
    kept, features = [], [np.empty((len(said[0]), 0))]
    for column, name, cells in columns:
        rules = binning.of_column(column.levels, name, column.name)
        found = fit_bins(cells, *said, rules)
        numbers = cells.numbers
        ends = (0.0, 0.0) if numbers is None or not len(numbers) else (float(numbers[0]), float(numbers[-1]))
        lists = {key: tuple(getattr(found, key).tolist()) for key in ("edges", "woe", "events", "others")}
        groups = tuple(found.groups.tolist()) if numbers is None else ()
        bins = Bins(groups=groups, **lists, low=ends[0], high=ends[1])
        parts = len(set(bins.woe[: None if bins.knows_missing else -1])) > 1
        worth = binning.least is None or found.worth(binning.least)
        used = worth and (binning.least is None or (parts and not found.small))
        told = {"iv": found.iv, "iv_cross": found.iv_cross, "luck": found.luck, "used": used}
        rows.append({"party": party, "column": name, "bins": bins.count, **told})
        if rules.given and min(bins.events[:-1] + bins.others[:-1]) < rules.least:
            notes.append(f"{name}: one of --bins has fewer than {rules.least:g} rows of a class")
        if found.small:
            notes.append(f"{name}: parts the classes only in bins below min_share or min_events: a leak?")
        if used:
            kept.append(replace(column, indicator=False, bins=bins))
            features.append(found.feature[:, None])
    return Encoder(tuple(kept), encoder.missing, encoder.prefix), np.column_stack(features)


def raw_columns(party: PartyData, encoder: Encoder) -> Iterator[tuple[ColumnEncoding, str, Cells]]:
    """Encoding, name and cells of each column of the table: numbers as they were before scaling."""
    held = column_values(party, table_columns(party))
    center, scale = party.transform.center, party.transform.scale

    def unscaled(column: TableColumn, values: Array) -> Array:
        at = column.features.start
        values = values if scale is None else values * scale[at]
        return values if center is None else values + center[at]

    for encoding in encoder.columns:
        if encoding.levels == () and encoding.bins is None:  # no feature
            if encoding.indicator:
                next(held)
            continue
        column, values = next(held)
        n = -1 if column.levels is None else len(column.levels)
        values = unscaled(column, values) if n < 0 else values.astype(np.intp)
        absent = unscaled(*next(held)) > 0.5 if encoding.indicator else (values == n) & (n >= 0)
        cells = Cells.of_numbers(values, absent) if n < 0 else Cells(np.where(absent, n, values), n)
        yield encoding, column.name, cells


# --- reports: how columns have moved, how they repeat each other, what they say about labels ----------------


#: Beyond it a few d x d matrices do not fit most memories.
_MOST_FEATURES = 5000

#: What is told of a column's information.
_INFORMATION = ("iv", "iv_cross", "luck")

#: Bins of a reference whose numbers are many.
_EQUAL_BINS = 10

#: What an empty bin counts as, in rows, so that its logarithm exists.
_EMPTY = 0.5


def column_drift(reference: Path, new: Path) -> list[dict[str, Any]]:
    """How far each column has moved between two sets of rows; no party's columns meet another's."""
    old, now = _opened(reference)[1], _opened(new)[1]
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
    for party in _opened(path)[1]:
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


def bin_edges(values: Array, weight: Array | None = None) -> Array:
    """Upper edges of bins that hold equal shares of a reference, or one value each of a few.

    What lies below or above the reference, or between its few values, has bins of its own.

    Shapes: values, weight (N,).
    """
    counted = np.ones(len(values)) if weight is None else weight
    levels, at = np.unique(values[counted > 0.0], return_inverse=True)
    if len(levels) <= _EQUAL_BINS:
        return np.unique([np.nextafter(levels, -np.inf), levels])
    mass = np.cumsum(np.bincount(at, counted[counted > 0.0]))
    wanted = mass[-1] * np.arange(1, _EQUAL_BINS) / _EQUAL_BINS
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

"""A scorecard: each bin's points, one table for each party, and the sum of them for new rows."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastadmm.errors import ConfigError, FormatError, InputError
from fastadmm.files.atomic import atomic_directory, shown, storage_errors
from fastadmm.files.escapes import csv_rows
from fastadmm.files.reading import is_directory, read_json
from fastadmm.privacy.published import require_covered
from fastadmm.problem.class_names import good_of
from fastadmm.store.encoder import ColumnEncoding, Encoder
from fastadmm.store.model import Model, PartyModel, open_model, open_party_model
from fastadmm.store.party_file import check_party_name

if TYPE_CHECKING:
    from fastadmm.data_tools.per_table import TableRows

Array = np.ndarray

#: What all parties share.
CARD = "card.json"


@dataclass(frozen=True)
class Scaling:
    """How log odds become points; the defaults are those of the command line."""

    base: float = 600.0  # points where the odds are `odds`
    odds: float = 50.0  # good to bad
    pdo: float = 20.0  # points that double the odds
    good: str | None = None  # class that earns points; None: the good one, or class 0
    digits: int = 0  # decimals that points are rounded to

    def __post_init__(self) -> None:
        for option, value in (("--odds", self.odds), ("--pdo", self.pdo)):
            if not 0.0 < value < math.inf:
                raise ConfigError(f"{option} {value:g}: is not positive")
        if not math.isfinite(self.base):
            raise ConfigError(f"--base {self.base:g}: is not finite")

    @property
    def factor(self) -> float:
        """Points for one unit of log odds."""
        return self.pdo / math.log(2.0)


def write_card(
    path: Path, out: Path, scaling: Scaling, *, force: bool = False, allow_infinite_epsilon: bool = False
) -> tuple[list[dict[str, Any]], str]:
    """Write points of a model whose columns have bins; return these, and which class has the fewer points."""
    model = open_model(path) if is_directory(path) else None
    parties = [open_party_model(path)[0]] if model is None else model.parties
    require_covered(
        {party.name: party.privacy for party in parties},
        None if model is None else model.privacy,
        shown(path),
        "the points",
        allow_infinite_epsilon=allow_infinite_epsilon,
    )
    card = card_of(parties, model, scaling, shown(path))
    document = {
        "format": "fastadmm-scorecard",
        "version": "1.0",
        **{key: getattr(scaling, key) for key in ("base", "odds", "pdo", "digits")},
        "good": card.good,
        "bad": card.bad,
        "base_points": card.base_points,
        "parties": [party.name for party in parties],
    }
    rows: list[dict[str, Any]] = []
    with atomic_directory(
        out, force=force, marker=CARD, only=("*.json", "*.csv", "*.sql"), shared=True
    ) as directory:
        _write_json(directory / CARD, document)
        for party, own in zip(parties, card.points, strict=True):
            table = point_rows(party, own)
            with (directory / f"{party.name}.csv").open("w", encoding="utf-8", newline="") as file:
                csv_rows(file, [table[0], *(row.values() for row in table)])
            _write_json(
                directory / f"{party.name}.json",
                {"format": "fastadmm-points", "version": "1.0", "party": party.name,
                 "digits": scaling.digits, "bins": table,
                 "points": [list(points) for points in own], "encoder": _encoder(party).to_json()}
            )  # fmt: skip
            rows += table
    return rows, "class 1" if document["bad"] is None else repr(document["bad"])


@dataclass(frozen=True)
class Card:
    """Points of a model, and whose rows get them."""

    good: str | None
    bad: str | None
    base_points: float | None  # None of a party alone
    points: list[list[tuple[float, ...]]]  # of each party's columns: their bins, and last of missing cells


def card_of(parties: Sequence[PartyModel], model: Model | None, scaling: Scaling, place: str) -> Card:
    """Points of a model, or of parties without one."""
    sign = _sign(model, scaling, place)
    good = scaling.good if model is None or model.classes is None else model.classes[sign > 0]
    bad = None if model is None or model.classes is None else model.classes[sign < 0]
    base = None if model is None else _base_points(model, scaling, sign)
    points = [_points_of(party, sign * scaling.factor, scaling.digits, place) for party in parties]
    return Card(good, bad, base, points)


def _sign(model: Model | None, scaling: Scaling, place: str) -> float:
    """What a unit of the linear predictor, which is the log odds of class 1, is for the good class."""
    if model is None:
        if scaling.good is not None:
            raise ConfigError(
                "--good: a party's file does not know the classes: leave it out, or pass the model"
            )
        return -1.0
    if model.loss != "logistic" or model.classes is None or len(model.classes) != 2:
        raise InputError(f"{place}: is no logistic model of two classes, as points need")
    if scaling.good not in (None, *model.classes):
        raise ConfigError(f"--good {scaling.good!r}: the classes are {', '.join(model.classes)}")
    good = scaling.good if scaling.good is not None else good_of(model.classes)
    return 1.0 if good == model.classes[1] else -1.0


def _base_points(model: Model, scaling: Scaling, sign: float) -> float:
    points = scaling.base - scaling.factor * math.log(scaling.odds)
    return _rounded(points + sign * scaling.factor * float(model.intercept), scaling.digits)


def _rounded(value: float, digits: int) -> float:
    return round(value, digits) + 0.0 if digits else round(value)  # no negative zero


def _encoder(party: PartyModel) -> Encoder:
    if party.encoder is None or any(column.bins is None for column in party.encoder.columns):
        raise InputError(
            f"{party.name}: not all columns of its model have bins: train on what 'fastadmm scorecard bins' "
            "writes"
        )
    return party.encoder


def _points_of(party: PartyModel, factor: float, digits: int, place: str) -> list[tuple[float, ...]]:
    """Points of each column's bins, and last of its missing cells."""
    encoder = _encoder(party)
    if not party.transform.is_identity or party.clipped or party.weights.ndim != 1:
        raise InputError(f"{place}: weights of evidence of {party.name} were scaled or clipped: no points")
    factors = factor * party.scale * party.weights
    return [
        tuple(_rounded(float(slope) * woe, digits) for woe in column.bins.woe)
        for slope, column in zip(factors, encoder.columns, strict=True)
        if column.bins is not None
    ]


def point_rows(party: PartyModel, points: Sequence[tuple[float, ...]]) -> list[dict[str, Any]]:
    """One line for each bin."""
    return [
        row | {"weight": float(weight), "points": own[k]}
        for column, weight, own in zip(_encoder(party).columns, party.weights, points, strict=True)
        for k, row in enumerate(bin_rows(party.name, column))
    ]


def bin_rows(party: str, column: ColumnEncoding) -> list[dict[str, Any]]:
    """One line for each bin of a column."""
    rows, bins = [], column.bins
    assert bins is not None
    for k in range(bins.count + bins.knows_missing):
        low, high, levels = _content(column, k)
        events, size = bins.events[k], bins.events[k] + bins.others[k]
        rows.append(
            {
                "party": party,
                "column": column.name,
                "bin": "missing" if k == bins.count else k + 1,
                "above": low,
                "up_to": high,
                "categories": None if levels is None else "|".join(levels),
                "rows": size,
                "events": events,
                "rate": events / size if size else None,
                "woe": bins.woe[k],
            }
        )
    return rows


def _content(column: ColumnEncoding, k: int) -> tuple[float | None, float | None, list[str] | None]:
    """Edges or categories of bin k."""
    bins = column.bins
    assert bins is not None
    if k == bins.count:
        return None, None, None
    if column.levels is not None:
        held = [level for level, group in zip(column.levels, bins.groups, strict=True) if group == k]
        return None, None, held
    edges = (None, *bins.edges, None)
    return edges[k], edges[k + 1], None


def cells_of(row: dict[str, Any]) -> str:
    """What a bin holds, for people."""
    if row["bin"] == "missing":
        return "missing"
    if row["categories"] is not None:
        return row["categories"].replace("|", ", ")
    low, high = row["above"], row["up_to"]
    if low is None and high is None:
        return "all"
    if low is None:
        return f"up to {high:.6g}"
    return f"above {low:.6g}" + ("" if high is None else f", up to {high:.6g}")


def _write_json(path: Path, document: dict[str, Any]) -> None:
    path.write_text(
        json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8"
    )


# --- new rows ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Points:
    """A party's points, in the place of its part of a model."""

    name: str
    encoder: Encoder
    digits: int

    @property
    def feature_names(self) -> list[str]:
        return self.encoder.feature_names


def apply_card(
    card: Path, paths: Sequence[Path], options: TableRows
) -> tuple[list[str], list[list[Any]], list[str]]:
    """Points of the rows of tables."""
    from fastadmm.data_tools.predict_tables import read_features

    with storage_errors(card, "read"):
        whole = card.is_dir()
        if whole and not (card / CARD).exists():
            raise FormatError(
                f"{shown(card)}: no {CARD}: not a scorecard; make one with 'fastadmm scorecard points'"
            )
    shared = _read_json(card / CARD, "fastadmm-scorecard") if whole else None
    files = [card] if shared is None else _files_of(shared, card)
    parties = [_read_points(file) for file in files]
    found = read_features(parties, paths, options)
    base = None if shared is None else shared.get("base_points")
    total, own = add_up(base, found.blocks, [party.digits for party in parties])
    header, columns = ["id"], [found.ids.tolist()]
    if total is not None:
        header, columns = [*header, "points"], [*columns, total.tolist()]
    header += [f"points_{party.name}" for party in parties]
    columns += [points.tolist() for points in own]
    return header, [list(row) for row in zip(*columns, strict=True)], found.notes


def add_up(
    base: float | None, blocks: Sequence[Array], digits: Sequence[int]
) -> tuple[Array | None, list[Array]]:
    """Points of rows: all together, where there are base points, and each party's.

    Shapes: blocks (N, d_m); the result (N,).
    """
    own = [_shown(X.sum(axis=1), decimals) for X, decimals in zip(blocks, digits, strict=True)]
    return None if base is None else _shown(float(base) + np.sum(own, axis=0), digits[0]), own


def _shown(points: Array, digits: int) -> Array:
    """Points with the card's decimals; whole numbers where it has none."""
    return np.round(points, digits) + 0.0 if digits else np.rint(points).astype(np.int64)


def _read_json(path: Path, kind: str) -> dict[str, Any]:
    try:
        document = read_json(path, foreign=True)
    except FormatError:
        document = None
    if not isinstance(document, dict) or (document.get("format"), document.get("version")) != (kind, "1.0"):
        raise FormatError(f"{shown(path)}: is no scorecard, or damaged: write it again")
    return document


#: Beyond this a sum of points has no digits after the point.
_MOST_POINTS = 1e12


def _files_of(shared: dict[str, Any], card: Path) -> list[Path]:
    """The parties' files beside what they share; whoever wrote that names no other places."""
    place, names, base = shown(card / CARD), shared.get("parties"), shared.get("base_points")
    good = base is None or (isinstance(base, int | float) and abs(base) < _MOST_POINTS)
    if not isinstance(names, list) or not names or not good:
        raise FormatError(f"{place}: is no scorecard, or damaged: write it again")
    return [card / f"{check_party_name(name, place, FormatError)}.json" for name in names]


def _read_points(path: Path) -> _Points:
    document = _read_json(path, "fastadmm-points")
    encoder = Encoder.from_json(document.get("encoder"), shown(path))
    try:
        columns = []
        for column, own in zip(encoder.columns, document["points"], strict=True):
            if column.bins is None:
                raise ValueError(column.name)
            made = replace(column.bins, woe=tuple(map(float, own)))
            known = len(made.woe) == len(column.bins.woe)
            if not known or not all(abs(points) < _MOST_POINTS for points in made.woe):
                raise ValueError(column.name)
            columns.append(replace(column, bins=made))
        return _Points(
            str(document["party"]), replace(encoder, columns=tuple(columns)), int(document["digits"])
        )
    except (ValueError, TypeError, KeyError):
        raise FormatError(f"{shown(path)}: points and columns do not agree; damaged or edited") from None

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
from fastadmm.files.reading import read_json
from fastadmm.problem.class_names import good_of
from fastadmm.runs.export import open_covered
from fastadmm.store.encoder import ColumnEncoding, Encoder
from fastadmm.store.model import Model, PartyModel
from fastadmm.store.party_file import check_party_name
from fastadmm.store.transform import Transform

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
    path: Path, out: Path, scaling: Scaling, *, force: bool = False, **how: bool
) -> tuple[list[dict[str, Any]], str]:
    """Write points of a model whose columns have bins; return these, and which class has the fewer points."""
    found = open_covered(path, "the points", **how)
    card = card_of(found.parties, found.model, scaling, shown(path))
    document = {
        "format": "fastadmm-scorecard",
        "version": "1.0",
        **{key: getattr(scaling, key) for key in ("base", "odds", "pdo", "digits")},
        **{key: getattr(card, key) for key in ("good", "bad", "base_points")},
        "parties": [party.name for party in found.parties],
    }
    rows: list[dict[str, Any]] = []
    patterns = ("*.json", "*.csv", "*.sql")
    with atomic_directory(out, force=force, marker=CARD, only=patterns, shared=True) as directory:
        _write_json(directory / CARD, document)
        for party, own in zip(found.parties, card.points, strict=True):
            table = point_rows(party, own)
            with (directory / f"{party.name}.csv").open("w", encoding="utf-8", newline="") as file:
                csv_rows(file, [table[0], *(row.values() for row in table)])
            points = {"bins": table, "points": list(map(list, own)), "encoder": _encoder(party).to_json()}
            about = {"format": "fastadmm-points", "version": "1.0", "party": party.name}
            _write_json(directory / f"{party.name}.json", {**about, "digits": scaling.digits, **points})
            rows += table
    return rows, "class 1" if card.bad is None else repr(card.bad)


@dataclass(frozen=True)
class Card:
    """Points of a model, and whose rows get them."""

    good: str | None
    bad: str | None
    base_points: float | None  # None of a party alone
    points: list[list[tuple[float, ...]]]  # of each party's columns: their bins, and last of missing cells


def card_of(parties: Sequence[PartyModel], model: Model | None, scaling: Scaling, place: str) -> Card:
    """Points of a model, or of parties without one."""
    good, digits = scaling.good, scaling.digits
    sign, bad, base = -1.0, None, None  # what a unit of the log odds of class 1 is for the good class
    if model is not None:
        if model.loss != "logistic" or model.classes is None or len(model.classes) != 2:
            raise InputError(f"{place}: is no logistic model of two classes, as points need")
        if good not in (None, *model.classes):
            raise ConfigError(f"--good {good!r}: the classes are {', '.join(model.classes)}")
        good = good_of(model.classes) if good is None else good
        sign = 1.0 if good == model.classes[1] else -1.0
        good, bad = model.classes[sign > 0], model.classes[sign < 0]
        base = scaling.base - scaling.factor * math.log(scaling.odds)
        base = _rounded(base + sign * scaling.factor * float(model.intercept), digits)
    elif good is not None:
        said = "a party's file does not know the classes: leave it out, or pass the model"
        raise ConfigError(f"--good: {said}")
    return Card(good, bad, base, [_points_of(p, sign * scaling.factor, digits, place) for p in parties])


def _rounded(value: float, digits: int) -> float:
    return round(value, digits) + 0.0 if digits else round(value)  # no negative zero


def _encoder(party: PartyModel) -> Encoder:
    if party.encoder is None or any(column.bins is None for column in party.encoder.columns):
        said = "not all columns of its model have bins: train on what 'fastadmm scorecard bins' writes"
        raise InputError(f"{party.name}: {said}")
    return party.encoder


def _points_of(party: PartyModel, factor: float, digits: int, place: str) -> list[tuple[float, ...]]:
    """Points of each column's bins, and last of its missing cells."""
    encoder = _encoder(party)
    if not party.transform.is_identity or party.clipped or party.weights.ndim != 1:
        raise InputError(f"{place}: weights of evidence of {party.name} were scaled or clipped: no points")
    factors = (factor * party.scale * party.weights).tolist()
    return [
        tuple(_rounded(slope * woe, digits) for woe in column.bins.woe)
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
    """One line for each bin of a column: its edges or categories, its rows and weight of evidence."""
    rows, bins = [], column.bins
    assert bins is not None
    edges = (None, *bins.edges, None)
    for k in range(bins.count + bins.knows_missing):
        missing, numbers = k == bins.count, column.levels is None and k < bins.count
        held = [name for name, group in zip(column.levels or (), bins.groups, strict=True) if group == k]
        events, size = bins.events[k], bins.events[k] + bins.others[k]
        rows.append(
            {
                "party": party,
                "column": column.name,
                "bin": "missing" if missing else k + 1,
                "above": edges[k] if numbers else None,
                "up_to": edges[k + 1] if numbers else None,
                "categories": None if missing or numbers else "|".join(held),
                "rows": size,
                "events": events,
                "rate": events / size if size else None,
                "woe": bins.woe[k],
            }
        )
    return rows


def _write_json(path: Path, document: dict[str, Any]) -> None:
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


# --- new rows ---------------------------------------------------------------------------------------------


def apply_card(
    card: Path, paths: Sequence[Path], options: TableRows
) -> tuple[list[str], list[list[Any]], list[str]]:
    """Points of the rows of tables."""
    from fastadmm.data_tools.predict_tables import read_features

    files, base = [card], None
    with storage_errors(card, "read"):
        if card.is_dir():
            if not (card / CARD).exists():
                said = "not a scorecard; make one with 'fastadmm scorecard points'"
                raise FormatError(f"{shown(card)}: no {CARD}: {said}")
            files, base = _read_card(card)
    parties, digits = zip(*map(_read_points, files))
    found = read_features(parties, paths, options)
    total, own = add_up(base, found.blocks, digits)
    columns = {"id": found.ids} | ({} if total is None else {"points": total})
    columns |= {f"points_{party.name}": points for party, points in zip(parties, own)}
    rows = zip(*(values.tolist() for values in columns.values()), strict=True)
    return list(columns), list(map(list, rows)), found.notes


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


def _read_card(card: Path) -> tuple[list[Path], float | None]:
    """The parties' files beside what they share, which names no other places, and its points."""
    shared, place = _read_json(card / CARD, "fastadmm-scorecard"), shown(card / CARD)
    names, base = shared.get("parties"), shared.get("base_points")
    good = base is None or (isinstance(base, int | float) and abs(base) < _MOST_POINTS)
    if not isinstance(names, list) or not names or not good:
        raise FormatError(f"{place}: is no scorecard, or damaged: write it again")
    return [card / f"{check_party_name(name, place, FormatError)}.json" for name in names], base


def _read_points(path: Path) -> tuple[PartyModel, int]:
    """A party's points, as a part of a model whose weights nobody needs, and their decimals."""
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
        encoder, name = replace(encoder, columns=tuple(columns)), str(document["party"])
        part = PartyModel(name, np.empty(0), encoder.feature_names, Transform(), encoder=encoder)
        return part, int(document["digits"])
    except (ValueError, TypeError, KeyError):
        raise FormatError(f"{shown(path)}: points and columns do not agree; damaged or edited") from None

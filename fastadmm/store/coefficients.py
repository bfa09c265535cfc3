"""Coefficients of a model: named, per party, for raw columns and for columns as they were scaled."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fastadmm.errors import InputError
from fastadmm.inference.likelihood import family_of
from fastadmm.inference.table import INTERCEPT
from fastadmm.problem.class_names import sign_of
from fastadmm.problem.losses import parse_loss
from fastadmm.store.model import Model, PartyModel

if TYPE_CHECKING:
    import pandas as pd

Array = np.ndarray


@dataclass(frozen=True)
class Units:
    """How weights of one party's scaled columns become weights of its raw columns.

    Shapes: factor, shift (d_m,).
    """

    factor: Array  # of shape (d_m,): a raw column's weight is the scaled column's, times this
    shift: Array  # of shape (d_m,)
    note: str = ""  # why the raw columns have no units; empty where they have


def units_of(party: PartyModel) -> Units:
    """Units of a party's columns: its encoder's public bounds, then its centres and scales."""
    d, transform = len(party.weights), party.transform
    slope, start = np.ones(d), np.zeros(d)
    if transform.normalize != "none" or party.clipped:
        how = "clipped to norm 1" if party.clipped else "divided by their norms"
        return Units(slope, start, f"rows of {party.name} are {how}: its columns have no units")
    if party.encoder is not None:
        at = 0
        for column in party.encoder.columns:
            if column.levels is None and column.low != column.high:
                slope[at] = 2.0 / (column.high - column.low)
                start[at] = -(column.high + column.low) / (column.high - column.low)
            at += len(column.feature_names)
    scale = np.ones(d) if transform.scale is None else transform.scale
    center = np.zeros(d) if transform.center is None else transform.center
    return Units(slope / scale, (start - center) / scale)


@dataclass(frozen=True)
class Coefficients:
    """Coefficients of a model, or of one party's part of it."""

    columns: dict[str, list[Any]]
    ratio: str  # what exp(weight) is called, as ``"odds ratio"``; empty where it is nothing of interest
    notes: list[str]  # what to know when reading the table

    def to_frame(self) -> pd.DataFrame:
        """The table as a DataFrame, with columns as in ``columns``."""
        import pandas as pd

        return pd.DataFrame(self.columns)

    def rows(self) -> list[dict[str, Any]]:
        """One dictionary per coefficient."""
        names = list(self.columns)
        return [dict(zip(names, row, strict=True)) for row in zip(*self.columns.values(), strict=True)]

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON: ``coefficients``, ``ratio`` and ``notes``; an infinite ratio is null."""
        rows = [{k: None if v == math.inf else v for k, v in row.items()} for row in self.rows()]
        return {"coefficients": rows, "ratio": self.ratio, "notes": self.notes}

    def largest(self, count: int) -> Coefficients:
        """The coefficients of the columns that move the score most, by ``scaled_weight``; order is kept."""
        groups: dict[tuple[str, str], list[int]] = {}
        for k, row in enumerate(self.rows()):
            groups.setdefault((row["party"], row.get("class", "")), []).append(k)
        size = np.abs(self.columns["scaled_weight"])
        kept = sorted(k for own in groups.values() for k in sorted(own, key=lambda k: -size[k])[:count])
        columns = {name: [values[k] for k in kept] for name, values in self.columns.items()}
        return Coefficients(columns, self.ratio, self.notes)


def coefficients(
    model: Model | PartyModel, references: Mapping[str, str] | None = None, loss: str = ""
) -> Coefficients:
    """The table of a model's coefficients, or of one party's, which needs nothing of the others."""
    whole = model if isinstance(model, Model) else None
    parties = model.parties if isinstance(model, Model) else [model]
    loss = loss if whole is None else whole.loss
    family = family_of(parse_loss(loss)) if loss else None
    ratio = family.ratio if family else ""
    classes: Sequence[str] = ("",)  # one predictor: none is named
    if parties[0].weights.ndim > 1:
        numbers = range(parties[0].weights.shape[1])
        classes = (whole and whole.classes) or [f"class {c + 1}" for c in numbers]
    if len(classes) > 1:  # no class is the one that the others are compared with
        ratio = ""
    compared = [_references(party, references or {}) for party in parties]
    unknown = set(references or {}) - {c.name for p in parties if p.encoder for c in p.encoder.columns}
    if unknown:
        raise InputError(f"reference: no column {sorted(unknown)[0]!r} in the model's tables")
    intercept = np.zeros(len(classes)) if whole is None else np.atleast_1d(whole.intercept).astype(float)
    shifted = intercept.copy()
    notes = sign_of(whole.classes) if whole is not None and len(classes) == 1 else []
    rows = []
    for party, reference in zip(parties, compared, strict=True):
        units = units_of(party)
        notes += [units.note] if units.note else []
        scaled = party.scale * party.weights.reshape(len(party.weights), -1)
        raw = units.factor[:, np.newaxis] * scaled
        shifted += units.shift @ scaled
        for c, name in enumerate(classes):
            for j, (feature, to) in enumerate(zip(party.feature_names, reference, strict=True)):
                there = None if to < 0 else (party.feature_names[to], raw[to, c])
                rows.append(_row((party.name, feature, name), raw[j, c], scaled[j, c], there))
    if whole is None:
        said = ", ".join(f"{value:.6g}" for value in shifted)
        notes.append(
            f"in raw units {parties[0].name} adds {said} to the intercept, which the coordinator has"
        )
    else:
        for c, name in enumerate(classes):
            rows.append(_row(("", INTERCEPT, name), shifted[c], intercept[c]))
    dropped = [] if len(classes) > 1 else ["class"]
    if not ratio:
        dropped += ["ratio", "ratio_to_reference"]
    if all(row["reference"] is None for row in rows):
        dropped += ["reference", "ratio_to_reference"]
    else:
        notes.append("every category has a weight; compare categories with each other, not with none")
    return Coefficients({k: [row[k] for row in rows] for k in rows[0] if k not in dropped}, ratio, notes)


def _row(
    place: tuple[str, str, str], weight: float, scaled: float, reference: tuple[str, float] | None = None
) -> dict[str, Any]:
    """One coefficient; `place` is its party, feature and class."""
    to, there = reference or (None, 0.0)
    with np.errstate(over="ignore"):
        return {
            **dict(zip(("party", "feature", "class"), place)),
            "weight": float(weight),
            "scaled_weight": float(scaled),
            "ratio": float(np.exp(weight)),
            "reference": to,
            "ratio_to_reference": None if to is None else float(np.exp(weight - there)),
        }


def _references(party: PartyModel, references: Mapping[str, str]) -> list[int]:
    """For each feature the number of the feature it is compared with; -1 for what is no category."""
    if party.encoder is None:
        return [-1] * len(party.feature_names)
    found: list[int] = []
    for column in party.encoder.columns:
        levels, at = column.one_hot, len(found)
        asked = references.get(column.name)
        if asked is not None and asked not in (levels or ()):
            raise InputError(
                f"reference: column {column.name!r} of {party.name} has "
                + (f"the categories {', '.join(levels)}, not {asked!r}" if levels else "no categories")
            )
        first = -1 if not levels else at + (0 if asked is None else levels.index(asked))
        found += [first] * len(levels or (0,)) + [-1] * column.indicator
    return found

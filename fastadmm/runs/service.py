"""What a scoring service answers: contributions of one party, their sum, or predictions; without any HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.errors import ConfigError, InputError
from fastadmm.files.atomic import shown
from fastadmm.files.reading import is_directory
from fastadmm.runs.combine import Contribution, checked_contributions, weights_of_party
from fastadmm.runs.export import open_covered
from fastadmm.runs.predict import columns_of, first_not_finite, make_predictions
from fastadmm.store.model import PartyModel, SharedPart, open_shared_part

Array = np.ndarray

_LONGEST_ID = 256


class Service:
    """Answers requests from a model that is in memory."""

    def __init__(
        self, parties: list[PartyModel], shared: SharedPart | None, model_id: str, max_rows: int
    ) -> None:
        from fastadmm.data_tools.predict_tables import row_features

        if max_rows < 1:
            raise ConfigError(f"--max-rows {max_rows}: is not positive")
        self.parties, self.shared, self.model_id, self.max_rows = parties, shared, model_id, max_rows
        self.columns = [name for party in parties for name in _columns(party)]  # that rows have
        self._features = row_features

    def describe(self) -> dict[str, Any]:
        """What it serves: parties, columns, the model's id, most rows; with the sum also loss and classes."""
        names = [p.name for p in self.parties] or (self.shared.names if self.shared else [])
        document = {
            "status": "ok",
            "model_id": self.model_id,
            "parties": names,
            "columns": self.columns,
            "max_rows": self.max_rows,
        }
        if self.shared is not None:
            document |= {"loss": self.shared.loss, "classes": self.shared.classes}
        return document

    def contribution(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """One party's contributions to the scores of rows, which another service adds up."""
        (values,), notes, ids = self._contributions(document)
        return {
            "party": self.parties[0].name,
            "model_id": self.model_id,
            "ids": ids,
            "contribution": values.tolist(),
            "notes": notes,
        }

    def predict(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Predictions of rows that have the columns of all parties."""
        values, notes, ids = self._contributions(document)
        return self._predictions(values, ids) | {"notes": notes}

    def combine(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Predictions from the contributions of all parties, which are added in the model's order."""
        assert self.shared is not None
        entries = _known(document, {"contributions"}).get("contributions")
        if not isinstance(entries, list) or not entries:
            raise InputError("request: 'contributions': the list of all parties' contributions is needed")
        given = [self._given(entry) for entry in entries]
        by_name = checked_contributions(self.shared, given)
        if absent := [name for name in self.shared.names if name not in by_name]:
            raise InputError(f"request: no contribution of {', '.join(absent)}")
        return self._predictions([by_name[name].values for name in self.shared.names], given[0].ids.tolist())

    def _given(self, entry: Any) -> Contribution:
        if not isinstance(entry, dict):
            raise InputError("request: 'contributions': each is an object, as a party's service answers it")
        name = str(entry.get("party"))
        place = f"request: contribution of {name}"
        try:
            values = np.array(entry.get("contribution"), dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            values = np.empty(())
        if values.ndim == 0 or not np.isfinite(values).all():
            raise InputError(f"{place}: finite numbers, one for each row, are needed")
        if not 0 < len(values) <= self.max_rows:
            raise InputError(f"{place}: {len(values)} rows; from 1 to {self.max_rows} fit")
        ids = np.array(_ids(entry, len(values), place), dtype=object)
        return Contribution(name, str(entry.get("model_id")), values, ids, place=place)

    def _contributions(self, document: Mapping[str, Any]) -> tuple[list[Array], list[str], list[Any]]:
        rows = _rows(document)
        if len(rows) > self.max_rows:
            raise InputError(
                f"request: {len(rows)} rows, but at most {self.max_rows} fit: send them in parts"
            )
        found = self._features(self.parties, rows)
        values = [party.contribution_of(X) for party, X in zip(self.parties, found.blocks, strict=True)]
        for own in values:
            if (row := first_not_finite(own)) is not None:
                raise InputError(f"request: row {row + 1}: the contribution is not finite")
        return values, found.notes, _ids(document, len(rows), "request")

    def _predictions(self, values: list[Array], ids: list[Any]) -> dict[str, Any]:
        assert self.shared is not None
        found = make_predictions(self.shared, np.arange(len(ids)), self.shared.combine(values, None))
        columns = columns_of(found) | {"id": ids}
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return {"model_id": self.model_id, "predictions": rows}


def _columns(party: PartyModel) -> list[str]:
    return [c.name for c in party.encoder.columns] if party.encoder else party.feature_names


def _known(document: Mapping[str, Any], keys: set[str]) -> Mapping[str, Any]:
    if not isinstance(document, Mapping):
        raise InputError("request: a JSON object is needed")
    if unknown := [key for key in document if key not in keys]:
        raise InputError(f"request: unknown key {unknown[0]!r}; there are {', '.join(sorted(keys))}")
    return document


def _ids(document: Mapping[str, Any], n_rows: int, place: str) -> list[Any]:
    """The ids that come back: texts and whole numbers, as tables have them."""
    ids = document.get("ids")
    if ids is None:
        return list(range(n_rows))
    if not isinstance(ids, list) or len(ids) != n_rows:
        raise InputError(f"{place}: 'ids': one for each row is needed")
    for k, value in enumerate(ids, start=1):
        good = -(2**63) <= value < 2**63 if type(value) is int else isinstance(value, str)
        if not good or len(str(value)) > _LONGEST_ID:
            raise InputError(
                f"{place}: 'ids': id {k} is no 64-bit number and no text of at most {_LONGEST_ID} characters"
            )
    return ids


def _rows(document: Mapping[str, Any]) -> list[Any]:
    _known(document, {"row", "rows", "ids"})
    if ("row" in document) == ("rows" in document):
        raise InputError("request: give either 'rows', a list, or 'row', one of them")
    rows = [document["row"]] if "row" in document else document["rows"]
    if not isinstance(rows, list) or not rows:
        raise InputError("request: 'rows': a list with one row at least is needed")
    return rows


def open_service(
    path: Path, party: str | None, combine: bool, max_rows: int, *, allow_infinite_epsilon: bool = False
) -> Service:
    """Load what is served."""
    whole = is_directory(path)
    if combine:
        if party is not None or not whole:
            raise ConfigError("--combine: needs a model directory, and no party")
        shared, _ = open_shared_part(path)
        return Service([], shared, shared.model_id, max_rows)
    if party is not None or not whole:
        weights, model_id = weights_of_party(path, party, path, allow_infinite_epsilon=allow_infinite_epsilon)
        return Service([weights], None, model_id, max_rows)
    model = open_covered(path, "scores of chosen rows", allow_infinite_epsilon=allow_infinite_epsilon)
    service = Service(model.parties, model.shared, model.model_id, max_rows)
    if twice := sorted({name for name in service.columns if service.columns.count(name) > 1}):
        raise ConfigError(
            f"{shown(path)}: several parties have a column {twice[0]!r}: serve each with --party, and sums "
            "with --combine"
        )
    return service

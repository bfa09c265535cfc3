"""The model card: what a model is, what proves it, on which data, how it predicts, what it keeps private."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.errors import FormatError
from fastadmm.files.atomic import shown
from fastadmm.files.escapes import markdown
from fastadmm.privacy.published import KEPT_BACK, certificate_of_model, config_of, fixed_result, is_private
from fastadmm.privacy.statement import PrivacyStatement
from fastadmm.runs.claim import DIGESTS, said_of_model, said_of_run, without_claim
from fastadmm.runs.config import check_settings
from fastadmm.runs.folder import RunFolder, document_in
from fastadmm.store.model import open_shared_part


def model_card(model: Path) -> dict[str, Any]:
    """Collect the card of a model; only its shared part is read."""
    shared, directory = open_shared_part(model)
    # The model of a run may be named itself: then the run is around it.
    run, config, result = directory.parent, None, None
    if directory.name == "model":
        config = document_in(run / "run.toml")
    if config is not None:
        check_settings(config, run / "run.toml")
        result = RunFolder(run).finished()
    private = is_private(shared.privacy, config)
    public = fixed_result(result or {}) if private else result or {}
    said = said_of_model(shared, directory)
    if said is not None and said.claim and result is not None:
        said = said_of_run(run, result, config or {})
    certificate = without_claim(certificate_of_model(shared.certificate, shared.privacy), said)
    return {
        "model": {
            "id": shared.model_id,
            "kind": "generalised linear model over vertically split features",
            "loss": shared.loss,
            "task": shared.task,
            "classes": None if shared.classes is None else list(shared.classes),
            "class 1": shared.classes[1] if shared.classes and len(shared.classes) == 2 else None,
            "lambda": shared.lam,
            **shared.penalty,
            **({} if private else {"intercept": np.asarray(shared.intercept).tolist()}),
        },
        "parties": [
            {"name": name, "n_features": d, **({} if private else {"scale": scale})}
            for name, d, scale in zip(shared.names, shared.n_features, shared.scales)
        ],
        "certificate": {key: value for key, value in certificate.items() if key not in DIGESTS},
        "claim": None if said is None else said.line,
        "data": None if config is None else _data(config, public),
        "asked": None if config is None else {key: config.get(key) for key in ("gap", "rounds")},
        "metrics": None if config is None or private else _metrics(run / "evaluation.json"),
        "kept_back": KEPT_BACK if private else None,
        "privacy": None if shared.privacy is None else shared.privacy.to_json(),
        "privacy_line": None if shared.privacy is None else shared.privacy.one_line(),
    }


def _data(config: dict[str, Any], result: dict[str, Any]) -> dict[str, Any]:
    """Names and size; digests can be tried out by whoever guesses the data, and stay in the run."""
    found = {key: config_of(config).get(key) for key in ("data", "test")}
    found |= {key: result.get(key) for key in ("n_samples", "class_rows")}
    return {key: value for key, value in found.items() if value is not None}


def _metrics(path: Path) -> dict[str, Any] | None:
    try:
        document = document_in(path)
        if document is not None and not isinstance(document.get("metrics"), dict):
            raise FormatError(f"{shown(path)}: key 'metrics' is missing")
    except FormatError as error:
        raise FormatError(f"{error}; evaluate again") from None
    return document


def card_text(card: dict[str, Any]) -> str:
    """The card as Markdown: a table for each part."""
    measured, privacy, certificate = card["metrics"] or {}, card["privacy"], card["certificate"]
    numbers = {k: v for k, v in measured.get("metrics", {}).items() if isinstance(v, (int, float))}
    on = f"On {markdown(str(measured.get('data')))}, {measured.get('n_samples')} rows:"
    absent = "Not evaluated; 'fastadmm evaluate RUN DATA.parts' keeps the result for this card."
    asked = {"asked": card["asked"]} if card["asked"] else {}
    nowhere = "" if card["data"] else "Not recorded here; the run directory has their name."
    parts: dict[str, tuple[str, dict[str, Any]]] = {
        "# Model card": ("", {key: value for key, value in card["model"].items() if value is not None}),
        "## Parties": ("", {own.pop("name"): own for own in map(dict, card["parties"])}),
        "## Certificate": (
            f"{markdown(card['claim'])}." if card["claim"] else "",
            certificate | asked if certificate else {"": "Not recorded."},
        ),
        "## Data": (nowhere, card["data"] or {}),
        "## Metrics": (on if measured else card["kept_back"] or absent, numbers),
    }
    lines = []
    for head, (line, table) in parts.items():
        flat: dict[str, Any] = {}  # the keys of inner tables after a dot
        for key, value in table.items():
            inner = {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {key: value}
            flat |= inner
        lines += [head, "", *([line, ""] if line else []), *_rows(flat.items())]
    lines += ["## Privacy", ""]
    if privacy is None:
        return "\n".join([*lines, "Not recorded: nothing is claimed.", ""])
    statement = PrivacyStatement.from_json(privacy)
    told = _rows(statement.table()) if is_private(statement) else []
    return "\n".join([*lines, statement.one_line(), "", *told])


def _rows(rows: Iterable[tuple[str, Any]]) -> list[str]:
    """Rows of a table, none without any; several may have one heading."""
    listed = [(key, value if isinstance(value, list) else [value]) for key, value in rows]
    lines = [f"| {markdown(str(key))} | {markdown(', '.join(map(str, own)))} |" for key, own in listed]
    return ["| | |", "|---|---|", *lines, ""] if lines else []

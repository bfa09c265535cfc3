"""The model card: what a model is, what proves it, on which data, how it predicts, what it keeps private."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.errors import FormatError
from fastadmm.files.atomic import shown, storage_errors
from fastadmm.files.escapes import markdown
from fastadmm.files.reading import read_toml
from fastadmm.privacy.published import KEPT_BACK, certificate_of_model, config_of, fixed_result, is_private
from fastadmm.runs.claim import DIGESTS, said_of_model, said_of_run, without_claim
from fastadmm.runs.config import check_settings
from fastadmm.runs.folder import RunFolder, document_in
from fastadmm.store.model import open_shared_part


def model_card(model: Path) -> dict[str, Any]:
    """Collect the card of a model; only its shared part is read."""
    shared, directory = open_shared_part(model)
    # The model of a run may be named itself: then the run is around it.
    around = directory.parent / "run.toml"
    with storage_errors(around, "read"):
        run = directory.parent if directory.name == "model" and around.exists() else None
    config = None if run is None else read_toml(run / "run.toml")
    if run is not None and config is not None:
        check_settings(config, run / "run.toml")
    private = is_private(shared.privacy, config)
    result = None if run is None else RunFolder(run).finished()
    public = fixed_result(result or {}) if private else result or {}
    said = said_of_model(shared, directory)
    if said is not None and said.claim and run is not None and result is not None:
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
        "metrics": None if run is None or private else _metrics(run / "evaluation.json"),
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
    except FormatError as error:
        raise FormatError(f"{error}; evaluate again") from None
    if document is not None and not isinstance(document.get("metrics"), dict):
        raise FormatError(f"{shown(path)}: key 'metrics' is missing; evaluate again")
    return document


def card_text(card: dict[str, Any]) -> str:
    """The card as Markdown: a table for each part."""
    metrics, privacy = card["metrics"], card["privacy"]
    numbers = {k: v for k, v in (metrics or {}).get("metrics", {}).items() if isinstance(v, (int, float))}
    measured = f"On {markdown(str((metrics or {}).get('data')))}, {(metrics or {}).get('n_samples')} rows:"
    absent = "Not evaluated; 'fastadmm evaluate RUN DATA.parts' keeps the result for this card."
    asked = {"asked": card["asked"]} if card["asked"] else {}
    parts: list[tuple[str, str, dict[str, Any]]] = [
        ("# Model card", "", {key: value for key, value in card["model"].items() if value is not None}),
        ("## Parties", "", {own.pop("name"): own for own in map(dict, card["parties"])}),
        (
            "## Certificate",
            f"{markdown(card['claim'])}." if card["claim"] else "",
            (card["certificate"] | asked) if card["certificate"] else {"": "Not recorded."},
        ),
        (
            "## Data",
            "" if card["data"] else "Not recorded here; the run directory has their name.",
            card["data"] or {},
        ),
        ("## Metrics", measured if metrics else card["kept_back"] or absent, numbers),
    ]
    lines = []
    for head, line, table in parts:
        lines += [head, "", *([line, ""] if line else []), *_rows(_flat(table).items())]
    lines += ["## Privacy", ""]
    if privacy is None:
        return "\n".join([*lines, "Not recorded: nothing is claimed.", ""])
    from fastadmm.privacy.statement import PrivacyStatement

    statement = PrivacyStatement.from_json(privacy)
    told = _rows(statement.table()) if is_private(statement) else []
    return "\n".join([*lines, statement.one_line(), "", *told])


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    """A table of tables as one, the keys of inner ones after a dot."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        found |= {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {key: value}
    return found


def _rows(rows: Iterable[tuple[str, Any]]) -> list[str]:
    """Rows of a table, none without any; several may have one heading."""
    listed = [(key, value if isinstance(value, list) else [value]) for key, value in rows]
    lines = [f"| {markdown(str(key))} | {markdown(', '.join(map(str, own)))} |" for key, own in listed]
    return ["| | |", "|---|---|", *lines, ""] if lines else []

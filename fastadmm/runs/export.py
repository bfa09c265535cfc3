"""What leaves of a model: parts that come back to the same bytes, other formats, and its card."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.errors import ConfigError, FormatError, InputError, PrivacyBudgetError
from fastadmm.figures.numbers import told
from fastadmm.files.atomic import shown, write_whole
from fastadmm.files.escapes import markdown
from fastadmm.files.reading import is_directory, read_bytes
from fastadmm.privacy import published
from fastadmm.privacy.statement import PrivacyStatement
from fastadmm.runs.claim import DIGESTS, said_of_model, said_of_run, without_claim
from fastadmm.runs.config import check_settings
from fastadmm.runs.folder import RunFolder, document_in
from fastadmm.store import model as stored
from fastadmm.store.coefficients import Coefficients, coefficients
from fastadmm.store.model import Model, PartyModel, SharedPart

_MODEL_JSON = "fastadmm-model-json"


@dataclass(frozen=True)
class Parts:
    """What is given out of a model: all of it, or one party's part."""

    parties: list[PartyModel]
    model: Model | None  # all of it
    shared: SharedPart | None  # what all parties share; None of a party's own file
    path: Path
    model_id: str | None  # None of a party's old file

    @property
    def exact(self) -> list[str]:
        """Parties whose weights no epsilon covers, by what each part and all together state."""
        lines = {party.name: party.privacy for party in self.parties}
        return published.exact_parties(lines, None if self.shared is None else self.shared.privacy)


def open_parts(path: Path, party: str | None = None, named: str = "") -> Parts:
    """Open a model, one party's part of it, or a party's own file; ``named`` says where the party was."""
    unknown = InputError if named else ConfigError
    named = named or f"--party {party}"
    if not is_directory(path):
        own, model_id = stored.open_party_model(path)
        if party not in (None, own.name):
            raise InputError(f"{named}, but {shown(path)} holds the weights of {own.name}")
        return Parts([own], None, None, path, model_id)
    if party is None:
        model = stored.open_model(path)
        return Parts(model.parties, model, model.shared, path, model.model_id)
    # The other parties' files need not be here, and are not read.
    shared, directory = stored.open_shared_part(path)
    if party not in shared.names:
        raise unknown(f"{named}, but the model has {', '.join(shared.names)}")
    path = directory / f"{party}.h5"
    own, model_id = stored.open_party_model(path)
    if model_id not in (None, shared.model_id):
        raise FormatError(f"{shown(path)}: attribute 'model-id': the file belongs to another model")
    own = replace(own, scale=shared.scales[shared.names.index(party)])
    return Parts([own], None, shared, path, model_id)


def open_covered(
    path: Path, what: str, party: str | None = None, at: str = "", /, *, allow_infinite_epsilon: bool = False
) -> Parts:
    """Open what is to be given out; refused where no epsilon covers the weights that it tells.

    Unless their owner agrees: ``docs/privacy.md#what-may-leave``. ``at`` says where the party was named.
    """
    found = open_parts(path, party, at)
    if found.exact and not allow_infinite_epsilon:
        said = f"{shown(found.path)}: {published.exact_note(found.exact, what)}"
        raise PrivacyBudgetError(f"{said}; if the owner agrees, pass --allow-infinite-epsilon")
    return found


def read_coefficients(
    path: Path, party: str | None = None, references: Mapping[str, str] | None = None
) -> Coefficients:
    """The table of coefficients of a model, of one party's part, or of a party's own file."""
    found = open_parts(path, party)
    loss = "" if found.shared is None else found.shared.loss
    table = coefficients(found.model or found.parties[0], references, loss)
    exact = [published.exact_note(found.exact, "them")] if found.exact else []
    return replace(table, notes=[*table.notes, *exact])


def export_party(model: Path, party: str, out: Path, *, force: bool = False, **how: bool) -> None:
    """Write one party's part of a model alone."""
    if out.suffix.lower() != ".h5":
        raise ConfigError(f"export --party: {shown(out)}: end the name with .h5")
    stored.open_shared_part(model)  # a party's file is no model
    found = open_covered(model, "this part", party, f"--party {party}", **how)
    if found.model_id is None:
        place = shown(found.path)
        raise FormatError(f"{place}: attribute 'model-id' is missing: an old file; train again")
    write_whole(out, read_bytes(found.path), force=force, shared=True)


def export_model(model: Path, out: Path, *, force: bool = False, **how: bool) -> None:
    """Write the whole model, weights of all parties together."""
    kind = out.suffix.lower()
    if kind not in (".json", ".onnx"):
        said = "end the name with .json or .onnx, or pass --party for one party's .h5"
        raise ConfigError(f"export: {shown(out)}: {said}")
    stored.open_shared_part(model)  # a party's file is no model
    found = open_covered(model, "the model", **how).model
    assert found is not None
    if kind == ".json":
        text = json.dumps(_model_document(found), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        write_whole(out, text, force=force, shared=True)
    else:
        from fastadmm.runs.to_onnx import write_onnx

        write_onnx(out, found, force=force)


def _model_document(model: Model) -> dict[str, Any]:
    penalty = ("party_lambda", "party_constraint")
    return {
        "format": _MODEL_JSON,
        "version": stored.VERSION,
        "model_id": model.model_id,
        "loss": model.loss,
        "task": model.task,
        "lambda": model.lam,
        **{key: model.penalty[key] for key in penalty if model.penalty.get(key)},
        "classes": model.classes,
        "positive": None if model.classes is None or len(model.classes) != 2 else model.classes[1],
        "intercept": np.asarray(model.intercept).tolist(),
        "certificate": published.certificate_of_model(model.certificate, model.privacy),
        "privacy": model.privacy.to_json() if model.privacy is not None else None,
        "parties": [_part_document(party) for party in model.parties],
    }


def _part_document(party: PartyModel) -> dict[str, Any]:
    """What is written of a party's part."""
    center, scale = (
        None if own is None else own.tolist() for own in (party.transform.center, party.transform.scale)
    )
    return {
        "name": party.name,
        "scale": party.scale,
        "rows": "clipped" if party.clipped else "as they are",
        "feature_names": party.feature_names,
        "weights": party.weights.tolist(),
        "transform": {"normalize": party.transform.normalize, "center": center, "scale": scale},
        **({"encoder": party.encoder.to_json()} if party.encoder is not None else {}),
    }


def import_party(file: Path, model: Path, *, force: bool = False) -> str:
    """Put a party's exported part back into a model directory."""
    shared, directory = stored.open_shared_part(model)
    place = shown(file)
    if file.suffix.lower() == ".json":
        raise ConfigError(f"{place}: JSON is for other programs; import what '--party -o NAME.h5' exports")
    party, model_id = stored.open_party_model(file)
    if model_id != shared.model_id:
        raise InputError(f"{place}: part of another model than {shown(directory)} (model ids differ)")
    if party.name not in shared.names:
        raise InputError(f"{place}: of {party.name}, but the model has {', '.join(shared.names)}")
    width = shared.n_features[shared.names.index(party.name)]
    if len(party.weights) != width or party.weights.shape[1:] != np.shape(shared.intercept):
        said = f"weights of shape {party.weights.shape}, but the model has {width} features"
        raise InputError(f"{place}: {said}")
    write_whole(directory / f"{party.name}.h5", read_bytes(file), force=force)
    return party.name


# --- the card: what a model is, what proves it, how it predicts, what it keeps private ----------------------


def model_card(model: Path) -> dict[str, Any]:
    """Collect the card of a model; only its shared part is read."""
    shared, directory = stored.open_shared_part(model)
    # The model of a run may be named itself: then the run is around it.
    run, config, result = directory.parent, None, None
    if directory.name == "model":
        config = document_in(run / "run.toml")
    if config is not None:
        check_settings(config, run / "run.toml")
        result = RunFolder(run).finished()
    private = published.is_private(shared.privacy, config)
    public = published.fixed_result(result or {}) if private else result or {}
    about = {key: published.config_of(config or {}).get(key) for key in ("data", "test")}
    about |= {key: public.get(key) for key in ("n_samples", "class_rows")}
    said = said_of_model(shared, directory)
    if said is not None and said.claim and result is not None:
        said = said_of_run(run, result, config or {})
    certificate = without_claim(published.certificate_of_model(shared.certificate, shared.privacy), said)
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
        # Digests can be tried out by whoever guesses the data, and stay in the run.
        "data": None if config is None else {key: value for key, value in about.items() if value is not None},
        "asked": None if config is None else {key: config.get(key) for key in ("gap", "rounds")},
        "metrics": None if config is None or private else _metrics(run / "evaluation.json"),
        "kept_back": published.KEPT_BACK if private else None,
        "privacy": None if shared.privacy is None else shared.privacy.to_json(),
        "privacy_line": None if shared.privacy is None else shared.privacy.one_line(),
    }


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
    nowhere = "" if card["data"] else "Not recorded here; the run directory has their name."
    parts: dict[str, tuple[str, dict[str, Any]]] = {
        "# Model card": ("", {key: value for key, value in card["model"].items() if value is not None}),
        "## Parties": ("", {own.pop("name"): own for own in map(dict, card["parties"])}),
        "## Certificate": (
            f"{markdown(card['claim'])}." if card["claim"] else "",
            certificate or {"": "Not recorded."},
        ),
        "## Data": (nowhere, card["data"] or {}),
        "## Metrics": (on if measured else card["kept_back"] or absent, numbers),
    }
    lines = []
    for head, (line, table) in parts.items():
        lines += [head, "", *([line, ""] if line else []), *_rows(table.items())]
    lines += ["## Privacy", ""]
    if privacy is None:
        return "\n".join([*lines, "Not recorded: nothing is claimed.", ""])
    statement = PrivacyStatement.from_json(privacy)
    claims = _rows(statement.table()) if published.is_private(statement) else []
    return "\n".join([*lines, statement.one_line(), "", *claims])


def _rows(rows: Iterable[tuple[str, Any]]) -> list[str]:
    """Rows of a table, none without any; several may have one heading."""
    lines = [f"| {markdown(str(key))} | {markdown(told(value))} |" for key, value in rows]
    return ["| | |", "|---|---|", *lines, ""] if lines else []

"""Parts of a model that leave the building, and come back to the same bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.errors import ConfigError, FormatError, InputError, StorageError
from fastadmm.files.atomic import shown, storage_errors, write_whole
from fastadmm.files.reading import read_bytes, read_json
from fastadmm.privacy.published import certificate_of_model, require_covered
from fastadmm.store.encoder import Encoder
from fastadmm.store.h5file import check_version, read_h5
from fastadmm.store.model import (
    VERSION,
    VERSIONS,
    Model,
    PartyModel,
    check_party_digest,
    open_model,
    open_party_model,
    open_shared_part,
    party_digest,
    write_party_model,
)
from fastadmm.store.transform import Transform

#: Formats by the name's end.
FORMATS = {".h5": "h5", ".json": "json", ".onnx": "onnx"}

_PARTY_JSON = "fastadmm-party-model-json"
_MODEL_JSON = "fastadmm-model-json"


def _format_of(out: Path, place: str) -> str:
    try:
        return FORMATS[out.suffix.lower()]
    except KeyError:
        raise ConfigError(f"{place}: {shown(out)}: end the name with {', '.join(FORMATS)}") from None


def export_party(
    model: Path, party: str, out: Path, *, force: bool = False, allow_infinite_epsilon: bool = False
) -> str:
    """Write one party's part of a model alone."""
    kind = _format_of(out, "export")
    shared, directory = open_shared_part(model)
    if party not in shared.names:
        raise InputError(f"--party {party}: the model has {', '.join(shared.names)}")
    path = directory / f"{party}.h5"
    weights, model_id = open_party_model(path)
    require_covered(
        {party: weights.privacy},
        shared.privacy,
        shown(path),
        "this part",
        allow_infinite_epsilon=allow_infinite_epsilon,
    )
    if kind == "h5":
        if model_id is None:
            raise FormatError(f"{shown(path)}: attribute 'model-id' is missing: an old file; train again")
        content = read_bytes(path)
        write_whole(out, content, force=force, shared=True)
    elif kind == "json":
        _write_json(out, _party_document(path, weights, model_id or shared.model_id), force)
    else:
        raise ConfigError("export --party: onnx is for the whole model; choose .h5 or .json")
    return kind


def _party_document(path: Path, party: PartyModel, model_id: str) -> dict[str, Any]:
    with read_h5(path) as file:
        version = str(file.attrs["encoding-version"])
    return {
        "format": _PARTY_JSON,
        "version": version,
        "name": party.name,
        "model_id": model_id,
        **_part_document(party, {"privacy": party.privacy}),
        "digest": party_digest(party, model_id),
    }


def _part_document(party: PartyModel, more: dict[str, Any]) -> dict[str, Any]:
    """What is written of a party's part, alone or in a model."""
    transform = party.transform
    return {
        "rows": "clipped" if party.clipped else "as they are",
        **more,
        "feature_names": party.feature_names,
        "weights": party.weights.tolist(),
        "transform": {
            "normalize": transform.normalize,
            "center": None if transform.center is None else transform.center.tolist(),
            "scale": None if transform.scale is None else transform.scale.tolist(),
        },
        **({"encoder": party.encoder.to_json()} if party.encoder is not None else {}),
    }


def open_covered(path: Path, what: str, *, allow_infinite_epsilon: bool) -> Model:
    """Open a whole model to give out what tells its weights; refused where no epsilon covers them."""
    model = open_model(path)
    lines, agreed = {party.name: party.privacy for party in model.parties}, allow_infinite_epsilon
    require_covered(lines, model.privacy, shown(path), what, allow_infinite_epsilon=agreed)
    return model


def export_model(model: Path, out: Path, *, force: bool = False, allow_infinite_epsilon: bool = False) -> str:
    """Write the whole model, weights of all parties together."""
    kind = _format_of(out, "export")
    if kind == "h5":
        raise ConfigError("export: .h5 is one party's file: name it with --party; all together: .json, .onnx")
    trained = open_covered(model, "the model", allow_infinite_epsilon=allow_infinite_epsilon)
    if kind == "json":
        _write_json(out, _model_document(trained), force)
    else:
        from fastadmm.runs.to_onnx import write_onnx

        write_onnx(out, trained, force=force)
    return kind


def _model_document(model: Model) -> dict[str, Any]:
    return {
        "format": _MODEL_JSON,
        "version": VERSION,
        "model_id": model.model_id,
        "loss": model.loss,
        "task": model.task,
        "lambda": model.lam,
        **{key: own for key in ("party_lambda", "party_constraint") if (own := model.penalty.get(key))},
        "classes": model.classes,
        "positive": None if model.classes is None or len(model.classes) != 2 else model.classes[1],
        "intercept": np.asarray(model.intercept).tolist(),
        "certificate": certificate_of_model(model.certificate, model.privacy),
        "privacy": model.privacy.to_json() if model.privacy is not None else None,
        "parties": [
            {"name": party.name, "scale": party.scale, **_part_document(party, {})} for party in model.parties
        ],
    }


def _write_json(out: Path, document: dict[str, Any], force: bool) -> None:
    write_whole(
        out,
        json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n",
        force=force,
        shared=True,
    )


def import_party(file: Path, model: Path, *, force: bool = False) -> str:
    """Put a party's exported part back into a model directory."""
    shared, directory = open_shared_part(model)
    place = shown(file)
    document = _read_json(file) if file.suffix.lower() == ".json" else None
    if document is None:
        party, model_id = open_party_model(file)
    else:
        party, model_id = _party_of(document, place), document["model_id"]
        check_party_digest(party, model_id, document.get("digest"), place)
    if model_id != shared.model_id:
        raise InputError(f"{place}: part of another model than {shown(directory)} (model ids differ)")
    if party.name not in shared.names:
        raise InputError(f"{place}: of {party.name}, but the model has {', '.join(shared.names)}")
    width = shared.n_features[shared.names.index(party.name)]
    if len(party.weights) != width or party.weights.shape[1:] != np.shape(shared.intercept):
        raise InputError(
            f"{place}: weights of shape {party.weights.shape}, but the model has {width} features"
        )
    target = directory / f"{party.name}.h5"
    with storage_errors(target):
        there = target.exists()
    same = there and document is None and read_bytes(target) == read_bytes(file)
    if same:
        return party.name
    if there and not force:
        raise StorageError(f"{shown(target)}: exists already and is another file; pass --force to replace it")
    if document is None:
        write_whole(target, read_bytes(file))
    else:
        write_party_model(target, party, version=document["version"], model_id=document["model_id"])
    return party.name


def _read_json(path: Path) -> dict[str, Any]:
    document = read_json(path, foreign=True)
    if not isinstance(document, dict) or document.get("format") != _PARTY_JSON:
        raise FormatError(f"{shown(path)}: key 'format' is not {_PARTY_JSON!r}; export it with --party")
    check_version(path, str(document.get("version")), VERSIONS, "key 'version'")
    for key, kinds in (
        ("name", (str,)),
        ("model_id", (str,)),
        ("rows", (str,)),
        ("privacy", (str, type(None))),
        ("feature_names", (list,)),
        ("weights", (list,)),
        ("transform", (dict,)),
    ):
        if not isinstance(document.get(key), kinds) or (key not in document):
            raise FormatError(f"{shown(path)}: key {key!r} is missing or of the wrong type")
    return document


def _party_of(document: dict[str, Any], place: str) -> PartyModel:
    from fastadmm.store.party_file import check_party_name

    name = check_party_name(document["name"], f"{place}: key 'name'", FormatError)
    try:
        weights = np.array(document["weights"], dtype=np.float64)
    except (TypeError, ValueError):
        raise FormatError(f"{place}: key 'weights': not numbers") from None
    names = document["feature_names"]
    if weights.ndim not in (1, 2) or len(weights) != len(names) or not np.isfinite(weights).all():
        raise FormatError(f"{place}: key 'weights': not one finite weight per feature name")
    if not all(isinstance(text, str) for text in names):
        raise FormatError(f"{place}: key 'feature_names': not texts")
    given = document["transform"]
    try:
        transform = Transform(str(given.get("normalize")), given.get("center"), given.get("scale"))
    except InputError as error:
        raise FormatError(f"{place}: key 'transform': {error}") from None
    if transform.n_features not in (None, len(weights)):
        raise FormatError(f"{place}: key 'transform': fitted on {transform.n_features} columns")
    encoder = None
    if document.get("encoder") is not None:
        encoder = Encoder.from_json(document["encoder"], f"{place}: key 'encoder'")
        if encoder.feature_names != names:
            raise FormatError(f"{place}: keys 'encoder' and 'feature_names' do not agree; damaged or edited")
    return PartyModel(
        name,
        weights,
        names,
        transform,
        document["rows"] == "clipped",
        encoder=encoder,
        privacy=document["privacy"],
    )

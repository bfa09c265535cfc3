"""Parts of a model that leave the building, and come back to the same bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.errors import ConfigError, FormatError, InputError, StorageError
from fastadmm.files.atomic import shown, storage_errors, write_whole
from fastadmm.files.reading import read_bytes
from fastadmm.privacy.published import certificate_of_model, require_covered
from fastadmm.store.h5file import read_h5
from fastadmm.store.model import (
    VERSION,
    Model,
    PartyModel,
    open_model,
    open_party_model,
    open_shared_part,
    party_digest,
)

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
    if file.suffix.lower() == ".json":
        raise ConfigError(f"{place}: JSON is for other programs; import what '--party -o NAME.h5' exports")
    party, model_id = open_party_model(file)
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
    content = read_bytes(file)
    if there and read_bytes(target) == content:
        return party.name
    if there and not force:
        raise StorageError(f"{shown(target)}: exists already and is another file; pass --force to replace it")
    write_whole(target, content)
    return party.name

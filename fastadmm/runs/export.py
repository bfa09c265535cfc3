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
from fastadmm.store.model import (
    VERSION,
    Model,
    PartyModel,
    open_model,
    open_party_model,
    open_shared_part,
)

_MODEL_JSON = "fastadmm-model-json"


def export_party(
    model: Path, party: str, out: Path, *, force: bool = False, allow_infinite_epsilon: bool = False
) -> None:
    """Write one party's part of a model alone."""
    if out.suffix.lower() != ".h5":
        raise ConfigError(f"export --party: {shown(out)}: end the name with .h5")
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
    if model_id is None:
        raise FormatError(f"{shown(path)}: attribute 'model-id' is missing: an old file; train again")
    write_whole(out, read_bytes(path), force=force, shared=True)


def _part_document(party: PartyModel) -> dict[str, Any]:
    """What is written of a party's part."""
    transform = party.transform
    return {
        "name": party.name,
        "scale": party.scale,
        "rows": "clipped" if party.clipped else "as they are",
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


def export_model(
    model: Path, out: Path, *, force: bool = False, allow_infinite_epsilon: bool = False
) -> None:
    """Write the whole model, weights of all parties together."""
    kind = out.suffix.lower()
    if kind not in (".json", ".onnx"):
        raise ConfigError(
            f"export: {shown(out)}: end the name with .json or .onnx, or pass --party for one party's .h5"
        )
    trained = open_covered(model, "the model", allow_infinite_epsilon=allow_infinite_epsilon)
    if kind == ".json":
        text = json.dumps(_model_document(trained), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        write_whole(out, text, force=force, shared=True)
    else:
        from fastadmm.runs.to_onnx import write_onnx

        write_onnx(out, trained, force=force)


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
        "parties": [_part_document(party) for party in model.parties],
    }


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

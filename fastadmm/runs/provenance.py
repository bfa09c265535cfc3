"""What a run was computed from: digests of data, settings and a model to start at."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.errors import FormatError, InputError
from fastadmm.files.atomic import shown
from fastadmm.files.seal import seal_of
from fastadmm.settings.keys import LIMITS, PATHS, UNDECISIVE
from fastadmm.settings.run import RunConfig
from fastadmm.store.label_file import LabelData
from fastadmm.store.model import Model
from fastadmm.store.partition import Partition


def problem_digest(config: RunConfig, provenance: dict[str, Any]) -> str:
    """Digest of what decides the result, but for defaults: a setting added later changes nothing."""
    usual = RunConfig(config.data).to_toml()
    settings = {
        key: value
        for key, value in config.to_toml().items()
        if key not in (*PATHS, *LIMITS, *UNDECISIVE) and usual.get(key) != value
    }
    return seal_of({"settings": settings, "data": provenance})


def provenance_of(partition: Partition) -> dict[str, Any]:
    """Digests of a partition's rows, features and labels, as ``run.toml`` keeps them."""
    provenance: dict[str, Any] = {
        "row_digest": partition.row_digest,
        "content": {p.name: p.content_digest for p in partition.parties},
    }
    if partition.labels is not None:
        provenance["labels"] = labels_digest(partition.labels)
    return provenance


def labels_digest(labels: LabelData) -> str:
    """Digest of targets, weights, offset and class names."""
    # No secret leaks here: the run directory belongs to the coordinator, who holds the labels.
    digest = hashlib.sha256(repr(labels.classes).encode())
    for values in (labels.y, labels.sample_weight, labels.offset):
        digest.update(b"none" if values is None else np.ascontiguousarray(values, dtype="<f8").tobytes())
    return f"sha256:{digest.hexdigest()}"


def check_provenance(run: Path, began: Any, current: dict[str, Any], partition: Partition) -> None:
    """Refuse data, or a model to start at, other than those a run began with."""
    if not isinstance(began, dict) or "content" not in began:
        raise FormatError(f"{shown(run / 'run.toml')}: table 'provenance' is missing or damaged; train anew")
    if began == current:
        return
    others = {
        "test": "the test data are",
        "validation": "the validation data are",
        "warm_start": "the model to start at is",
    }
    changed = {key for key in began.keys() | current.keys() if began.get(key) != current.get(key)}
    if changed <= others.keys():
        what = f"{others[min(changed)]} not what"
    else:
        what = f"{shown(partition.path)}: not the data that"
    raise InputError(f"{what} {shown(run)} began with (digests differ); train anew")


def model_digest(model: Model) -> str:
    """Digest of weights and intercept."""
    digest = hashlib.sha256(np.ascontiguousarray(model.intercept, dtype="<f8").tobytes())
    for party in model.parties:
        digest.update(np.ascontiguousarray(party.scale * party.weights, dtype="<f8").tobytes())
    return f"sha256:{digest.hexdigest()}"

"""What is in a path: a plain dictionary for any file or directory of ours."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastadmm.errors import FormatError, StorageError
from fastadmm.files.atomic import shown, storage_errors
from fastadmm.privacy.origins import private_constants
from fastadmm.runs.claim import said_of_model, said_of_run, without_claim
from fastadmm.runs.config import check_settings
from fastadmm.runs.folder import document_in
from fastadmm.store.elements import read_attribute
from fastadmm.store.h5file import read_h5
from fastadmm.store.label_file import LABELS_TYPE, LabelData, open_labels
from fastadmm.store.model import open_shared_part
from fastadmm.store.partition import MANIFEST, SHARDS, open_partition
from fastadmm.store.party_file import PARTY_TYPE, PartyData, open_party

if TYPE_CHECKING:
    from fastadmm.store.owner_file import OwnerFile

_OWNERS_MANIFEST = "owners.toml"
_OWNER_TYPE = "fastadmm-owner"
_NAMES_SHOWN = 10


def describe(path: str | os.PathLike[str], *, check: bool = False) -> dict[str, Any]:
    """Describe an HDF5 file of ours, a partition, a directory of owners, a run or a model."""
    path = Path(path)
    with storage_errors(path, "read"):
        path.stat()
        names = set(os.listdir(path)) if path.is_dir() else None
    if names is None:
        return {"path": str(path), **_file(path, check)}
    for files, told in _DIRECTORIES.items():
        if names & set(files):
            return {"path": str(path), **told(path, check)}
    raise FormatError(
        f"{shown(path)}: holds no {MANIFEST}, {_OWNERS_MANIFEST}, run.toml or model.toml: "
        "not a directory of fastadmm"
    )


def _file(path: Path, check: bool) -> dict[str, Any]:
    with read_h5(path) as file:
        kind = read_attribute(file, "encoding-type", str)
    if kind in (PARTY_TYPE, _OWNER_TYPE):
        from fastadmm.store.owner_file import open_owner

        of_party = kind == PARTY_TYPE
        data: Any = open_party(path) if of_party else open_owner(path)
        told = {"kind": kind.removeprefix("fastadmm-"), **(_party if of_party else _owner)(data, check)}
        return told | {"first_features": data.feature_names[:_NAMES_SHOWN]}
    if kind == LABELS_TYPE:
        return {"kind": "labels", **_labels(open_labels(path))}
    if not kind.startswith("fastadmm-"):
        raise FormatError(
            f"{shown(path)}: attribute 'encoding-type' of '/' is {kind!r}: an HDF5 file, but not of fastadmm"
        )
    with read_h5(path) as file:
        version = read_attribute(file, "encoding-version", str)
        attributes = {str(key): np.asarray(value).tolist() for key, value in file.attrs.items()}
    return {"kind": "hdf5", "encoding": kind, "version": version, "attributes": attributes}


def _of(what: Any, *names: str) -> dict[str, Any]:
    return {name: getattr(what, name) for name in names}


def _party(party: PartyData, check: bool) -> dict[str, Any]:
    if check:
        party.verify()
    steps = party.transform
    transform = {"normalize": steps.normalize, "center": steps.center is not None}
    transform |= {"scale": steps.scale is not None, "digest": steps.digest()}
    return {
        **_of(party, "name", "n_samples", "n_features"),
        "storage": party.kind,
        "dtype": party.dtype.name,
        "nnz": party.nnz,
        "memory_bytes": party.nbytes,
        "transform": transform,
        "private_constants": private_constants(party.steps),
        **_of(party, "row_digest", "content_digest"),
        "checked": check,
        "file": party.path.name,
    }


def _labels(labels: LabelData) -> dict[str, Any]:
    numbers = None if labels.classes is None else range(len(labels.classes))
    return {
        **_of(labels, "n_samples", "task", "row_digest"),
        "file": labels.path.name,
        "sample_weight": labels.sample_weight is not None,
        "offset": labels.offset is not None,
        **_values(labels.y, labels.classes, numbers),
    }


def _values(y: np.ndarray, classes: Sequence[str] | None, numbers: Iterable[int] | None) -> dict[str, Any]:
    """Rows of each class, by its number among the targets; or the range of the targets."""
    if classes is None or numbers is None:
        return {"mean": float(y.mean()), "min": float(y.min()), "max": float(y.max())}
    return {"classes": list(classes), "counts": [int((y == number).sum()) for number in numbers]}


def _partition(path: Path, check: bool) -> dict[str, Any]:
    partition = open_partition(path, require_labels=False)
    extra: dict[str, Any] = {}
    if (shard := partition.shard) is not None:
        last = shard.first_row + partition.n_samples
        extra["shard"] = asdict(shard) | {"rows": [shard.first_row + 1, last]}
    if partition.shards:
        extra["shards"] = [{"path": part.path.name, "n_samples": part.n_samples} for part in partition.shards]
    return extra | {
        "kind": "partition",
        **_of(partition, "n_samples", "task", "source", "row_digest"),
        "n_features": sum(party.n_features for party in partition.parties),
        "parties": [_party(party, check) for party in partition.parties],
        "labels": None if partition.labels is None else _labels(partition.labels),
    }


def _owner(owner: OwnerFile, check: bool) -> dict[str, Any]:
    y = owner.targets()
    for _ in owner.iter_rows() if check else ():  # checksums, indices, finite values
        pass
    return {
        **_of(owner, "name", "n_samples", "n_features", "task", "content_digest"),
        "storage": owner.kind,
        "memory_bytes": owner.nbytes,
        "recipe": sorted(owner.recipe),
        "checked": check,
        "file": owner.path.name,
        **_values(y, owner.classes, (-1, 1)),
    }


def _owners(path: Path, check: bool) -> dict[str, Any]:
    from fastadmm.store.owner_file import open_owners

    data = open_owners(path)
    return {
        "kind": "owners",
        **_of(data, "n_samples", "task", "kappa"),
        "n_features": data.owners[0].n_features,
        "owners": [_owner(owner, check) for owner in data.owners],
    }


def _run(path: Path, check: bool) -> dict[str, Any]:
    result = document_in(path / "result.json")
    config = document_in(path / "run.toml") or document_in(path / "owners-run.toml")
    check_settings(config or {}, path / "run.toml")
    said = said_of_run(path, result, config or {})
    statement = (document_in(path / "privacy.json") or {}).get("statement")
    return {
        "kind": "run",
        "status": (result or {}).get("status", "unfinished"),
        "claim": None if said is None else said.line,
        "result": None if result is None else without_claim(result, said),
        "config": config,
        "privacy": statement,
    }


def _model(path: Path, check: bool) -> dict[str, Any]:
    manifest = document_in(path / "model.toml")
    with storage_errors(path, "read"):
        names = sorted(name for name in os.listdir(path) if name.endswith(".h5") and not name.startswith("."))
    if not names:
        raise StorageError(f"{shown(path)}: model.toml names a model, but there is no .h5 file beside it")
    files = [{"file": name, **_file(path / name, check=False)} for name in names]
    said = None
    with suppress(FormatError, StorageError):  # what is incomplete is listed all the same
        said = said_of_model(*open_shared_part(path))
    if manifest is not None and isinstance(certificate := manifest.get("certificate"), dict):
        manifest["certificate"] = without_claim(certificate, said)
    return {"kind": "model", "claim": None if said is None else said.line, "model": manifest, "files": files}


#: What describes a directory that has one of these files, in the order of trust.
_DIRECTORIES = {
    (MANIFEST, SHARDS): _partition,
    (_OWNERS_MANIFEST,): _owners,
    ("run.toml", "owners-run.toml", "result.json", "rounds.jsonl"): _run,
    ("model.toml",): _model,
}

"""Model directories: each party's weights in a file of their own, the intercept with the coordinator.

The layout is normative in ``docs/file-format.md``: ``model.toml`` names the files; ``<party>.h5`` can be
given to that party alone; ``coordinator.h5`` holds the intercept, the class names and, for a fusion
model, the factor of each party's score. Manifest and ``coordinator.h5`` together are the *shared part*.
Every file carries the model's id. It is not a function of the data: it is the run's random identifier and the
number of rounds. A digest detects damage; it covers exact numbers, so it stays beside these numbers.
"""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import issparse

from fastadmm.errors import ConfigError, FormatError, InputError, StorageError
from fastadmm.files.atomic import atomic_directory, shown, storage_errors, write_whole
from fastadmm.files.digest import strings_digest
from fastadmm.files.reading import read_toml
from fastadmm.files.seal import get_key, seal_of
from fastadmm.privacy.statement import PrivacyStatement
from fastadmm.problem.losses import parse_loss
from fastadmm.settings.keys import PENALTY
from fastadmm.store import elements as h5
from fastadmm.store.encoder import Encoder
from fastadmm.store.h5file import check_version, create_h5, read_h5
from fastadmm.store.partition import Partition
from fastadmm.store.party_file import PartyData, check_party_name
from fastadmm.store.transform import Transform

FORMAT = "fastadmm-model"
VERSION = "1.2"

#: What the weights were penalised by, and whether there was an offset.
_ABOUT = (*PENALTY, "offset")

#: The id of models of these was a digest of their content.
_OLD_VERSIONS = ("1.0", "1.1")
VERSIONS = (*_OLD_VERSIONS, VERSION)
PARTY_MODEL = "fastadmm-party-model"
_REMEDY = "convert with --like the training partition"
MANIFEST = "model.toml"
COORDINATOR = "coordinator.h5"


def model_id_of(run_id: str, rounds: int) -> str:
    """The id of a run's model after some rounds: the same when the run is resumed."""
    return f"{run_id}-{rounds}"


def _shared_digest(manifest: dict[str, Any], **held: Any) -> str:
    """``sha256:<hex>`` of everything in ``model.toml`` but itself, and of what ``coordinator.h5`` holds."""
    numbers = ("intercept", "scales", "means")
    document = {
        "manifest": {key: value for key, value in manifest.items() if key != "digest"},
        "classes": None if held["classes"] is None else list(held["classes"]),
        **{key: None if held[key] is None else np.asarray(held[key], float).tolist() for key in numbers},
    }
    return _sha256(document)


def content_id(
    manifest: dict[str, Any],
    intercept: Any,
    classes: Sequence[str] | None,
    scales: Sequence[float],
    certificate: dict[str, Any],
) -> str:
    """The id of models of format 1.0 and 1.1, which was a digest of their exact numbers.

    Shapes: intercept (C,).
    """
    document = {
        "loss": manifest["loss"],
        "task": manifest["task"],
        "lambda": float(manifest["lambda"]).hex(),
        "intercept": [float(b).hex() for b in np.atleast_1d(intercept)],
        "classes": None if classes is None else list(classes),
        "parties": [[entry["name"], int(entry["n_features"])] for entry in manifest["party"]],
        "scales": [float(scale).hex() for scale in scales],
        "certificate": {
            key: value.hex() if isinstance(value, float) else value
            for key, value in certificate.items()
            if isinstance(value, (str, int, float))
        },
    }
    return _sha256(document)


def _sha256(document: dict[str, Any]) -> str:
    # default=str: an edited manifest may hold TOML's dates.
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), default=str)
    return "sha256:" + sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True)
class PartyModel:
    """One party's part of a model. Shapes: weights (d_m,) or (d_m, C)."""

    name: str
    weights: np.ndarray  # of shape (d_m,) or (d_m, C)
    feature_names: list[str]
    transform: Transform  # what the training data went through; new raw data get the same
    clipped: bool = False  # whether rows were clipped to norm 1 after that, as private training does
    scale: float = 1.0
    encoder: Encoder | None = None
    privacy: str | None = None

    def contribution(self, party: PartyData) -> np.ndarray:
        """This party's summand of the linear predictor, read row block by row block.

        Shapes: the result (N,) or (N, C).
        """
        own = self.feature_names, self.transform, self.name
        transform = self.transform if party.needs_transform(*own, _REMEDY) else None
        out = np.empty((party.n_samples, *self.weights.shape[1:]))
        for start, rows in party.iter_rows():
            out[start : start + rows.shape[0]] = self._summand(rows, transform)
        return out

    def contribution_of(self, X: np.ndarray) -> np.ndarray:
        """The summand of rows in memory, before the transform.

        Shapes: X (N, d_m); the result (N,) or (N, C).
        """
        out = np.empty((len(X), *self.weights.shape[1:]))
        step = max(1, (1 << 20) // max(X.shape[1], 1))
        for start in range(0, len(X), step):
            out[start : start + step] = self._summand(X[start : start + step], self.transform)
        return out

    def _summand(self, rows: Any, transform: Transform | None) -> np.ndarray:
        """Some rows' summand, scaled first where they are not yet.

        Shapes: rows (k, d_m); the result (k,) or (k, C).
        """
        from fastadmm.privacy.sensitivity import clip_rows

        with np.errstate(over="ignore", invalid="ignore"):  # callers refuse what is not finite
            if transform is not None:
                # Centring fills a sparse block; these are a few rows at a time.
                fills = issparse(rows) and transform.center is not None
                rows = transform.apply(rows.toarray() if fills else rows)
            found: np.ndarray = (clip_rows(rows) if self.clipped else rows) @ self.weights
        return found


@dataclass(frozen=True)
class _Common:
    """What a model and its shared part both say. Shapes: intercept (C,)."""

    loss: str  # its name, with ``:value`` where in_model says so
    task: str
    lam: float  # regularisation per mean loss
    intercept: Any  # of shape (C,)
    classes: tuple[str, ...] | None
    _: KW_ONLY
    penalty: dict[str, Any] = field(default_factory=dict)  # PENALTY, where known; for reading only
    privacy: PrivacyStatement | None = None
    model_id: str = field(default_factory=lambda: secrets.token_hex(8))  # the id in all files of the model

    def common(self) -> dict[str, Any]:
        """These fields, by name."""
        return {one.name: getattr(self, one.name) for one in fields(_Common)}


@dataclass(frozen=True)
class Model(_Common):
    """A trained joint model."""

    parties: list[PartyModel]
    certificate: dict[str, Any]

    @property
    def shared(self) -> SharedPart:
        """Everything except the parties' own files."""
        return SharedPart(
            **self.common(),
            names=[party.name for party in self.parties],
            n_features=[len(party.weights) for party in self.parties],
            scales=[party.scale for party in self.parties],
            certificate=self.certificate,
        )

    def linear_predictor(self, partition: Partition) -> np.ndarray:
        """Scores z: offset, intercept and every party's contribution.

        Of shape (N,), or (N, C) of a multinomial model.
        """
        have = [p.name for p in partition.parties]
        want = [p.name for p in self.parties]
        if have != want:
            names = f"parties {', '.join(have)}, but the model has {', '.join(want)}"
            raise InputError(f"{shown(partition.path)}: {names}; {_REMEDY}")
        offset = partition.labels.offset if partition.labels is not None else None
        contributions = [model.contribution(party) for model, party in zip(self.parties, partition.parties)]
        return self.shared.combine(contributions, offset)


@dataclass(frozen=True)
class SharedPart(_Common):
    """The coordinator's part of a model: everything except the parties' weights."""

    names: list[str]  # the parties, in order
    n_features: list[int]  # columns of each
    scales: list[float]  # factor of each party's score
    certificate: dict[str, Any]

    def manifest(self) -> dict[str, Any]:
        """Content of ``model.toml``."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "id": self.model_id,
            "task": self.task,
            "loss": self.loss,
            "lambda": float(self.lam),
            **{key: self.penalty[key] for key in _ABOUT if key in self.penalty},
            "certificate": {k: v for k, v in self.certificate.items() if v is not None},
            **({"privacy": _without_none(self.privacy.to_json())} if self.privacy is not None else {}),
            "coordinator": {"file": COORDINATOR},
            "party": [
                {"name": name, "file": f"{name}.h5", "n_features": int(d)}
                for name, d in zip(self.names, self.n_features)
            ],
        }

    def combine(self, contributions: list[np.ndarray], offset: np.ndarray | None) -> np.ndarray:
        """Scores z: intercept, offset and every party's contribution, added in the parties' order.

        Shapes: each of contributions, the result (N,) or (N, C); offset (N,).
        """
        z = np.full((len(contributions[0]), *np.shape(self.intercept)), self.intercept)
        if offset is None and self.penalty.get("offset"):
            raise InputError(
                "the model was trained with an offset, and these rows have none: add it with predict "
                "--offset (tables), convert --offset (partitions) or combine --labels"
            )
        if offset is not None:
            # The same for every class of a multinomial model, it changes none of their shares.
            z += offset if z.ndim == 1 else offset[:, np.newaxis]
        with np.errstate(over="ignore", invalid="ignore"):  # who uses z looks for what overflows
            for scale, contribution in zip(self.scales, contributions):
                z += scale * contribution
        return z


def write_model(path: str | os.PathLike[str], model: Model, *, force: bool = False) -> Path:
    """Write a model directory, completely or not at all."""
    shared = model.shared
    with atomic_directory(path, force=force, marker=MANIFEST) as directory:
        for party in model.parties:
            write_party_model(directory / f"{party.name}.h5", party, model_id=shared.model_id)
        write_shared_part(directory, shared)
    return Path(path)


def write_party_model(path: str | os.PathLike[str], party: PartyModel, *, model_id: str) -> None:
    """Write one party's file of a model, over an existing one too."""
    with create_h5(path, PARTY_MODEL, VERSION, force=True) as file:
        file.attrs["name"] = party.name
        file.attrs["model-id"] = model_id
        file.attrs["rows"] = "clipped" if party.clipped else "as they are"
        if party.privacy is not None:
            file.attrs["privacy"] = party.privacy
        h5.write_array(file, "weights", np.asarray(party.weights, dtype=np.float64))
        h5.write_strings(file.require_group("var"), "names", party.feature_names)
        party.transform.to_group(file.create_group("transform"))
        if party.encoder is not None:
            party.encoder.to_group(file.create_group("encoder"))
        file.attrs["digest"] = party_digest(party, model_id)


def party_digest(party: PartyModel, model_id: str) -> str:
    """Digest of what a party's file or its JSON holds, by which a changed one is refused."""
    content = {
        "name": party.name,
        "model_id": model_id,
        "clipped": party.clipped,
        "privacy": party.privacy,
        "feature_names": strings_digest(party.feature_names),
        "weights": sha256(np.ascontiguousarray(party.weights, dtype="<f8").tobytes()).hexdigest(),
        "transform": party.transform.digest(),
        "encoder": None if party.encoder is None else party.encoder.to_json(),
    }
    return seal_of(content)


def check_party_digest(party: PartyModel, model_id: str, digest: str | None, place: str) -> None:
    """Refuse a party's part that is not what was written; older ones have no digest."""
    if digest not in (None, party_digest(party, model_id)):
        raise FormatError(
            f"{place}: damaged, or changed since it was written (its digest differs); restore it"
        )


def write_shared_part(directory: Path, shared: SharedPart) -> None:
    """Write manifest and ``coordinator.h5`` into an existing directory."""
    import tomli_w

    manifest = shared.manifest()
    with create_h5(directory / COORDINATOR, "fastadmm-coordinator-model", VERSION) as file:
        file.attrs["model-id"] = shared.model_id
        held = {"intercept": shared.intercept, "classes": shared.classes, "scales": shared.scales}
        file.attrs["digest"] = _shared_digest(manifest, means=None, **held)
        if np.ndim(shared.intercept):
            h5.write_array(file, "intercepts", np.asarray(shared.intercept, dtype=np.float64))
        else:
            file.attrs["intercept"] = float(shared.intercept)
        file.attrs["loss"] = shared.loss
        if shared.privacy is not None:
            file.attrs["privacy"] = shared.privacy.one_line()
        if shared.classes is not None:
            h5.write_strings(file, "classes", list(shared.classes))
        if any(scale != 1.0 for scale in shared.scales):
            h5.write_array(file, "scales", np.array(shared.scales))
    write_whole(directory / MANIFEST, tomli_w.dumps(manifest))


def open_model(path: str | os.PathLike[str]) -> Model:
    """Open a model directory, or the model of a run directory."""
    shared, directory = open_shared_part(path)
    parties = [_open_party(directory, shared, name, d) for name, d in zip(shared.names, shared.n_features)]
    held = [replace(party, scale=scale) for party, scale in zip(parties, shared.scales)]
    return Model(**shared.common(), parties=held, certificate=shared.certificate)


def open_shared_part(path: str | os.PathLike[str]) -> tuple[SharedPart, Path]:
    """Open a model's manifest and ``coordinator.h5``; no party's file needs to be there."""
    directory = Path(path)
    with storage_errors(path, "read"):
        if not (directory / MANIFEST).exists() and (directory / "model" / MANIFEST).exists():
            directory = directory / "model"
        manifest = directory / MANIFEST
        if not manifest.exists():
            run = (directory / "run.toml").exists()
            hint = "not a model; give the directory of a run or of its model"
            hint = "this run has no model yet: finish it with 'fastadmm resume'" if run else hint
            kind = FormatError if Path(path).exists() and not run else StorageError
            raise kind(f"{shown(path)}: no {MANIFEST}: {hint}")
    values, place = read_toml(manifest), shown(manifest)
    if values.get("format") != FORMAT:
        raise FormatError(f"{place}: key 'format' is {values.get('format')!r}, expected {FORMAT!r}")
    check_version(manifest, get_key(values, "version", str, place), VERSIONS, "key 'version'")
    names, n_features = _party_entries(place, values)
    loss, task = get_key(values, "loss", str, place), get_key(values, "task", str, place)
    try:
        known = parse_loss(loss)
    except ConfigError:
        raise FormatError(f"{place}: key 'loss': unknown loss {loss!r}; upgrade fastadmm") from None
    if task != known.task:
        raise FormatError(f"{place}: key 'task': {task!r} does not go with loss {loss!r}")
    held = _read_coordinator(directory, values, len(names))
    certificate = get_key({"certificate": {}, **values}, "certificate", dict, place)
    penalty, privacy = _penalty(place, values, names), None
    digest, means = held.pop("digest"), held.pop("means")
    if values["version"] in _OLD_VERSIONS:
        model_id = content_id(values, **held, certificate=certificate)
    else:
        model_id = get_key(values, "id", str, place)
        if digest != _shared_digest(values, **held, means=means):
            raise FormatError(f"{place}: does not agree with the digest in {COORDINATOR}; damaged or edited")
    if "privacy" in values:
        privacy = PrivacyStatement.from_json(values["privacy"], f"{place}: key 'privacy'")
    found = {"loss": loss, "task": task, "lam": float(get_key(values, "lambda", float, place))}
    found |= {"names": names, "n_features": n_features, "certificate": certificate, "penalty": penalty}
    return SharedPart(**held, **found, privacy=privacy, model_id=model_id), directory


def _read_coordinator(directory: Path, values: dict[str, Any], n_parties: int) -> dict[str, Any]:
    """What ``coordinator.h5`` holds, checked against the manifest."""
    vector, task = parse_loss(values["loss"]).vector, values["task"]
    intercept: Any
    with read_h5(directory / COORDINATOR, "fastadmm-coordinator-model", VERSIONS) as file:
        if vector:
            intercept = np.asarray(h5.read_array(file, "intercepts", ndim=1, kind="f"), dtype=np.float64)
        else:
            intercept = float(h5.read_attribute(file, "intercept", float))
        classes = tuple(h5.read_strings(file, "classes")) if "classes" in file else None
        scales = h5.read_array(file, "scales", ndim=1, kind="f") if "scales" in file else np.ones(n_parties)
        means = h5.read_array(file, "means", kind="f") if "means" in file else None  # of version 0.2
        digest = "" if values["version"] in _OLD_VERSIONS else h5.read_attribute(file, "digest", str)
        if len(scales) != n_parties or not np.isfinite(scales).all():
            raise h5.bad(file, "scales", f"must hold {n_parties} finite numbers")
        if not np.isfinite(intercept).all():
            raise h5.bad(file, "intercept", f"is {intercept}, not finite")
        wanted = len(intercept) if vector else 2
        if wanted < 2 or (classes is None and task == "classification"):
            raise h5.bad(file, "classes", "is missing, or there is only one class")
        if classes is not None and len(classes) != wanted:
            raise h5.bad(file, "classes", f"holds {len(classes)} names, expected {wanted}")
    found = {"intercept": intercept, "classes": classes, "means": means, "digest": digest}
    return found | {"scales": scales.tolist()}


def _penalty(place: str, values: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """What the weights were penalised by, as far as the manifest says."""
    for key, kind, what in (("party_lambda", float, "positive number"), ("party_constraint", str, "text")):
        own: dict[str, Any] = get_key({key: {}, **values}, key, dict, place)
        right = all(isinstance(v, kind) and (kind is str or 0 < float(v) < math.inf) for v in own.values())
        if key in values and not (own.keys() == set(names) and right):
            raise FormatError(f"{place}: key {key!r} must hold one {what} for each party")
    return {key: values[key] for key in _ABOUT if key in values}


def _party_entries(place: str, values: dict[str, Any]) -> tuple[list[str], list[int]]:
    entries = get_key(values, "party", list, place)
    if not entries:
        raise FormatError(f"{place}: key 'party' is empty")
    names: list[str] = []
    widths: list[int] = []
    for entry in entries:
        if not isinstance(entry, dict):
            raise FormatError(f"{place}: key 'party' must hold tables")
        name = check_party_name(get_key(entry, "name", str, place), place, FormatError)
        if name in names:
            raise FormatError(f"{place}: key 'party': {name!r} occurs twice")
        names.append(name)
        widths.append(get_key(entry, "n_features", int, place))
    return names, widths


def _without_none(value: Any) -> Any:
    """TOML has no null: what is None is left out."""
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, list) else value


def _open_party(directory: Path, shared: SharedPart, name: str, n_features: int) -> PartyModel:
    path = directory / f"{name}.h5"
    with storage_errors(path, "read"):
        if not path.exists():
            raise StorageError(
                f"{shown(path)}: the weights of {name} are not here; 'fastadmm import' adds them, and "
                "'fastadmm combine' predicts without them"
            )
    party, model_id = open_party_model(path)
    if party.name != name:
        raise FormatError(f"{shown(path)}: attribute 'name' is not {name!r}: the file of another party")
    wanted = (n_features, *np.shape(shared.intercept))
    if party.weights.shape != wanted:
        raise FormatError(
            f"{shown(path)}: key 'weights' is of shape {party.weights.shape}, but {MANIFEST} and the "
            f"intercepts say {wanted}; they must agree"
        )
    if model_id not in (None, shared.model_id):
        raise FormatError(f"{shown(path)}: attribute 'model-id': the file belongs to another model")
    return party


def open_party_model(path: str | os.PathLike[str]) -> tuple[PartyModel, str | None]:
    """Open one party's file of a model."""
    with read_h5(path, PARTY_MODEL, VERSIONS) as file:
        name = h5.read_attribute(file, "name", str)
        name = check_party_name(name, f"{shown(path)}: attribute 'name'", FormatError)
        weights = np.asarray(h5.read_array(file, "weights", kind="f"), dtype=np.float64)
        names = h5.read_strings(h5.require_group(file, "var"), "names")
        transform = Transform.from_group(h5.require_group(file, "transform"))
        clipped = str(file.attrs.get("rows", "")) == "clipped"
        model_id = h5.read_optional(file, "model-id", str)
        encoder = Encoder.of_file(file)
        privacy = h5.read_optional(file, "privacy", str)
        digest = h5.read_optional(file, "digest", str)
        if weights.ndim not in (1, 2):
            raise h5.bad(file, "weights", f"has {weights.ndim} dimensions instead of 1 or 2")
        if not np.isfinite(weights).all():
            raise h5.bad(file, "weights", "holds NaN or infinity")
        if len(names) != len(weights):
            raise h5.bad(file, "var/names", f"{len(names)} names for {len(weights)} weights; they must agree")
        if encoder is not None and encoder.feature_names != names:
            raise h5.bad(file, "encoder", "does not agree with 'var/names'; damaged or edited")
    party = PartyModel(name, weights, names, transform, clipped, encoder=encoder, privacy=privacy)
    check_party_digest(party, str(model_id), digest, shown(path))
    return party, model_id


def check_same_columns(parties: Sequence[PartyData], reference: Sequence[PartyData], place: str) -> None:
    """Refuse a test partition whose parties, columns or transforms differ from training."""
    if [p.name for p in parties] != [p.name for p in reference]:
        raise InputError(f"{place}: parties differ from training; {_REMEDY}")
    for own, known in zip(parties, reference):
        own.needs_transform(known.feature_names, known.transform, known.name, _REMEDY, scaled=True)

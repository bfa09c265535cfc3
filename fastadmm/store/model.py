"""Model directories: each party's weights alone in its own file, the intercept with the coordinator.

The layout is normative in ``docs/file-format.md``: ``model.toml`` names the
files; ``<party>.h5`` can be handed to that party alone; ``coordinator.h5``
holds the intercept, the class names and, of a fusion model, what each party's
score counts.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.errors import FormatError, InputError, StorageError
from fastadmm.losses import LOSSES
from fastadmm.privacy.statement import PrivacyStatement
from fastadmm.store.atomic import atomic_directory, atomic_file, shown, storage_errors
from fastadmm.store.elements import (
    read_array,
    read_attribute,
    read_strings,
    require_group,
    write_array,
    write_strings,
)
from fastadmm.store.h5file import check_version, create_h5, read_h5
from fastadmm.store.partition import Partition
from fastadmm.store.party_file import PartyData, check_party_name
from fastadmm.store.transform import Transform

__all__ = ["Model", "PartyModel", "open_model", "write_model"]

FORMAT = "fastadmm-model"
VERSION = "1.0"

#: Of models with one weight vector per class, with scales of the parties' scores, or for clipped rows:
#: readers of 1.0 would predict wrongly and have to refuse them. The others are still written as 1.0.
LATER_VERSION = "1.1"
_VERSIONS = (VERSION, LATER_VERSION)
MANIFEST = "model.toml"
COORDINATOR = "coordinator.h5"

#: Keys of the manifest that say what the weights were penalised and constrained by.
_PENALTY_KEYS = ("regularizer", "l1_ratio", "constraint")


@dataclass(frozen=True)
class PartyModel:
    """One party's part of a model.

    Attributes
    ----------
    name : str
    weights : ndarray of shape (d_m,) or (d_m, C)
        x_m, for features after the transform; one column per class of a multinomial model.
    feature_names : list of str
    transform : Transform
        What the training data went through; new raw data get the same.
    clipped : bool
        Whether rows were clipped to norm 1 after that, as private training does.
    scale : float
        What this party's score counts in the joint predictor; kept by the
        coordinator, because it depends on the label holder's data.
    """

    name: str
    weights: np.ndarray
    feature_names: list[str]
    transform: Transform
    clipped: bool = False
    scale: float = 1.0

    def contribution(self, party: PartyData) -> np.ndarray:
        """This party's summand of the linear predictor, read row block by row block.

        Parameters
        ----------
        party : PartyData
            Features of the same party, raw or already transformed like the training data.

        Returns
        -------
        ndarray of shape (N,) or (N, C)
            ``D_m x_m``.

        Raises
        ------
        InputError
            If columns or transform are not those of training.
        """
        from scipy.sparse import issparse

        from fastadmm.privacy.rows import clip_rows

        place = shown(party.path)
        if party.n_features != len(self.weights):
            raise InputError(
                f"{place}: {party.n_features} features, but {self.name} was trained on {len(self.weights)}; "
                "convert with --like the training partition"
            )
        if list(party.feature_names) != self.feature_names:
            k = next(i for i, (a, b) in enumerate(zip(party.feature_names, self.feature_names)) if a != b)
            raise InputError(
                f"{place}: feature {k + 1} is {party.feature_names[k]!r}, but {self.name} was trained on "
                f"{self.feature_names[k]!r} there; convert with --like the training partition"
            )
        same = party.transform.digest() == self.transform.digest()
        if not same and not party.transform.is_identity:
            raise InputError(
                f"{place}: features were scaled with other parameters than {self.name}'s training data; "
                "convert with --like the training partition"
            )
        out = np.empty((party.n_samples, *self.weights.shape[1:]))
        for start, rows in party.iter_rows():
            if not same:
                # Centring fills a sparse block; these are a few rows at a time.
                fills = issparse(rows) and self.transform.center is not None
                rows = self.transform.apply(rows.toarray() if fills else rows)  # type: ignore[union-attr]
            out[start : start + rows.shape[0]] = (clip_rows(rows) if self.clipped else rows) @ self.weights
        return out


@dataclass(frozen=True)
class Model:
    """A trained joint model.

    Attributes
    ----------
    loss : str
    task : {"classification", "regression"}
    lam : float
        Regularisation per mean loss.
    intercept : float or ndarray of shape (C,)
    classes : tuple of str or None
        Original labels of class 0, class 1 and so on; also of a regression on them (squared loss).
    parties : list of PartyModel
    certificate : dict
        ``status``, ``objective``, ``gap``, ``gap_absolute``, ``rounds`` of the training run; of a
        non-convex problem ``stationarity`` in place of the gaps.
    penalty : dict
        ``regularizer``, ``constraint`` and ``l1_ratio``, where known; for reading only.
    privacy : PrivacyStatement or None
        What training guaranteed; None for a model older than statements.
    """

    loss: str
    task: str
    lam: float
    intercept: Any
    classes: tuple[str, ...] | None
    parties: list[PartyModel]
    certificate: dict[str, Any]
    penalty: dict[str, Any] = field(default_factory=dict)
    privacy: PrivacyStatement | None = None

    def linear_predictor(self, partition: Partition) -> np.ndarray:
        """Scores z: offset, intercept and every party's contribution.

        Of shape (N,), or (N, C) of a multinomial model.

        Raises
        ------
        InputError
            If the partition's parties are not the model's.
        """
        have = [p.name for p in partition.parties]
        want = [p.name for p in self.parties]
        if have != want:
            raise InputError(
                f"{shown(partition.path)}: parties {', '.join(have)}, but the model has {', '.join(want)}; "
                "convert with --like the training partition"
            )
        z = np.full((partition.n_samples, *np.shape(self.intercept)), self.intercept)
        if partition.labels is not None and partition.labels.offset is not None:
            # The same for every class of a multinomial model, it changes none of their shares.
            z += partition.labels.offset if z.ndim == 1 else partition.labels.offset[:, np.newaxis]
        for model, party in zip(self.parties, partition.parties):
            z += model.scale * model.contribution(party)
        return z


def write_model(path: str | os.PathLike[str], model: Model, *, force: bool = False) -> Path:
    """Write a model directory, completely or not at all.

    Parameters
    ----------
    path : path
        Directory to create.
    model : Model
    force : bool
        Whether an older model there may be replaced.

    Returns
    -------
    pathlib.Path

    Raises
    ------
    StorageError
        If it cannot be written, or exists and ``force`` is false.
    """
    import tomli_w

    scaled = any(party.scale != 1.0 for party in model.parties)
    clipped = any(party.clipped for party in model.parties)
    version = LATER_VERSION if scaled or clipped or np.ndim(model.intercept) else VERSION
    with atomic_directory(path, force=force, marker=MANIFEST) as directory:
        for party in model.parties:
            with create_h5(directory / f"{party.name}.h5", "fastadmm-party-model", version) as file:
                file.attrs["name"] = party.name
                file.attrs["rows"] = "clipped" if party.clipped else "as they are"
                if model.privacy is not None:
                    file.attrs["privacy"] = model.privacy.weights_line()
                write_array(file, "weights", np.asarray(party.weights, dtype=np.float64))
                write_strings(file.require_group("var"), "names", party.feature_names)
                party.transform.to_group(file.create_group("transform"))
        with create_h5(directory / COORDINATOR, "fastadmm-coordinator-model", version) as file:
            if np.ndim(model.intercept):
                write_array(file, "intercepts", np.asarray(model.intercept, dtype=np.float64))
            else:
                file.attrs["intercept"] = float(model.intercept)
            file.attrs["loss"] = model.loss
            if model.privacy is not None:
                file.attrs["privacy"] = model.privacy.one_line()
            if model.classes is not None:
                write_strings(file, "classes", list(model.classes))
            if scaled:
                write_array(file, "scales", np.array([party.scale for party in model.parties]))
        manifest: dict[str, Any] = {
            "format": FORMAT,
            "version": version,
            "task": model.task,
            "loss": model.loss,
            "lambda": float(model.lam),
            **{key: model.penalty[key] for key in _PENALTY_KEYS if key in model.penalty},
            "certificate": {k: v for k, v in model.certificate.items() if v is not None},
            **({"privacy": _without_none(model.privacy.to_json())} if model.privacy is not None else {}),
            "coordinator": {"file": COORDINATOR},
            "party": [
                {"name": p.name, "file": f"{p.name}.h5", "n_features": len(p.weights)} for p in model.parties
            ],
        }
        with atomic_file(directory / MANIFEST) as temporary:
            temporary.write_text(tomli_w.dumps(manifest), encoding="utf-8")
    return Path(path)


def open_model(path: str | os.PathLike[str]) -> Model:
    """Open a model directory, or the model of a run directory.

    Parameters
    ----------
    path : path
        A model directory, or a run directory with a ``model`` folder.

    Returns
    -------
    Model

    Raises
    ------
    StorageError
        If there is no model.
    FormatError
        If a file is damaged, or of another kind or version; names file and key.
    """
    directory = Path(path)
    with storage_errors(path, "read"):
        if not (directory / MANIFEST).exists() and (directory / "model" / MANIFEST).exists():
            directory = directory / "model"
        manifest = directory / MANIFEST
        if not manifest.exists():
            hint = (
                "this run has no model yet: finish it with 'fastadmm resume'"
                if _is_run(directory)
                else "not a model"
            )
            raise StorageError(f"{shown(path)}: no {MANIFEST}: {hint}")
    with storage_errors(manifest, "read"):
        try:
            values = tomllib.loads(manifest.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise FormatError(f"{shown(manifest)}: not TOML: {error}") from None
    if values.get("format") != FORMAT:
        raise FormatError(f"{shown(manifest)}: key 'format' is {values.get('format')!r}, expected {FORMAT!r}")
    check_version(manifest, _get(manifest, values, "version", str), _VERSIONS, "key 'version'")
    entries = _get(manifest, values, "party", list)
    if not entries:
        raise FormatError(f"{shown(manifest)}: key 'party' is empty")
    loss, task = _get(manifest, values, "loss", str), _get(manifest, values, "task", str)
    if loss not in LOSSES:
        raise FormatError(f"{shown(manifest)}: key 'loss': unknown loss {loss!r}; upgrade fastadmm")
    if task != LOSSES[loss].task:
        raise FormatError(f"{shown(manifest)}: key 'task': {task!r} does not go with loss {loss!r}")
    vector = LOSSES[loss].vector
    parties = [_open_party(directory, manifest, entry, vector) for entry in entries]
    for k, party in enumerate(parties):
        if party.name in [other.name for other in parties[:k]]:
            raise FormatError(f"{shown(manifest)}: key 'party': {party.name!r} occurs twice")
    certificate = values.get("certificate", {})
    if not isinstance(certificate, dict):
        raise FormatError(f"{shown(manifest)}: key 'certificate' must be a table")
    intercept: Any
    with read_h5(directory / COORDINATOR, "fastadmm-coordinator-model", _VERSIONS) as file:
        if vector:
            intercept = np.asarray(read_array(file, "intercepts", ndim=1, kind="f"), dtype=np.float64)
        else:
            intercept = float(read_attribute(file, "intercept", float))
        names = read_strings(file, "classes") if "classes" in file else None
        scales = read_array(file, "scales", ndim=1, kind="f") if "scales" in file else np.ones(len(parties))
    if len(scales) != len(parties) or not np.isfinite(scales).all():
        raise FormatError(
            f"{shown(directory / COORDINATOR)}: key 'scales' must hold {len(parties)} finite numbers"
        )
    if not np.isfinite(intercept).all():
        raise FormatError(f"{shown(directory / COORDINATOR)}: attribute 'intercept' is {intercept}")
    if vector:
        _check_class_count(directory, len(intercept), names, parties)
    elif names is not None and len(names) != 2:
        raise FormatError(
            f"{shown(directory / COORDINATOR)}: key 'classes' holds {len(names)} names, expected 2"
        )
    if names is None and task == "classification":
        raise FormatError(f"{shown(directory / COORDINATOR)}: key 'classes' is missing")
    return Model(
        loss=loss,
        task=task,
        lam=float(_get(manifest, values, "lambda", float)),
        intercept=intercept,
        classes=tuple(names) if names is not None else None,
        parties=[replace(party, scale=float(scale)) for party, scale in zip(parties, scales)],
        certificate=certificate,
        penalty={key: values[key] for key in _PENALTY_KEYS if key in values},
        privacy=(
            PrivacyStatement.from_json(values["privacy"], f"{shown(manifest)}: key 'privacy'")
            if "privacy" in values
            else None
        ),
    )


def _without_none(value: Any) -> Any:
    """TOML has no null: what is None is left out."""
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value] if isinstance(value, list) else value


def _is_run(directory: Path) -> bool:
    return (directory / "run.toml").exists()


def _get(manifest: Path, values: dict[str, Any], key: str, kind: type) -> Any:
    value = values.get(key)
    if not isinstance(value, kind):
        problem = "is missing" if value is None else f"is {value!r}, expected {kind.__name__}"
        raise FormatError(f"{shown(manifest)}: key {key!r} {problem}")
    return value


def _check_class_count(
    directory: Path, n_classes: int, names: list[str] | None, parties: list[PartyModel]
) -> None:
    if n_classes < 2 or (names is not None and len(names) != n_classes):
        raise FormatError(
            f"{shown(directory / COORDINATOR)}: {n_classes} intercepts, but {len(names or [])} names in "
            "'classes'; they must agree, and be two at least"
        )
    for party in parties:
        if party.weights.shape[1] != n_classes:
            raise FormatError(
                f"{shown(directory / party.name)}.h5: key 'weights' holds {party.weights.shape[1]} columns, "
                f"but the model has {n_classes} classes"
            )


def _open_party(directory: Path, manifest: Path, entry: Any, vector: bool) -> PartyModel:
    if not isinstance(entry, dict):
        raise FormatError(f"{shown(manifest)}: key 'party' must hold tables")
    name = check_party_name(_get(manifest, entry, "name", str), shown(manifest), FormatError)
    path = directory / f"{name}.h5"
    with read_h5(path, "fastadmm-party-model", _VERSIONS) as file:
        if read_attribute(file, "name", str) != name:
            raise FormatError(
                f"{shown(path)}: attribute 'name' is not {name!r}: the file belongs to another party"
            )
        weights = np.asarray(read_array(file, "weights", ndim=2 if vector else 1, kind="f"), dtype=np.float64)
        names = read_strings(require_group(file, "var"), "names")
        transform = Transform.from_group(require_group(file, "transform"))
        clipped = str(file.attrs.get("rows", "")) == "clipped"
    if not np.isfinite(weights).all():
        raise FormatError(f"{shown(path)}: key 'weights' holds NaN or infinity")
    if len(names) != len(weights) or _get(manifest, entry, "n_features", int) != len(weights):
        raise FormatError(
            f"{shown(path)}: {len(weights)} weights, {len(names)} feature names, "
            f"{entry['n_features']} features in {MANIFEST}; they must agree"
        )
    return PartyModel(name, weights, names, transform, clipped)


def check_same_columns(parties: Sequence[PartyData], reference: Sequence[PartyData], place: str) -> None:
    """Refuse a test partition whose parties, columns or transforms differ from training.

    Parameters
    ----------
    parties, reference : sequence of PartyData
        Of the test and of the training partition.
    place : str
        What the error message calls the test partition.

    Raises
    ------
    InputError
    """
    if [p.name for p in parties] != [p.name for p in reference]:
        raise InputError(f"{place}: parties differ from training; convert with --like the training partition")
    for a, b in zip(parties, reference):
        if list(a.feature_names) != list(b.feature_names):
            raise InputError(
                f"{shown(a.path)}: columns differ from {b.name} of training; "
                "convert with --like the training partition"
            )
        if a.transform.digest() != b.transform.digest():
            raise InputError(
                f"{shown(a.path)}: features are scaled otherwise than {b.name} of training; "
                "convert with --like the training partition"
            )

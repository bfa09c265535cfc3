"""What a run was computed from and what is claimed of its model: digests, and whether these still agree.

The statement is the key ``certificate`` of ``result.json``, and without the digest of the data, which would
confirm a guess of them, a part of the model's. What prints a claim takes it from :func:`said_of_run` or
:func:`said_of_model`, which compare the digests first.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.errors import FastadmmError, FormatError, InputError, StorageError
from fastadmm.files.atomic import atomic_file, shown, storage_errors
from fastadmm.files.reading import require_regular
from fastadmm.files.seal import seal_of
from fastadmm.privacy.published import is_private
from fastadmm.proof.claim import Proof
from fastadmm.settings.keys import LIMITS, OBJECTIVE, PATHS, UNDECISIVE
from fastadmm.settings.run import RunConfig
from fastadmm.store.label_file import LabelData
from fastadmm.store.model import Model, SharedPart, open_model, open_shared_part
from fastadmm.store.partition import Partition

#: The dual vector of a run: it shows labels, and stays with the coordinator.
DUAL = "dual.npy"

#: What a statement is of.
DIGESTS = ("weights", "settings", "data")

#: Said of a model whose run recorded no digests.
OLD = "recorded by an older version, not checkable"

#: What a result says of a gap.
_CLAIMS = ("message", "certificate", "claim", "asked", "bound", "gap", "gap_absolute", "gap_within", "within")

_NUMBERS = ("asked", "objective", "bound", "gap", "gap_absolute")
_WITHIN = ("reach", "bound", "gap")


def settings_digest(settings: Mapping[str, Any], lam: float) -> str:
    """Digest of what decides the objective, among the settings of a run."""
    default = RunConfig("")
    usual = default.to_toml()
    told = [key for key in OBJECTIVE if key in settings and key not in PATHS]  # another path, the same data
    found = {key: settings[key] for key in told if settings[key] != usual.get(key)}
    held_out = settings.get("validation")
    if isinstance(held_out, float):  # these rows have no weight
        found |= {"validation": held_out, "seed": settings.get("seed", default.seed)}
    chosen = lam if settings.get("path") else settings.get("lambda", default.lambda_)
    return seal_of({**found, "lambda": float(chosen)})


def data_digest(provenance: Mapping[str, Any]) -> str:
    """Digest of the training data."""
    return seal_of({key: provenance[key] for key in ("row_digest", "content", "labels") if key in provenance})


def statement_of(
    proof: Proof, weights: str | None, settings: Mapping[str, Any], lam: float, provenance: Mapping[str, Any]
) -> dict[str, Any]:
    """The statement of what is proved, in plain values; what is infinite is left out."""
    within = {} if proof.within is None else {"within": _finite(proof.within, _WITHIN)}
    digests = {} if weights is None else {"weights": weights}
    digests |= {"settings": settings_digest(settings, lam), "data": data_digest(provenance)}
    return {"claim": str(proof.claim), **_finite(proof, _NUMBERS), **within, **digests}


def _finite(values: Any, names: tuple[str, ...]) -> dict[str, float]:
    found = {name: float(getattr(values, name)) for name in names}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def of_model(statement: Mapping[str, Any], part: SharedPart | Model) -> Any:
    """A model, or its shared part, with the statement."""
    known = {key: value for key, value in part.certificate.items() if key not in _NUMBERS}
    return replace(part, certificate=known | {key: v for key, v in statement.items() if key != "data"})


# --- what a run was computed from ---------------------------------------------------------------------------


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


def check_provenance(
    run: Path, began: Any, current: dict[str, Any], partition: Partition, but: Sequence[str] = ()
) -> None:
    """Refuse data, or a model to start at, other than those a run began with; but some do not matter."""
    if not isinstance(began, dict) or "content" not in began:
        raise FormatError(f"{shown(run / 'run.toml')}: table 'provenance' is missing or damaged; train anew")
    keys = (began.keys() | current.keys()) - set(but)
    changed = ", ".join(sorted(key for key in keys if began.get(key) != current.get(key)))
    if changed:
        said = f"not the data that {shown(run)} began with (digests differ: {changed}); train anew"
        raise InputError(f"{shown(partition.path)}: {said}")


def model_digest(model: Model) -> str:
    """Digest of weights and intercept."""
    digest = hashlib.sha256(np.ascontiguousarray(model.intercept, dtype="<f8").tobytes())
    for party in model.parties:
        digest.update(np.ascontiguousarray(party.scale * party.weights, dtype="<f8").tobytes())
    return f"sha256:{digest.hexdigest()}"


# --- the dual vector ----------------------------------------------------------------------------------------


def write_dual(run: Path, dual: np.ndarray | None) -> None:
    """Write the dual vector into a run, or remove that of an earlier result. Shapes: dual (N,) or (C N,)."""
    if dual is None:
        with storage_errors(run / DUAL):
            (run / DUAL).unlink(missing_ok=True)
        return
    with atomic_file(run / DUAL) as temporary, temporary.open("wb") as file:
        np.save(file, np.ascontiguousarray(dual, dtype="<f8"), allow_pickle=False)


def read_dual(run: Path, size: int) -> np.ndarray | None:
    """The dual vector of a run; None where it has none."""
    path = run / DUAL
    if not path.exists():
        return None
    require_regular(path)
    with storage_errors(path, "read"):
        try:
            dual: np.ndarray = np.load(path, allow_pickle=False)
        except (ValueError, EOFError, SyntaxError) as error:
            reason = str(error).partition("\n")[0] or type(error).__name__
            raise FormatError(f"{shown(path)}: damaged: {reason}") from None
    if dual.dtype != np.float64 or dual.shape != (size,) or not np.isfinite(dual).all():
        raise FormatError(f"{shown(path)}: not {size} finite numbers; damaged, or of other data")
    return dual


# --- what may be said ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Said:
    """What may be said of a claim."""

    claim: str  # ``certified`` and so on; empty where nothing can be compared, or where digests differ
    line: str

    @property
    def refused(self) -> bool:
        """Whether the claim is of something else, and must not be shown."""
        return not self.claim and self.line != OLD


def said_of_run(run: Path, result: Mapping[str, Any] | None, settings: Mapping[str, Any]) -> Said | None:
    """What may be said of the claim of a run; None where it has none: unfinished, private, not convex."""
    ended = ("converged", "at_rounding", "contradiction", "max_rounds", "time_limit", "early_stopped")
    if result is None or result.get("status") not in ended or "objective" not in result:
        return None
    if is_private(None, dict(settings)) or not result.get("convex", True):
        return None
    statement, lam = result.get("certificate"), result.get("lambda")
    found = settings_digest(settings, lam) if settings and isinstance(lam, float) else None
    return _said(statement, "result.json", _weights_of(run / "model"), found)


def said_of_model(shared: SharedPart, directory: Path) -> Said | None:
    """What may be said of the claim of a model, by its own files; None where it has none."""
    known = shared.certificate
    if is_private(shared.privacy) or "objective" not in known or "stationarity" in known:
        return None
    return _said(
        known if "claim" in known else None, "model.toml", _weights_of(directory), known.get("settings")
    )


def without_claim(result: dict[str, Any], said: Said | None) -> dict[str, Any]:
    """A result or certificate without what it claims, where that must not be shown."""
    if said is None or not said.refused:
        return result
    left = {key: value for key, value in result.items() if key not in _CLAIMS}
    return {**left, **({"message": said.line} if "message" in result else {})}


def _said(statement: Any, place: str, weights: str | None, settings: str | None) -> Said:
    if statement is None:
        return Said("", OLD)
    if not isinstance(statement, dict) or not isinstance(statement.get("claim"), str):
        return Said("", f"the statement in {place} is damaged: not shown")
    for name, found in (("weights", weights), ("settings", settings)):
        if statement.get(name) != found:
            said = f"the statement in {place} is of other {name}: not shown; run 'fastadmm verify RUN'"
            return Said("", said)
    return Said(statement["claim"], _line(statement))


def _weights_of(directory: Path) -> str | None:
    """Digest of a model's weights; that which its manifest names where they are elsewhere."""
    try:
        try:
            return model_digest(open_model(directory))
        except StorageError:
            named = open_shared_part(directory)[0].certificate.get("weights")
            return named if isinstance(named, str) else None
    except FastadmmError:
        return "unreadable"


def _line(statement: Mapping[str, Any]) -> str:
    claim, within = statement["claim"], statement.get("within") or {}
    if claim == "contradiction":
        return "the proof contradicts itself: nothing is claimed; please report it"
    if claim == "certified_within":
        return (
            "certified among models in which a standard deviation of no column contributes more than "
            f"{within.get('reach', 0.0):.4g} to the predictor: "
            f"relative duality gap {within.get('gap', math.inf):.2e}"
        )
    proved = "no proved duality gap"
    for key, kind in (("gap_absolute", "absolute"), ("gap", "relative")):
        if isinstance(value := statement.get(key), float):
            proved = f"{kind} duality gap {value:.2e}"
    words = {
        "certified": "certified",
        "at_rounding": "not certified, the rounding of the proof exceeds what was asked",
    }
    return f"{words.get(claim, 'not certified')}: {proved}"

"""What is claimed of a run's model, with digests of what it is claimed of, and whether these still agree.

The statement is the key ``certificate`` of ``result.json``, and without the digest of the data, which would
confirm a guess of them, a part of the model's. What prints a claim takes it from :func:`said_of_run` or
:func:`said_of_model`, which compare the digests first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.errors import FastadmmError, FormatError, StorageError
from fastadmm.files.atomic import atomic_file, shown, storage_errors
from fastadmm.files.reading import require_regular
from fastadmm.files.seal import seal_of
from fastadmm.privacy.published import is_private
from fastadmm.proof.claim import Proof
from fastadmm.runs.provenance import model_digest
from fastadmm.settings.keys import OBJECTIVE, PATHS
from fastadmm.settings.run import RunConfig
from fastadmm.store.model import Model, SharedPart, open_model, open_shared_part

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
    digests = {
        "weights": weights,
        "settings": settings_digest(settings, lam),
        "data": data_digest(provenance),
    }
    within = {} if proof.within is None else {"within": _finite(proof.within, _WITHIN)}
    numbers = {"claim": str(proof.claim), **_finite(proof, _NUMBERS), **within}
    return {**numbers, **{key: value for key, value in digests.items() if value is not None}}


def _finite(values: Any, names: tuple[str, ...]) -> dict[str, float]:
    found = {name: float(getattr(values, name)) for name in names}
    return {name: value for name, value in found.items() if math.isfinite(value)}


def of_model(statement: Mapping[str, Any], part: SharedPart | Model) -> Any:
    """A model, or its shared part, with the statement."""
    known = {key: value for key, value in part.certificate.items() if key not in _NUMBERS}
    return replace(part, certificate=known | {key: v for key, v in statement.items() if key != "data"})


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
            dual = np.load(path, allow_pickle=False)
        except (ValueError, EOFError, SyntaxError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise FormatError(f"{shown(path)}: damaged: {reason}") from None
    if dual.dtype != np.float64 or dual.shape != (size,) or not np.isfinite(dual).all():
        raise FormatError(f"{shown(path)}: not {size} finite numbers; damaged, or of other data")
    return np.asarray(dual)


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
    if (
        shared.privacy is not None and shared.privacy.mode != "none"
    ) or "objective" not in shared.certificate:
        return None
    if "stationarity" in shared.certificate:
        return None
    statement = shared.certificate if "claim" in shared.certificate else None
    return _said(statement, "model.toml", _weights_of(directory), (statement or {}).get("settings"))


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
            return Said(
                "", f"the statement in {place} is of other {name}: not shown; run 'fastadmm verify RUN'"
            )
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
    if claim == "certified_within":
        reach, gap = within.get("reach", 0.0), within.get("gap", math.inf)
        return (
            "certified among models in which a standard deviation of no column contributes more than "
            f"{reach:.4g} to the predictor: relative duality gap {gap:.2e}"
        )
    if claim == "contradiction":
        return "the proof contradicts itself: nothing is claimed; please report it"
    gap, absolute = statement.get("gap"), statement.get("gap_absolute")
    proved = (
        f"relative duality gap {gap:.2e}"
        if isinstance(gap, float)
        else f"absolute duality gap {absolute:.2e}"
        if isinstance(absolute, float)
        else "no proved duality gap"
    )
    words = {
        "certified": "certified",
        "at_rounding": "not certified, the rounding of the proof exceeds what was asked",
    }
    return f"{words.get(claim, 'not certified')}: {proved}"

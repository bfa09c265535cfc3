"""The link between the files of one model: a random id in all of them, and a digest of the shared part.

The id is not a function of the data: it is the run's random identifier and the number of rounds. Party
files, exports and contributions carry it. The digest detects damage. It covers exact numbers, so it stays
beside these numbers.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np


def new_model_id() -> str:
    """An id that no other model has."""
    return secrets.token_hex(8)


def model_id_of(run_id: str, rounds: int) -> str:
    """The id of a run's model after some rounds: the same when the run is resumed."""
    return f"{run_id}-{rounds}"


def shared_digest(
    manifest: dict[str, Any],
    intercept: Any,
    classes: Sequence[str] | None,
    scales: Sequence[float],
    means: np.ndarray | None,
) -> str:
    """``sha256:<hex>`` of everything in ``model.toml`` but itself, and of what ``coordinator.h5`` holds.

    Shapes: intercept (C,).
    """
    document = {
        "manifest": {key: value for key, value in manifest.items() if key != "digest"},
        "intercept": np.asarray(intercept, dtype=np.float64).tolist(),
        "classes": None if classes is None else list(classes),
        "scales": np.asarray(scales, dtype=np.float64).tolist(),
        "means": None if means is None else np.asarray(means, dtype=np.float64).tolist(),
    }
    # default=str: an edited manifest may hold TOML's dates.
    return _sha256(json.dumps(document, sort_keys=True, separators=(",", ":"), default=str))


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
    return _sha256(json.dumps(document, sort_keys=True, separators=(",", ":")))


def _sha256(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()

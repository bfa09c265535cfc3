"""What may leave a run: the one filter for logs, reports, comparisons, model cards and models.

Digests of data and directories never leave. Of a private run only what was fixed before any data were read
does: no theorem covers objective, intercept, norms, metrics and times.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastadmm.privacy.statement import EXACT_WEIGHTS, PrivacyStatement
from fastadmm.settings.keys import PATHS

#: What stands where numbers of a private run were left out.
KEPT_BACK = (
    "Objective, intercept, metrics and times of a private run are exact functions of private data, which "
    "no theorem covers: they stay in the run directory."
)

#: Of ``result.json`` of a private run, what was fixed before any data were read.
_FIXED = ("status", "rounds", "convex", "scheme", "lambda", "loss", "n_samples", "regularizer", "constraint")
_FIXED_OF_PARTY = ("name", "n_features", "file")

#: Numbers of a round, and of a result.
_GAPS = ("seconds", "objective", "gap", "gap_absolute", "stationarity")
_ROUND = (*_GAPS, "primal_residual", "dual_residual", "augmented_lagrangian", "lyapunov", "penalty")
_RESULT = ("rounds", *_GAPS)

#: What is claimed.
_CLAIM = ("mode", "unit", "adjacency", "epsilon", "joint_epsilon", "person_epsilon", "label_epsilon", "delta")


def is_private(statement: PrivacyStatement | None, config: dict[str, Any] | None = None) -> bool:
    """Whether a run is private, according to its statement or its settings."""
    asked = (config or {}).get("privacy")
    mode = asked.get("mode", "none") if isinstance(asked, dict) else "none"
    return mode != "none" or (statement is not None and statement.mode != "none")


def certificate_of_model(certificate: dict[str, Any], statement: PrivacyStatement | None) -> dict[str, Any]:
    """What a model records about the run that made it."""
    return _only(("status", "rounds"), certificate) if is_private(statement) else certificate


def fixed_result(result: dict[str, Any]) -> dict[str, Any]:
    """Of the result of a private run, what was fixed before any data were read."""
    parties = [_only(_FIXED_OF_PARTY, party) for party in result.get("parties", [])]
    return {**_only(_FIXED, result), "parties": parties}


def config_of(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration without digests of data and without directories."""
    return {
        key: Path(value).name if key in PATHS and isinstance(value, str) else value
        for key, value in config.items()
        if key != "provenance"
    }


def settings_of(config: dict[str, Any]) -> dict[str, Any]:
    """Settings by name, tables joined by dots, without digests of data and without directories."""
    flat: dict[str, Any] = {}
    for key, value in config_of(config).items():
        if isinstance(value, dict):
            flat |= {f"{key}.{inner}": item for inner, item in settings_of(value).items()}
        else:
            flat[key] = value
    return flat


def exact_parties(lines: Mapping[str, str | None], statement: PrivacyStatement | None = None) -> list[str]:
    """Parties of a private model whose weights no epsilon covers (T7), though their run claims one."""

    def exact(line: str) -> bool:
        weights, _, training = line.partition("; training: ")
        claimed = not training.startswith("privacy: epsilon = infinity")
        return weights == f"weights: {EXACT_WEIGHTS}" and claimed

    said = {name: statement.weights_line(name) if statement else "" for name in lines}
    return [name for name, line in lines.items() if exact(line or "") or exact(said[name])]


def exact_note(names: list[str], what: str) -> str:
    """What giving something out costs, in one line."""
    return (
        f"the weights of {', '.join(names)} are exact functions of private rows, which the noise of the run "
        f"does not cover (T7): epsilon = infinity for whoever gets {what}"
    )


def privacy_facts(statement: PrivacyStatement) -> dict[str, Any]:
    """The claim of a run: what is protected and by how much."""
    return {**{name: getattr(statement, name) for name in _CLAIM}, "statement": statement.one_line()}


def round_numbers(record: Mapping[str, Any], parties: list[str], *, private: bool) -> dict[str, float]:
    """Numbers of a round of the log, by name."""
    if private:
        return {}
    norms = record.get("weight_norms") or []
    names = parties if len(parties) == len(norms) else map(str, range(len(norms)))
    return _finite(
        {name: record.get(name) for name in _ROUND}
        | {f"test/{name}": value for name, value in (record.get("test") or {}).items()}
        | {f"weight_norm/{name}": norm for name, norm in zip(names, norms)}
    )


def result_numbers(result: dict[str, Any], *, private: bool) -> dict[str, float]:
    """Final numbers of a run."""
    test = {} if private else result.get("test") or {}
    return _finite(
        {f"final/{name}": result.get(name) for name in (("rounds",) if private else _RESULT)}
        | {f"final/test/{name}": value for name, value in test.items()}
    )


def result_texts(result: dict[str, Any], *, private: bool) -> dict[str, str]:
    """Final words of a run: status, message and privacy statement."""
    texts = {"status": str(result.get("status", ""))}
    if not private:
        texts["message"] = str(result.get("message", ""))
    if result.get("privacy"):
        texts["privacy.statement"] = PrivacyStatement.from_json(result["privacy"]).one_line()
    return texts


def _only(keys: tuple[str, ...], values: dict[str, Any]) -> dict[str, Any]:
    return {key: values[key] for key in keys if key in values}


def _finite(values: dict[str, Any]) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, int | float) and math.isfinite(value)
    }

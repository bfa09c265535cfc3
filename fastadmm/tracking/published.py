"""What of a run may leave it for a shared log.

A run without privacy logs all it knows. Of a private run, objective, weight norms, test metrics and
times are exact functions of private data or depend on them, and no theorem covers them
(``docs/privacy.md``): only what was fixed before any data were read is logged.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from fastadmm.history import RoundRecord
from fastadmm.privacy.statement import PrivacyStatement

__all__ = ["privacy_facts", "result_numbers", "result_texts", "round_numbers", "settings_of"]

_ROUND = (
    "seconds",
    "objective",
    "gap",
    "gap_absolute",
    "stationarity",
    "primal_residual",
    "dual_residual",
    "augmented_lagrangian",
    "lyapunov",
    "penalty",
)

_RESULT = ("rounds", "seconds", "objective", "gap", "gap_absolute", "stationarity")


def settings_of(config: dict[str, Any]) -> dict[str, Any]:
    """Settings by name, tables joined by dots, without digests of data and without directories.

    Parameters
    ----------
    config : dict
        Content of ``run.toml``.

    Returns
    -------
    dict
    """
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if key == "provenance":
            continue  # digests of private columns can be tried out by whoever guesses them
        if isinstance(value, dict):
            flat |= {f"{key}.{inner}": item for inner, item in settings_of(value).items()}
        elif key in ("data", "test", "ledger") and isinstance(value, str):
            flat[key] = Path(value).name
        else:
            flat[key] = value
    return flat


def privacy_facts(statement: PrivacyStatement) -> dict[str, Any]:
    """The claim of a run: what is protected and by how much.

    Parameters
    ----------
    statement : PrivacyStatement

    Returns
    -------
    dict
    """
    names = (
        "mode",
        "unit",
        "adjacency",
        "epsilon",
        "joint_epsilon",
        "person_epsilon",
        "label_epsilon",
        "delta",
    )
    return {**{name: getattr(statement, name) for name in names}, "statement": statement.one_line()}


def round_numbers(record: RoundRecord, parties: list[str], *, private: bool) -> dict[str, float]:
    """Numbers of a round, by name.

    Parameters
    ----------
    record : RoundRecord
    parties : list of str
        Names for the weight norms.
    private : bool
        Whether the run is private: then there are none.

    Returns
    -------
    dict of str to float
        Finite ones only; ``test/…`` and ``weight_norm/…`` have a part of their own.
    """
    if private:
        return {}
    values: dict[str, Any] = {name: getattr(record, name) for name in _ROUND}
    values |= {f"test/{name}": value for name, value in (record.test or {}).items()}
    names = parties if len(parties) == len(record.weight_norms) else map(str, range(len(record.weight_norms)))
    values |= {f"weight_norm/{name}": norm for name, norm in zip(names, record.weight_norms)}
    return _finite(values)


def result_numbers(result: dict[str, Any], *, private: bool) -> dict[str, float]:
    """Final numbers of a run.

    Parameters
    ----------
    result : dict
        Content of ``result.json``.
    private : bool
        Whether the run is private: then only the number of rounds, which was fixed beforehand.

    Returns
    -------
    dict of str to float
    """
    if private:
        return _finite({"final/rounds": result.get("rounds")})
    values = {f"final/{name}": result.get(name) for name in _RESULT}
    values |= {f"final/test/{name}": value for name, value in (result.get("test") or {}).items()}
    return _finite(values)


def result_texts(result: dict[str, Any], *, private: bool) -> dict[str, str]:
    """Final words of a run: status, message and privacy statement.

    Parameters
    ----------
    result : dict
        Content of ``result.json``.
    private : bool
        Whether the run is private: then there is no message, which may hold numbers.

    Returns
    -------
    dict of str to str
    """
    texts = {"status": str(result.get("status", ""))}
    if not private:
        texts["message"] = str(result.get("message", ""))
    if result.get("privacy"):
        texts["privacy.statement"] = PrivacyStatement.from_json(result["privacy"]).one_line()
    return texts


def _finite(values: dict[str, Any]) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, int | float) and math.isfinite(value)
    }

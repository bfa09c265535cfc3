"""Whether the curves and tables of an ``evaluation.json`` are whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.errors import FormatError
from fastadmm.files.atomic import shown

_CURVES = ("threshold", "false_positive_rate", "true_positive_rate", "precision", "share")

#: What a group of the lift table holds.
GROUP = ("share", "lowest_score", "rate", "lift", "gain", "cumulative_lift")


def check_judgement(evaluation: dict[str, Any], path: Path) -> None:
    """Refuse an ``evaluation.json`` whose curves or tables are damaged."""
    try:
        if (ranking := evaluation.get("ranking")) is not None:
            lengths = {len(_numbers(ranking["curves"][name])) for name in _CURVES}
            fine = (
                len(lengths) == 1 and 0 not in lengths and len(_numbers([ranking["ks"], ranking["ks_score"]]))
            )
            fine = fine and all(len(_numbers([row[k] for k in GROUP])) for row in ranking["groups"])
            if not fine or not ranking["groups"]:
                raise ValueError("empty, or of different lengths")
            _numbers([ranking["average_precision"], *(ranking.get("auc_interval") or [])])
        if (confusion := evaluation.get("confusion")) is not None:
            count = len(confusion["classes"])
            if np.shape([_numbers(row) for row in confusion["matrix"]]) != (count, count):
                raise ValueError("no square matrix")
            _numbers([confusion.get("threshold", 0.0)])
        if (drift := evaluation.get("drift")) is not None:
            _numbers([drift["psi"], *(row[k] for row in drift["bins"] for k in ("reference", "new"))])
        if not isinstance(evaluation.get("notes", []), list):
            raise ValueError("notes are no list")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FormatError(
            f"{shown(path)}: keys ranking, confusion, drift or notes: damaged ({error}); evaluate again"
        ) from error


def _numbers(values: Any) -> np.ndarray:
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        raise ValueError("not numbers")
    found = np.array(values, dtype=np.float64)
    if not np.isfinite(found).all():
        raise ValueError("not finite")
    return found

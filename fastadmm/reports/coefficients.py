"""The section of a report that shows the largest coefficients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastadmm.figures.numbers import NONE, format_number
from fastadmm.runs.coefficients import read_coefficients

__all__ = ["coefficient_section"]

#: Coefficients of each party that are shown.
LARGEST = 15


def coefficient_section(run: Path) -> dict[str, Any] | None:
    """The largest coefficients of each party of a run; None where the parties' files are elsewhere."""
    model = run / "model"
    if not (model / "model.toml").exists() or any(not file.exists() for file in _files(model)):
        return None
    found = read_coefficients(model)
    shown = found.largest(LARGEST)
    names = {"party": "party", "feature": "feature", "class": "class", "weight": "raw column"}
    names |= {"scaled_weight": "scaled column", "ratio": found.ratio, "reference": "compared with"}
    names |= {"ratio_to_reference": f"{found.ratio} to it"}
    names = {key: label for key, label in names.items() if key in found.columns}
    rows = [[_cell(row[key]) for key in names] for row in shown.rows()]
    left = len(found.rows()) - len(rows)
    more = [f"{left} more with smaller weights: fastadmm coefficients RUN -o FILE.csv"] if left else []
    return {"header": list(names.values()), "rows": rows, "notes": [*found.notes, *more]}


def _files(model: Path) -> list[Path]:
    from fastadmm.store.model import open_shared_part

    shared, directory = open_shared_part(model)
    return [directory / f"{name}.h5" for name in shared.names]


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return format_number(value, 5, zeros=True)
    return NONE if value is None else str(value)

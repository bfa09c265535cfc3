"""What a committee reads first: coefficients with their errors, and what the model cannot do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastadmm.figures.numbers import NONE, format_number
from fastadmm.judging.judgement import event_in
from fastadmm.reports.records import RunRecords, damaged
from fastadmm.runs.coefficients import read_coefficients

#: Coefficients of each party that are shown.
LARGEST = 15

#: Columns of `fastadmm infer`, and what they are called.
_ERRORS = {"party": "party", "feature": "feature", "class": "class", "weight": "weight"}
_ERRORS |= {"standard_error": "standard error", "p_value": "p", "low": "from", "high": "to", "ratio": ""}


def coefficient_section(records: RunRecords) -> dict[str, Any] | None:
    """Coefficients with their errors, or the largest of each party; None where the files are elsewhere."""
    if records.inference is not None:
        with damaged(records.path / "inference.json", "run 'fastadmm infer' again"):
            return _with_errors(records.inference)
    model = records.path / "model"
    if not (model / "model.toml").exists() or any(not file.exists() for file in _files(model)):
        return None
    found = read_coefficients(model)
    largest = found.largest(LARGEST)
    names = {"party": "party", "feature": "feature", "class": "class", "weight": "raw column"}
    names |= {"scaled_weight": "scaled column", "ratio": found.ratio, "reference": "compared with"}
    names |= {"ratio_to_reference": f"{found.ratio} to it"}
    left = len(found.rows()) - len(largest.rows())
    more = [f"{left} more with smaller weights: fastadmm coefficients RUN -o FILE.csv"] if left else []
    return table_of(
        {key: label for key, label in names.items() if key in found.columns}, largest.rows(),
        [*found.notes, *more, "standard errors: fastadmm infer RUN, then the report again"],
    )  # fmt: skip


def _with_errors(document: dict[str, Any]) -> dict[str, Any]:
    names = _ERRORS | {"ratio": document["ratio"]}
    names = {key: label for key, label in names.items() if key in document["weights"][0]}
    notes = [f"from and to: {100 * document['level']:g} % interval", *map(str, document["notes"])]
    return table_of(names, document["weights"], notes)


def table_of(names: dict[str, str], rows: list[dict[str, Any]], notes: list[str]) -> dict[str, Any]:
    """A table of the page: some values of each record, under their names."""
    cells = [[_cell(row.get(key)) for key in names] for row in rows]
    return {"header": list(names.values()), "rows": cells, "notes": notes}


def _files(model: Path) -> list[Path]:
    from fastadmm.store.model import open_shared_part

    shared, directory = open_shared_part(model)
    return [directory / f"{name}.h5" for name in shared.names]


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return format_number(int(value) if value.is_integer() else value)
    return NONE if value is None else str(value)


def limits(records: RunRecords) -> list[str]:
    """What the model does not know, as far as the records tell."""
    config, evaluation = records.config, records.evaluation
    said = [
        "It is linear: columns add up, without interactions or bends that were not made columns.",
        "Weights are associations in these rows, not effects of changing a column.",
        "The certificate is about the rows it was trained on, not about new ones.",
    ]
    if config.get("class_weight") is not None:
        said.append("Rows were weighted by class: probabilities are not the rates of unweighted rows.")
    if evaluation is None:
        return [*said, "It was not evaluated: nothing here says how it does on other rows."]
    if evaluation.get("data") == Path(str(config.get("data"))).name:
        said.append("It was evaluated on the rows it was trained on: on others it does worse.")
    event, _ = event_in(evaluation)
    if event and not sum(row[1] for row in evaluation["confusion"]["matrix"]):
        said.append(f"No row is predicted as {event} at this threshold: read scores, not labels.")
    return said

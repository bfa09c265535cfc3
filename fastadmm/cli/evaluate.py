"""``fastadmm evaluate``: how well a model predicts labelled rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastadmm.cli.app import app
from fastadmm.cli.options import JSON, argument, flag, option, with_options
from fastadmm.cli.predict import TABLES, RowOptions
from fastadmm.cli.tables import grid, show
from fastadmm.cli.terminal import print_json, say
from fastadmm.files.escapes import printable


@dataclass(frozen=True)
class _Rows(RowOptions):
    """Options for tables with labels."""

    label: str | None = option(
        "Label column of the first table. (default: the one that is no feature)", panel=TABLES
    )
    weight: str | None = option("Column of the first table with sample weights.", panel=TABLES)


@app.command()
@with_options()
def evaluate(
    model: Path = argument("Run directory or model directory."),
    data: list[Path] = argument("Labelled partition with the same columns, or CSV or Parquet tables."),
    threshold: float | None = option("Probability above which the second class is predicted. (default: 0.5)"),
    reference: Path | None = option(
        "Training partition, to measure how far scores have shifted since (PSI)."
    ),
    curves: Path | None = option("CSV file for ROC and precision-recall curves."),
    *,
    rows: _Rows,
    as_json: bool = JSON,
    force: bool = flag("Replace an existing file of curves.", "--force"),
) -> None:
    """Measure log loss, AUC, KS, calibration, confusion and drift, or RMSE, MAE, R², D², on labelled data."""
    from fastadmm.runs.evaluate import evaluate_partition, evaluate_tables

    how: dict[str, Any] = {"threshold": threshold, "reference": reference, "curves": curves, "force": force}
    options = rows.of(data, "evaluate")
    if options is None:
        document = evaluate_partition(model, data[0], **how)
    else:
        document = evaluate_tables(model, data, options, label=rows.label, weight=rows.weight, **how)
    print_evaluation(document, as_json)


def print_evaluation(document: dict[str, Any], as_json: bool) -> None:
    """Print metrics, as a table or as JSON."""
    from fastadmm.reports.judgement import class_table, confusion_table

    if as_json:
        print_json(document)
        return
    if len((confusion := document.get("confusion", {})).get("classes", ())) == 2:
        matrix = confusion["matrix"]
        share = 100.0 * sum(matrix[1]) / sum(map(sum, matrix))
        say(f"class 1 = {printable(confusion['classes'][1])} ({share:.3g} % of rows)")
    title = f"{document['data']} ({document['n_samples']} rows)"
    show(grid(title, ("metric", "value"), _metric_rows(document)))
    table = class_table(document["metrics"].get("classes"))
    if table is None and confusion:
        table = confusion_table(confusion)
        table["title"] = f"rows by class (threshold {confusion['threshold']:g})"
        del table["rows"][len(confusion["classes"]) :]  # what follows from them is in the report
    if table is not None:
        show(grid(table["title"], table["header"], table["rows"]))
    for note in document.get("notes", ()):
        say(f"note: {note}")
    for look in document.get("looks", ()):
        say(look)


def _metric_rows(document: dict[str, Any]) -> list[tuple[str, str]]:
    """Name and value of everything that is one number, or an interval."""
    rows = []
    ranking = document.get("ranking", {})
    for name, value in document["metrics"].items():
        if isinstance(value, list):
            continue  # one row per class, in a table of their own
        if isinstance(value, dict):
            name, value = "expected calibration error", value["expected_calibration_error"]
        rows.append((name.replace("_", " "), "–" if value is None else f"{value:.6f}"))
        if name == "auc" and ranking.get("auc_interval"):
            low, high = ranking["auc_interval"]
            rows.append((f"auc, {100 * ranking['level']:g} % interval", f"{low:.4f} to {high:.4f}"))
    if ranking:
        rows.append(("average precision", f"{ranking['average_precision']:.6f}"))
        rows.append((f"KS distance (at {ranking['ks_score']:.4g})", f"{ranking['ks']:.6f}"))
        rows.append(("lift of the top tenth", f"{ranking['groups'][0]['lift']:.4f}"))
    if "drift" in document:
        drift = document["drift"]
        beyond = f", {drift['outside']} rows outside" if drift.get("outside") else ""
        rows.append((f"PSI of scores since {printable(drift['reference'])}", f"{drift['psi']:.4f}{beyond}"))
    return rows

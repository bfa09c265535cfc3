"""``fastadmm evaluate``: how well a model predicts a labelled partition."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fastadmm.cli.app import app


@app.command()
def evaluate(
    model: Annotated[Path, typer.Argument(readable=False, help="Run directory or model directory.")],
    data: Annotated[Path, typer.Argument(readable=False, help="Labelled partition with the same columns.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Measure log loss, accuracy, AUC and calibration, or RMSE, MAE and R², on a labelled partition."""
    from fastadmm.runs.evaluate import evaluate_partition

    print_evaluation(evaluate_partition(model, data), as_json)


def print_evaluation(document: dict[str, Any], as_json: bool) -> None:
    """Print metrics, as a table or as JSON."""
    import json

    if as_json:
        print(json.dumps(document, indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{document['data']} ({document['n_samples']} rows)")
    table.add_column("metric")
    table.add_column("value", justify="right")
    for name, value in document["metrics"].items():
        if isinstance(value, list):
            continue  # one row per class, below
        if isinstance(value, dict):
            name, value = "expected calibration error", value["expected_calibration_error"]
        table.add_row(name.replace("_", " "), "–" if value is None else f"{value:.6f}")
    Console().print(table)
    if "classes" in document["metrics"]:
        Console().print(_class_table(document["metrics"]["classes"]))


def _class_table(rows: list[dict[str, Any]]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(title="classes")
    table.add_column("class")
    names = ("weight", "precision", "recall", "auc")
    for name in names:
        table.add_column(name, justify="right")
    for row in rows:
        cells = ["–" if row[name] is None else f"{row[name]:.6g}" for name in names]
        # A name in brackets must not be taken for markup.
        table.add_row(Text(row["name"] if row["name"].isprintable() else ascii(row["name"])), *cells)
    return table

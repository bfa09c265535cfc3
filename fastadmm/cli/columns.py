"""``fastadmm columns`` and ``drift``: columns that repeat others, tell of the labels, or have moved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastadmm.cli import options as opt
from fastadmm.cli.app import app
from fastadmm.cli.tables import grid, show
from fastadmm.cli.terminal import print_json, say


@app.command()
def columns(
    data: Path = opt.argument("Partition, or one party's file."),
    labels: Path | None = opt.LABELS,
    as_json: bool = opt.JSON,
) -> None:
    """Print variance inflation (VIF), correlation inside a party, and information value, by column."""

    from fastadmm.runs.columns import column_report

    rows = column_report(data, labels)
    print_columns("columns", rows, "vif" if labels is None else "iv_cross", as_json)


def print_columns(title: str, rows: list[dict[str, Any]], key: str, as_json: bool) -> None:
    """Print rows about columns, the largest first."""
    import math

    if as_json:
        # Strict JSON has no infinity.
        strict = [{k: None if v == math.inf else v for k, v in row.items()} for row in rows]
        print_json({title: strict}, allow_nan=False, ensure_ascii=False)
        return
    ordered = sorted(rows, key=lambda row: -math.inf if row[key] is None else row[key], reverse=True)
    header = [name.replace("_", " ") for name in rows[0]]
    cells = (row.values() for row in ordered[: opt.SHOWN])
    show(grid(title, header, cells, ("column", "with"), simple=True))
    if len(rows) > opt.SHOWN:
        say(f"{len(rows) - opt.SHOWN} more columns: --json for all")


@app.command()
def drift(
    reference: Path = opt.argument("Partition or party's file of the training rows."),
    new: Path = opt.argument("The same for new rows."),
    as_json: bool = opt.JSON,
) -> None:
    """Print how far columns have shifted between two sets of rows: stability index (PSI), shift of means."""
    from fastadmm.runs.columns import column_drift

    print_columns("drift", column_drift(reference, new), "psi", as_json)

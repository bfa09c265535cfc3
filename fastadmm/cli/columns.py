"""``fastadmm columns`` and ``drift``: columns that repeat others, tell of the labels, or have moved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastadmm.cli.app import app
from fastadmm.cli.options import FORCE, JSON, SHOWN, argument, check_csv, option
from fastadmm.cli.tables import grid, show
from fastadmm.cli.terminal import print_json, say
from fastadmm.files.escapes import csv_rows


@app.command()
def columns(
    data: Path = argument("Partition, or one party's file."),
    labels: Path | None = option("Label file of the same rows, for the information value (IV)."),
    out: Path | None = option("CSV file for all columns.", "--out", "-o"),
    as_json: bool = JSON,
    force: bool = FORCE,
) -> None:
    """Print correlation inside a party, and information value, by column."""

    from fastadmm.runs.columns import column_report

    rows = column_report(data, labels)
    key = "correlation" if labels is None else "iv_cross"
    print_columns("columns", rows, key, out, as_json, force)


def print_columns(
    title: str, rows: list[dict[str, Any]], key: str, out: Path | None, as_json: bool, force: bool
) -> None:
    """Print rows about columns, the largest first; write all of them as CSV."""
    import math

    check_csv(out)
    if out is not None:
        from fastadmm.files.atomic import csv_file

        with csv_file(out, force=force) as file:
            csv_rows(file, [rows[0], *(row.values() for row in rows)])
    if as_json:
        print_json({title: rows}, allow_nan=False, ensure_ascii=False)
        return
    ordered = sorted(rows, key=lambda row: -math.inf if row[key] is None else abs(row[key]), reverse=True)
    header = [name.replace("_", " ") for name in rows[0]]
    cells = (row.values() for row in ordered[:SHOWN])
    show(grid(title, header, cells, ("column", "with"), simple=True))
    if len(rows) > SHOWN:
        say(f"{len(rows) - SHOWN} more columns: -o FILE.csv for all")


@app.command()
def drift(
    reference: Path = argument("Partition or party's file of the training rows."),
    new: Path = argument("The same for new rows."),
    out: Path | None = option("CSV file for all columns.", "--out", "-o"),
    as_json: bool = JSON,
    force: bool = FORCE,
) -> None:
    """Print how far columns have shifted between two sets of rows: stability index (PSI), shift of means."""
    from fastadmm.runs.columns import column_drift

    print_columns("drift", column_drift(reference, new), "psi", out, as_json, force)

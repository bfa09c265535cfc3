"""``fastadmm columns``: which columns repeat others, and what they say about the labels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fastadmm.cli.app import app
from fastadmm.cli.options import check_csv
from fastadmm.cli.tables import cell, show
from fastadmm.cli.terminal import say
from fastadmm.files.escapes import csv_rows, printable_json


@app.command()
def columns(
    data: Annotated[Path, typer.Argument(readable=False, help="Partition, or one party's file.")],
    labels: Annotated[
        Path | None,
        typer.Option(readable=False, help="Label file of the same rows, for the information value (IV)."),
    ] = None,
    top: Annotated[
        int, typer.Option("--top", help="Number of columns to print; the CSV file has all.", min=1)
    ] = 20,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", readable=False, help="CSV file for all columns.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Print variance inflation (VIF), correlation inside a party, and information value, by column."""

    from fastadmm.runs.columns import column_report

    rows = column_report(data, labels)
    key = "vif" if labels is None else "iv_cross"
    print_columns("columns", rows, key, top, out, as_json, force)


def print_columns(
    title: str, rows: list[dict[str, Any]], key: str, top: int, out: Path | None, as_json: bool, force: bool
) -> None:
    """Print rows about columns, the largest first; write all of them as CSV."""
    import math

    check_csv(out)
    if out is not None:
        from fastadmm.files.atomic import atomic_file

        with (
            atomic_file(out, force=force) as temporary,
            temporary.open("w", encoding="utf-8", newline="") as file,
        ):
            csv_rows(file, [rows[0], *(row.values() for row in rows)])
    if as_json:
        import json

        # Strict JSON has no infinity.
        strict = [{k: None if v == math.inf else v for k, v in row.items()} for row in rows]
        print(printable_json(json.dumps({title: strict}, indent=2, allow_nan=False, ensure_ascii=False)))
        return
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, box=SIMPLE, padding=(0, 1))
    for name in rows[0]:
        words = name in ("party", "column", "with")
        table.add_column(name.replace("_", " "), justify="left" if words else "right")
    ordered = sorted(rows, key=lambda row: -math.inf if row[key] is None else row[key], reverse=True)
    for row in ordered[:top]:
        table.add_row(*(Text(cell(value)) for value in row.values()))
    show(table)
    if len(rows) > top:
        say(f"{len(rows) - top} more columns: --top, or -o FILE.csv for all")

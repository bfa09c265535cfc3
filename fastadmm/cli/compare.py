"""``fastadmm compare``: several runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fastadmm.cli.app import app
from fastadmm.cli.tables import show
from fastadmm.cli.terminal import say
from fastadmm.files.escapes import printable


@app.command()
def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN RUN...", readable=False, help="Run directories, finished or not."),
    ],
    out: Annotated[
        list[Path] | None,
        typer.Option(
            "--out",
            "-o",
            readable=False,
            metavar="FILE",
            help="File: .html (tables and figure), .png, .svg, .pdf, .csv or .json; may be repeated.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead of the table.")
    ] = False,
) -> None:
    """Compare runs: results, metrics, differing settings, and curves of gap and objective."""
    import json

    from fastadmm.reports import compare_runs, write_comparison
    from fastadmm.reports.compare_page import comparison_rows

    comparison = compare_runs(runs)
    written = [write_comparison(comparison, path) for path in out or []]
    if as_json:
        document = {**comparison.to_json(), "written": [str(path) for path in written]}
        print(json.dumps(document, indent=2, allow_nan=False))
        return
    show(_table([run.name for run in comparison.runs], comparison_rows(comparison)))
    for line in (*comparison.notes, *written):
        say(str(line))


def _table(names: list[str], groups: Any) -> Any:
    from rich.table import Table
    from rich.text import Text

    from fastadmm.figures.numbers import NONE

    table = Table()
    table.add_column("run")
    for name in names:
        # A name in brackets must not be taken for markup.
        table.add_column(Text(printable(name)), justify="right", overflow="fold")
    for _, rows in groups:
        for label, texts in rows:
            if any(text != NONE for text in texts):
                table.add_row(Text(label), *map(Text, texts))
        table.add_section()
    return table

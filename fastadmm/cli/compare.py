"""``fastadmm compare``: several runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fastadmm.cli.app import app


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
    from rich.console import Console

    console = Console(highlight=False)
    # So many runs side by side that each keeps a readable column.
    each = max(1, (console.width - 24) // 18)
    for start in range(0, len(comparison.runs), each):
        part = slice(start, start + each)
        console.print(_table([run.name for run in comparison.runs[part]], comparison_rows(comparison), part))
    for note in comparison.notes:
        console.print(note, markup=False)
    for path in written:
        console.print(str(path), markup=False, soft_wrap=True)


def _table(names: list[str], groups: Any, part: slice) -> Any:
    from rich.table import Table
    from rich.text import Text

    from fastadmm.figures.numbers import NONE

    table = Table()
    table.add_column("run")
    for name in names:
        # A name in brackets must not be taken for markup.
        table.add_column(Text(name if name.isprintable() else ascii(name)), justify="right", overflow="fold")
    for _, rows in groups:
        for label, texts in rows:
            if any(text != NONE for text in texts[part]):
                table.add_row(Text(label), *map(Text, texts[part]))
        table.add_section()
    return table

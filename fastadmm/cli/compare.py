"""``fastadmm compare``: several runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastadmm.cli.app import app
from fastadmm.cli.options import argument, flag, option
from fastadmm.cli.tables import show
from fastadmm.cli.terminal import print_json, say
from fastadmm.files.escapes import printable


@app.command()
def compare(
    runs: list[Path] = argument("Run directories, finished or not.", metavar="RUN RUN..."),
    out: list[Path] | None = option(
        "File: .html (tables and figure), .png, .svg, .pdf, .csv or .json; may be repeated.",
        "--out",
        "-o",
        metavar="FILE",
    ),
    as_json: bool = flag("Print one JSON document instead of the table.", "--json"),
) -> None:
    """Compare runs: results, metrics, differing settings, and curves of gap and objective."""
    from fastadmm.reports import compare_runs, write_comparison
    from fastadmm.reports.compare_page import comparison_rows

    comparison = compare_runs(runs)
    written = [write_comparison(comparison, path) for path in out or []]
    if as_json:
        document = {**comparison.to_json(), "written": [str(path) for path in written]}
        print_json(document, allow_nan=False)
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

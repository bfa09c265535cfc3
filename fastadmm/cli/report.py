"""``fastadmm report``: write the HTML page of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fastadmm.cli.app import app
from fastadmm.cli.terminal import say


@app.command()
def report(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", readable=False, help="Run directory, finished or not.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            "--output",
            readable=False,
            metavar="FILE",
            help="HTML page to write. (default: RUN/report.html)",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document instead of the path.")
    ] = False,
) -> None:
    """Write a self-contained HTML report of a run: certificate, progress, parties, configuration."""
    from fastadmm.reports import write_report

    page = write_report(run, out)
    if as_json:
        import json

        print(json.dumps({"report": str(page)}))
    else:
        say(str(page))

"""``fastadmm combine``: the parties' contributions become predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fastadmm.cli.app import app
from fastadmm.cli.terminal import say


@app.command()
def combine(
    contributions: Annotated[
        list[Path], typer.Argument(readable=False, help="Files written by 'fastadmm predict --partial'.")
    ],
    model: Annotated[
        Path,
        typer.Option(
            "--model", "-m", readable=False, help="Run directory or model directory; weights are not read."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", readable=False, help="CSV file to write (default: standard output)."),
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(readable=False, help="Label file of the same rows, whose offset is added.")
    ] = None,
    allow_missing: Annotated[
        list[str] | None,
        typer.Option(metavar="PARTY", help="Party whose file may be missing; may be repeated."),
    ] = None,
    fallback: Annotated[
        str | None,
        typer.Option(help="Replaces a missing party: zero, or the mean of its training contributions."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Add up the parties' contributions to predictions."""

    from fastadmm.cli.predict import write_csv
    from fastadmm.runs.combine import combine_contributions

    predictions = combine_contributions(
        model, contributions, labels=labels, allow_missing=allow_missing or (), fallback=fallback
    )
    for name, stand_in in predictions.missing.items():
        say(f"fastadmm: warning: no contribution of {name}: {stand_in} stands for it", error=True)
    write_csv(predictions, out, force)

"""``fastadmm import``: a party's exported part goes back into a model directory."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fastadmm.cli.app import app
from fastadmm.cli.terminal import say


@app.command(name="import")
def import_part(
    file: Annotated[
        Path, typer.Argument(readable=False, help="A party's .h5 or .json, from 'fastadmm export --party'.")
    ],
    model: Annotated[Path, typer.Argument(readable=False, help="Run directory or model directory.")],
    force: Annotated[bool, typer.Option("--force", help="Replace a different file of this party.")] = False,
) -> None:
    """Put a party's exported part back into its model, with the same bytes."""
    from fastadmm.runs.export import import_party

    say(f"part of {import_party(file, model, force=force)} in {model}")

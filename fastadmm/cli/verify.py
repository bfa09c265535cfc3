"""``fastadmm verify``: prove a written model again, by a second and plain implementation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fastadmm.cli.app import app
from fastadmm.cli.terminal import say


@app.command()
def verify(
    run: Annotated[Path, typer.Argument(metavar="RUN", readable=False, help="Run directory.")],
    data: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DATA]", readable=False, help="Training partition, where it is no longer in its place."
        ),
    ] = None,
    digits: Annotated[
        int,
        typer.Option(
            "--digits",
            help="Compute with so many digits, by mpmath: small data.",
            metavar="N",
            min=0,
            max=1000,
        ),
    ] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Prove the model of a run again, from its files and its data; exit code 0 only if the claim holds."""
    import json

    from fastadmm.runs.verify import verify_run

    found = verify_run(run, data, digits)
    if as_json:
        print(json.dumps(found.to_json(), indent=2, allow_nan=False))
    else:
        say(found.line if not found.exit_code else f"fastadmm: {found.line}", error=bool(found.exit_code))
    return int(found.exit_code)

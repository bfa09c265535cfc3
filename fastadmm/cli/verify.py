"""``fastadmm verify``: prove a written model again, by a second and plain implementation."""

from __future__ import annotations

from pathlib import Path

from fastadmm.cli.app import app
from fastadmm.cli.options import JSON, argument, option
from fastadmm.cli.terminal import print_json, say


@app.command()
def verify(
    run: Path = argument("Run directory.", metavar="RUN"),
    data: Path | None = argument(
        "Training partition, where it is no longer in its place.", default=None, metavar="[DATA]"
    ),
    digits: int = option(
        "Compute with so many digits, by mpmath: small data.",
        "--digits",
        default=0,
        metavar="N",
        min=0,
        max=1000,
    ),
    as_json: bool = JSON,
) -> int:
    """Prove the model of a run again, from its files and its data; exit code 0 only if the claim holds."""
    from fastadmm.runs.verify import verify_run

    found = verify_run(run, data, digits)
    if as_json:
        print_json(found.to_json(), allow_nan=False)
    else:
        say(found.line if not found.exit_code else f"fastadmm: {found.line}", error=bool(found.exit_code))
    return int(found.exit_code)

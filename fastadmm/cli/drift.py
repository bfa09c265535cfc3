"""``fastadmm drift``: how far the columns of new rows have moved."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fastadmm.cli.app import app


@app.command()
def drift(
    reference: Annotated[
        Path, typer.Argument(readable=False, help="Partition or party's file of the training rows.")
    ],
    new: Annotated[Path, typer.Argument(readable=False, help="The same for new rows.")],
    top: Annotated[
        int, typer.Option("--top", help="Number of columns to print; the CSV file has all.", min=1)
    ] = 20,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", readable=False, help="CSV file for all columns.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Print how far columns have shifted between two sets of rows: stability index (PSI), shift of means."""
    from fastadmm.cli.columns import print_columns
    from fastadmm.runs.columns import column_drift

    print_columns("drift", column_drift(reference, new), "psi", top, out, as_json, force)

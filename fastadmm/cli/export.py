"""``fastadmm export``: one party's part of a model, or the whole, for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fastadmm.cli.app import app
from fastadmm.cli.options import InfiniteEpsilon
from fastadmm.cli.terminal import say


@app.command()
def export(
    model: Annotated[Path, typer.Argument(readable=False, help="Run directory or model directory.")],
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            readable=False,
            help="File to write; its ending sets the format: .h5, .json, .skops or .onnx.",
        ),
    ],
    party: Annotated[
        str | None,
        typer.Option(
            help="Export only this party's part (default: the whole model; all parties should agree)."
        ),
    ] = None,
    allow_infinite_epsilon: InfiniteEpsilon = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Export one party's part (HDF5, JSON, skops) or the whole model (JSON, skops, ONNX)."""
    from fastadmm.runs.export import export_model, export_party

    if party is None:
        export_model(model, out, force=force, allow_infinite_epsilon=allow_infinite_epsilon)
        say(f"model in {out}")
    else:
        export_party(model, party, out, force=force, allow_infinite_epsilon=allow_infinite_epsilon)
        say(f"part of {party} in {out}")

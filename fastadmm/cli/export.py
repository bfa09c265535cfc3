"""``fastadmm export`` and ``import``: one party's part of a model, or the whole, for other programs."""

from __future__ import annotations

from pathlib import Path

from fastadmm.cli.app import app
from fastadmm.cli.options import FORCE, INFINITE_EPSILON, argument, flag, option
from fastadmm.cli.terminal import say


@app.command()
def export(
    model: Path = argument("Run directory or model directory."),
    out: Path = option(
        "File to write; its ending sets the format: .h5, .json, .skops or .onnx.", "--out", "-o", default=...
    ),
    party: str | None = option(
        "Export only this party's part (default: the whole model; all parties should agree)."
    ),
    allow_infinite_epsilon: bool = INFINITE_EPSILON,
    force: bool = FORCE,
) -> None:
    """Export one party's part (HDF5, JSON, skops) or the whole model (JSON, skops, ONNX)."""
    from fastadmm.runs.export import export_model, export_party

    if party is None:
        export_model(model, out, force=force, allow_infinite_epsilon=allow_infinite_epsilon)
        say(f"model in {out}")
    else:
        export_party(model, party, out, force=force, allow_infinite_epsilon=allow_infinite_epsilon)
        say(f"part of {party} in {out}")


@app.command(name="import")
def import_part(
    file: Path = argument("A party's .h5 or .json, from 'fastadmm export --party'."),
    model: Path = argument("Run directory or model directory."),
    force: bool = flag("Replace a different file of this party.", "--force"),
) -> None:
    """Put a party's exported part back into its model, with the same bytes."""
    from fastadmm.runs.export import import_party

    say(f"part of {import_party(file, model, force=force)} in {model}")

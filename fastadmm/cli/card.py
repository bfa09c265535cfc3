"""``fastadmm card``: the model card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fastadmm.cli.app import app
from fastadmm.cli.terminal import say


@app.command()
def card(
    model: Annotated[Path, typer.Argument(readable=False, help="Run directory or model directory.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", readable=False, help="File to write (default: standard output)."),
    ] = None,
    coefficients: Annotated[
        bool, typer.Option("--coefficients", help="Add the table of coefficients, from all parties' files.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON instead of Markdown.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write a model card: model, certificate, training data, metrics and privacy statement."""
    import json

    from fastadmm.files.atomic import atomic_file
    from fastadmm.runs.card import card_text, model_card

    found = model_card(model, coefficients=coefficients)
    text = json.dumps(found, indent=2, ensure_ascii=False) + "\n" if as_json else card_text(found)
    if out is None:
        say(text.removesuffix("\n"))
        return
    with atomic_file(out, force=force, shared=True) as temporary:
        temporary.write_text(text, encoding="utf-8")
    say(f"model card in {out}")

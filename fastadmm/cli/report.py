"""``fastadmm report`` and ``card``: the HTML page of a run, and the card of its model."""

from __future__ import annotations

from pathlib import Path

from fastadmm.cli.app import app
from fastadmm.cli.options import FORCE, argument, flag, option
from fastadmm.cli.terminal import print_json, say


@app.command()
def report(
    run: Path = argument("Run directory, finished or not.", metavar="RUN"),
    out: Path | None = option(
        "HTML page to write. (default: RUN/report.html)",
        "-o",
        "--out",
        "--output",
        metavar="FILE",
        show_default=False,
    ),
    as_json: bool = flag("Print one JSON document instead of the path.", "--json"),
) -> None:
    """Write a self-contained HTML report of a run: certificate, progress, parties, configuration."""
    from fastadmm.reports import write_report

    page = write_report(run, out)
    if as_json:
        print_json({"report": str(page)}, indent=None)
    else:
        say(str(page))


@app.command()
def card(
    model: Path = argument("Run directory or model directory."),
    out: Path | None = option("File to write (default: standard output).", "--out", "-o"),
    coefficients: bool = flag("Add the table of coefficients, from all parties' files.", "--coefficients"),
    as_json: bool = flag("Write JSON instead of Markdown.", "--json"),
    force: bool = FORCE,
) -> None:
    """Write a model card: model, certificate, training data, metrics and privacy statement."""
    import json

    from fastadmm.files.atomic import write_whole
    from fastadmm.runs.card import card_text, model_card

    found = model_card(model, coefficients=coefficients)
    text = json.dumps(found, indent=2, ensure_ascii=False) + "\n" if as_json else card_text(found)
    if out is None:
        say(text.removesuffix("\n"))
        return
    write_whole(out, text, force=force, shared=True)
    say(f"model card in {out}")

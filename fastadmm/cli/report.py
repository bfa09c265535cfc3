"""``fastadmm report``, ``card``, ``compare`` and ``verify``: what may be said of runs and their models."""

from __future__ import annotations

from pathlib import Path

from fastadmm.cli.app import app
from fastadmm.cli.options import FORCE, JSON, argument, flag, option
from fastadmm.cli.tables import grid, show
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
    as_json: bool = flag("Write JSON instead of Markdown.", "--json"),
    force: bool = FORCE,
) -> None:
    """Write a model card: model, certificate, training data, metrics and privacy statement."""
    import json

    from fastadmm.files.atomic import write_whole
    from fastadmm.runs.card import card_text, model_card

    found = model_card(model)
    text = json.dumps(found, indent=2, ensure_ascii=False) + "\n" if as_json else card_text(found)
    if out is None:
        say(text.removesuffix("\n"))
        return
    write_whole(out, text, force=force, shared=True)
    say(f"model card in {out}")


@app.command()
def compare(
    runs: list[Path] = argument("Run directories, finished or not.", metavar="RUN RUN..."),
    as_json: bool = flag("Print one JSON document instead of the table.", "--json"),
) -> None:
    """Compare runs: results, metrics and differing settings."""
    from fastadmm.figures.numbers import NONE
    from fastadmm.reports import compare_runs
    from fastadmm.reports.comparison import comparison_rows

    comparison = compare_runs(runs)
    if as_json:
        print_json(comparison.to_json(), allow_nan=False)
        return
    found = comparison_rows(comparison)
    rows = [[label, *texts] for label, texts in found if any(text != NONE for text in texts)]
    show(grid("", ["run", *(run.name for run in comparison.runs)], rows))
    for line in comparison.notes:
        say(line)


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

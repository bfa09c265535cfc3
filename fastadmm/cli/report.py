"""``fastadmm report``, ``card``, ``compare`` and ``verify``: what may be said of runs and their models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastadmm.cli import options as opt
from fastadmm.cli.app import app
from fastadmm.cli.terminal import grid, print_json, say, tell


@app.command()
def report(
    run: Path = opt.argument("Run directory, finished or not.", metavar="RUN"),
    out: Path | None = opt.written("FILE.html", usual="RUN/report.html"),
) -> None:
    """Write a self-contained HTML report of a run: certificate, progress, parties, configuration."""
    from fastadmm.reports import write_report

    say(str(write_report(run, out)))


@app.command()
def card(
    model: Path = opt.argument("Run directory or model directory."),
    out: Path | None = opt.written(usual="standard output"),
    as_json: bool = opt.JSON,
    force: bool = opt.FORCE,
) -> None:
    """Write a model card: model, certificate, training data, metrics and privacy statement."""
    import json

    from fastadmm.files.atomic import write_whole
    from fastadmm.runs.export import card_text, model_card

    found = model_card(model)
    text = json.dumps(found, indent=2, ensure_ascii=False) + "\n" if as_json else card_text(found)
    if out is None:
        say(text.removesuffix("\n"))
        return
    write_whole(out, text, force=force, shared=True)
    say(f"model card in {out}")


@app.command()
def compare(
    runs: list[Path] = opt.argument("Run directories, finished or not.", metavar="RUN RUN..."),
    as_json: bool = opt.JSON,
) -> None:
    """Compare runs: results, metrics and differing settings."""
    from fastadmm.figures.numbers import NONE
    from fastadmm.reports import compare_runs
    from fastadmm.reports.records import comparison_rows

    comparison = compare_runs(runs)

    def parts() -> list[Any]:
        found = comparison_rows(comparison)
        rows = [[label, *texts] for label, texts in found if any(text != NONE for text in texts)]
        return [grid("", ["run", *(run["name"] for run in comparison.runs)], rows), *comparison.notes]

    tell(as_json, comparison.to_json(), parts, allow_nan=False)


@app.command()
def verify(
    run: Path = opt.argument("Run directory.", metavar="RUN"),
    data: Path | None = opt.argument(
        "Training partition, where it is no longer in its place.", default=None, metavar="[DATA]"
    ),
    digits: int = opt.option(
        "Compute with so many digits, by mpmath: small data.",
        "--digits",
        default=0,
        metavar="N",
        min=0,
        max=1000,
    ),
    as_json: bool = opt.JSON,
) -> int:
    """Prove the model of a run again, from its files and its data; exit code 0 only if the claim holds."""
    from fastadmm.runs.verify import verify_run

    found = verify_run(run, data, digits)
    if as_json:
        print_json(found.to_json(), allow_nan=False)
    else:
        say(found.line if not found.exit_code else f"fastadmm: {found.line}", error=bool(found.exit_code))
    return int(found.exit_code)

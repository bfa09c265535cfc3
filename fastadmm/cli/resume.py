"""``fastadmm resume``: continue a run from its last checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fastadmm.cli.app import app


@app.command()
def resume(
    run: Annotated[Path, typer.Argument(readable=False, help="Run directory made by 'fastadmm train'.")],
    gap: Annotated[float | None, typer.Option(help="New relative duality gap to certify.")] = None,
    stationarity: Annotated[
        float | None, typer.Option(help="New relative stationarity of a non-convex problem.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="New round limit, counted from the start of the run.")
    ] = None,
    time: Annotated[
        float | None, typer.Option(help="New time limit in seconds, from the start of the run.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Threads; the result does not depend on it.")] = None,
    memory: Annotated[
        str | None,
        typer.Option(help="Most memory to take; the result does not depend on it."),
    ] = None,
    log_to: Annotated[
        list[str] | None,
        typer.Option(
            "--log-to",
            metavar="KIND[=PLACE]",
            help="Another log, tensorboard or mlflow; those that the run has go on by themselves.",
        ),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show nothing but errors and the result.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")] = False,
) -> int:
    """Continue an interrupted run to the bit-identical result, or a finished one to a new limit."""
    from fastadmm.cli.display import make_display
    from fastadmm.cli.train import report_result
    from fastadmm.runs.train import resume_run
    from fastadmm.tracking import tracked

    changes = {
        "gap": gap,
        "stationarity": stationarity,
        "rounds": rounds,
        "time": time,
        "threads": threads,
        "memory": memory,
    }
    with tracked(run, log_to or [], make_display(quiet)) as tracking:
        result = tracking.finish(resume_run(run, changes=changes, display=tracking))
    return report_result(result, run, as_json)

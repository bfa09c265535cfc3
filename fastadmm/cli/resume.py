"""``fastadmm resume``: continue a run from its last checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fastadmm.cli.app import app
from fastadmm.cli.options import with_options


def _settings() -> Any:
    from dataclasses import replace

    from fastadmm.settings.keys import SETTINGS

    return [
        replace(s, help=s.resumed, default=None, hidden=False) for s in SETTINGS.values() if s.resumed
    ], ()


@app.command()
@with_options(_settings)
def resume(
    run: Annotated[Path, typer.Argument(readable=False, help="Run directory made by 'fastadmm train'.")],
    *,
    options: dict[str, Any],
    log_to: Annotated[
        list[str] | None,
        typer.Option(
            "--log-to",
            metavar="KIND[=PLACE]",
            help="Add a log, tensorboard or mlflow; logs that the run already has continue.",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show only errors and the result.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")] = False,
) -> int:
    """Continue an interrupted run to the same result, bit for bit, or a finished one to a new limit."""
    from fastadmm.cli.cluster import agreed, on_cluster, refuse_many, workers
    from fastadmm.cli.display import make_display
    from fastadmm.cli.train import report_result
    from fastadmm.runs.train import cluster_of, resume_run
    from fastadmm.tracking import tracked

    with workers(options.get("cluster")) as comm:
        cluster = agreed(comm, lambda: cluster_of(run, options))
        refuse_many(options.get("cluster"), cluster)
        if cluster.startswith("dask://"):
            from fastadmm.cli.cluster import refuse_logs, resume_on_dask

            refuse_logs(log_to)
            return report_result(resume_on_dask(cluster, run, options, make_display(quiet)), run, as_json)

        def lead(comm: Any) -> int:
            with tracked(run, log_to or [], make_display(quiet)) as tracking:
                result = tracking.finish(resume_run(run, changes=options, display=tracking, comm=comm))
            return report_result(result, run, as_json)

        return on_cluster(lead, cluster, comm=comm)

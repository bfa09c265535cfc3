"""``fastadmm infer``: standard errors, tests and fit statistics of a run's model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastadmm.cli.app import app
from fastadmm.cli.options import check_csv
from fastadmm.cli.tables import show
from fastadmm.files.escapes import csv_cell, printable_json

if TYPE_CHECKING:
    from fastadmm.inference.table import Inference

Level = Annotated[float, typer.Option("--level", help="Level of the confidence intervals.")]
Covariance = Annotated[
    str, typer.Option("--covariance", help="model, or robust standard errors: HC0 or HC1.")
]


@app.command()
def infer(
    run: Annotated[Path, typer.Argument(readable=False, help="Finished run; its data are read again.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", readable=False, help="CSV file for the table of weights.")
    ] = None,
    level: Level = 0.95,
    covariance: Covariance = "model",
    standardized: Annotated[
        bool, typer.Option("--standardized", help="Weights of the scaled columns instead of the raw ones.")
    ] = False,
    threads: Annotated[int | None, typer.Option("--threads", help="Threads.", min=1)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Print weights with standard errors, p-values and confidence intervals, tests, AIC, BIC and R²."""
    from fastadmm.runs.infer import infer_run

    check_csv(out)
    found = infer_run(run, covariance=covariance, level=level, standardized=standardized, threads=threads)
    if out is not None:
        from fastadmm.files.atomic import atomic_file

        with atomic_file(out, force=force) as temporary:
            found.to_frame().map(csv_cell).to_csv(temporary, index=False)
    print_inference(found, as_json)


def print_inference(found: Inference, as_json: bool) -> None:
    """Print tables of weights, tests and fit, or one JSON document."""

    if as_json:
        import json

        print(printable_json(json.dumps(found.to_dict(), indent=2, ensure_ascii=False)))
        return
    show(*found.parts())

"""``fastadmm infer``: standard errors, tests and fit statistics of a run's model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fastadmm.cli.app import app
from fastadmm.cli.options import FORCE, JSON, argument, check_csv, flag, option
from fastadmm.cli.tables import show
from fastadmm.cli.terminal import print_json

if TYPE_CHECKING:
    from fastadmm.inference.table import Inference

LEVEL = option("Level of the confidence intervals.", "--level", default=0.95)
COVARIANCE = option("model, or robust standard errors: HC0 or HC1.", "--covariance", default="model")


@app.command()
def infer(
    run: Path = argument("Finished run; its data are read again."),
    out: Path | None = option("CSV file for the table of weights.", "--out", "-o"),
    level: float = LEVEL,
    covariance: str = COVARIANCE,
    standardized: bool = flag("Weights of the scaled columns instead of the raw ones.", "--standardized"),
    threads: int | None = option("Threads.", "--threads", min=1),
    as_json: bool = JSON,
    force: bool = FORCE,
) -> None:
    """Print weights with standard errors, p-values and confidence intervals, tests, AIC, BIC and R²."""
    from fastadmm.runs.infer import infer_run

    check_csv(out)
    found = infer_run(run, covariance=covariance, level=level, standardized=standardized, threads=threads)
    if out is not None:
        from fastadmm.files.atomic import write_frame

        write_frame(out, found.to_frame(), force=force)
    print_inference(found, as_json)


def print_inference(found: Inference, as_json: bool) -> None:
    """Print tables of weights, tests and fit, or one JSON document."""

    if as_json:
        print_json(found.to_dict(), ensure_ascii=False)
        return
    show(*found.parts())

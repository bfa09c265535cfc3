"""``fastadmm infer``: standard errors, tests and fit statistics of a run's model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastadmm.cli.app import app
from fastadmm.cli.options import check_csv
from fastadmm.cli.tables import show
from fastadmm.files.escapes import csv_cell, printable, printable_json

if TYPE_CHECKING:
    from fastadmm.inference.table import Inference

Level = Annotated[float, typer.Option("--level", help="Level of the confidence intervals.")]
Covariance = Annotated[
    str,
    typer.Option("--covariance", help="model, or robust standard errors: HC0 or HC1."),
]


@app.command()
def infer(
    run: Annotated[Path, typer.Argument(readable=False, help="Finished run; its data are read again.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", readable=False, help="CSV file for the table of weights."),
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
    show(*_parts(found))


def _parts(found: Inference) -> list[Any]:
    """Tables of weights, tests and fit, and the notes."""
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    ratio = found.estimate.family.ratio
    weights = Table(
        title=f"weights with standard errors and {100 * found.level:g} % intervals",
        box=SIMPLE,
        padding=(0, 0),
    )
    weights.add_column("feature")
    names = ("weight", "error", "t" if found.estimate.family.has_dispersion else "z", "p", "low", "high")
    for name in (*names, *([ratio] if ratio else [])):
        weights.add_column(name, justify="right")
    table, last = found.columns, ""
    for k, (party, feature) in enumerate(zip(found.parties, found.features)):
        if party != last:
            weights.add_row(Text(printable(party), style="bold"))
            last = party
        cells = [f"{table[key][k]:.3g}" for key in ("weight", "standard_error")]
        cells += [f"{table['statistic'][k]:.2f}", _p(table["p_value"][k])]
        cells += [f"{table[key][k]:.3g}" for key in ("low", "high", *(["ratio"] if ratio else []))]
        shown = printable(feature)
        shown += "" if found.classes is None else f" [{printable(found.classes[k])}]"
        weights.add_row(Text(("  " if party else "") + shown), *cells)
    tests = Table(title="tests of weights being zero", box=SIMPLE)
    tests.add_column("test")
    for name in ("statistic", "df", "p"):
        tests.add_column(name, justify="right")
    for test in found.tests:
        df = ", ".join(f"{number:.4g}" for number in test.df)
        tests.add_row(Text(printable(test.name)), f"{test.statistic:.5g}", df, _p(test.p_value))
    fit = Table(title="fit", box=SIMPLE)
    fit.add_column("figure")
    fit.add_column("value", justify="right")
    for name, value in found.to_dict()["fit"].items():
        if value is not None:
            fit.add_row(name.replace("_", " "), f"{value:.6g}")
    return [weights, tests, fit, *(f"note: {note}" for note in found.notes)]


def _p(value: float) -> str:
    return "<1e-16" if value < 1e-16 else f"{value:.2g}"

"""``fastadmm coefficients`` and ``infer``: weights by name, and with standard errors and tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fastadmm.cli.app import app
from fastadmm.cli.options import FORCE, JSON, PARTY, SHOWN, argument, check_csv, option, written
from fastadmm.cli.tables import show
from fastadmm.cli.terminal import print_json, say
from fastadmm.errors import ConfigError
from fastadmm.files.escapes import printable

if TYPE_CHECKING:
    from rich.table import Table

    from fastadmm.inference.table import Inference
    from fastadmm.store.coefficients import Coefficients


@app.command()
def coefficients(
    model: Path = argument("Run or model directory, or one party's file of a model."),
    party: str | None = PARTY,
    baseline: list[str] | None = option(
        "Compare a column's categories with this; may be repeated.", metavar="COLUMN=CATEGORY"
    ),
    out: Path | None = written("FILE.csv"),
    as_json: bool = JSON,
    force: bool = FORCE,
) -> None:
    """Print a model's weights by party and feature: raw and scaled columns, odds ratios, categories."""

    from fastadmm.runs.coefficients import read_coefficients

    check_csv(out)
    references = {}
    for pair in baseline or ():
        column, equals, category = pair.partition("=")
        if not equals:
            raise ConfigError(f"--baseline {pair}: write COLUMN=CATEGORY")
        references[column] = category
    found = read_coefficients(model, party, references)
    if out is not None:
        from fastadmm.files.atomic import write_frame

        write_frame(out, found.to_frame(), force=force)
    if as_json:
        print_json(found.to_dict(), ensure_ascii=False)
        return
    shown = found.largest(SHOWN)
    show(coefficient_table(shown))
    left = len(found.rows()) - len(shown.rows())
    if left:
        say(f"{left} more with smaller scaled weights: -o FILE.csv for all")
    for note in found.notes:
        say(f"note: {note}")


def coefficient_table(found: Coefficients) -> Table:
    """The table for a terminal; a category's ratio is that to its reference."""
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    table = Table(title="coefficients", box=SIMPLE, padding=(0, 1))
    table.add_column("feature")
    if "class" in found.columns:
        table.add_column("class")
    for name in ("weight", "scaled", *([found.ratio] if found.ratio else [])):
        table.add_column(name, justify="right")
    if "reference" in found.columns:
        table.add_column("compared with")
    last = ""
    for row in found.rows():
        if row["party"] != last:
            table.add_row(Text(printable(row["party"]), style="bold"))
            last = row["party"]
        cells = [Text(("  " if row["party"] else "") + printable(row["feature"]))]
        cells += [Text(printable(row["class"]))] if "class" in row else []
        cells += [Text(f"{row[key]:.4g}") for key in ("weight", "scaled_weight")]
        reference = row.get("reference")
        if found.ratio:
            cells.append(Text(f"{row['ratio'] if reference is None else row['ratio_to_reference']:.4g}"))
        cells += [Text(printable(reference or ""))] if "reference" in row else []
        table.add_row(*cells)
    return table


LEVEL = option("Level of the confidence intervals.", "--level", default=0.95)
COVARIANCE = option("model, or robust standard errors: HC0 or HC1.", "--covariance", default="model")


@app.command()
def infer(
    run: Path = argument("Finished run; its data are read again."),
    level: float = LEVEL,
    covariance: str = COVARIANCE,
    as_json: bool = JSON,
) -> None:
    """Print weights with standard errors, p-values and confidence intervals, tests, AIC, BIC and R²."""
    from fastadmm.runs.infer import infer_run

    print_inference(infer_run(run, covariance=covariance, level=level), as_json)


def print_inference(found: Inference, as_json: bool) -> None:
    """Print tables of weights, tests and fit, or one JSON document."""

    if as_json:
        print_json(found.to_dict(), ensure_ascii=False)
        return
    show(*found.parts())

"""``fastadmm coefficients``, ``infer``, ``columns`` and ``drift``: weights and columns by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastadmm.cli import options as opt
from fastadmm.cli.app import app
from fastadmm.cli.terminal import grid, tell
from fastadmm.errors import ConfigError

if TYPE_CHECKING:
    from rich.table import Table

    from fastadmm.store.coefficients import Coefficients


@app.command()
def coefficients(
    model: Path = opt.argument("Run or model directory, or one party's file of a model."),
    party: str | None = opt.PARTY,
    baseline: list[str] | None = opt.option(
        "Compare a column's categories with this; may be repeated.", metavar="COLUMN=CATEGORY"
    ),
    out: Path | None = opt.written("FILE.csv"),
    as_json: bool = opt.JSON,
    force: bool = opt.FORCE,
) -> None:
    """Print a model's weights by party and feature: raw and scaled columns, odds ratios, categories."""

    from fastadmm.runs.export import read_coefficients

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
    tell(as_json, found.to_dict(), lambda: _largest(found), ensure_ascii=False)


def _largest(found: Coefficients) -> Iterator[Table | str]:
    """A table of the largest weights, how many there are besides, and notes."""
    shown = found.largest(opt.SHOWN)
    yield coefficient_table(shown)
    if left := len(found.rows()) - len(shown.rows()):
        yield f"{left} more with smaller scaled weights: -o FILE.csv for all"
    yield from (f"note: {note}" for note in found.notes)


def coefficient_table(found: Coefficients) -> Table:
    """The table for a terminal; a category's ratio is that to its reference."""
    keys = {"party": "party", "feature": "feature", "class": "class", "weight": "weight"}
    keys |= {"scaled": "scaled_weight", found.ratio or "": "ratio", "compared with": "reference"}
    header = {name: key for name, key in keys.items() if key in found.columns}
    rows = []
    for row in found.rows():
        if row.get("reference") is not None and "ratio" in row:
            row = row | {"ratio": row["ratio_to_reference"]}
        rows.append([row[key] for key in header.values()])
    return grid("coefficients", header, rows, ("feature", "class", "compared with"), simple=True)


LEVEL = opt.option("Level of the confidence intervals.", "--level", default=0.95)
COVARIANCE = opt.option("model, or robust standard errors: HC0 or HC1.", "--covariance", default="model")


@app.command()
def infer(
    run: Path = opt.argument("Finished run; its data are read again."),
    level: float = LEVEL,
    covariance: str = COVARIANCE,
    as_json: bool = opt.JSON,
) -> None:
    """Print weights with standard errors, p-values and confidence intervals, tests, AIC, BIC and R²."""
    from fastadmm.runs.evaluate import infer_run

    found = infer_run(run, covariance=covariance, level=level)
    tell(as_json, found.to_dict(), found.parts, ensure_ascii=False)


@app.command()
def columns(
    data: Path = opt.argument("Partition, or one party's file."),
    labels: Path | None = opt.LABELS,
    as_json: bool = opt.JSON,
) -> None:
    """Print correlation inside a party, and information value, by column."""

    from fastadmm.runs.scorecard import column_report

    rows = column_report(data, labels)
    print_columns("columns", rows, "correlation" if labels is None else "iv_cross", as_json)


def print_columns(title: str, rows: list[dict[str, Any]], key: str, as_json: bool) -> None:
    """Print rows about columns, the largest first."""

    def parts() -> Iterator[Table | str]:
        ordered = sorted(rows, key=lambda row: -1.0 if row[key] is None else abs(row[key]), reverse=True)
        header = [name.replace("_", " ") for name in rows[0]]
        cells = (row.values() for row in ordered[: opt.SHOWN])
        yield grid(title, header, cells, ("column", "with"), simple=True)
        if len(rows) > opt.SHOWN:
            yield f"{len(rows) - opt.SHOWN} more columns: --json for all"

    tell(as_json, {title: rows}, parts, allow_nan=False, ensure_ascii=False)


@app.command()
def drift(
    reference: Path = opt.argument("Partition or party's file of the training rows."),
    new: Path = opt.argument("The same for new rows."),
    as_json: bool = opt.JSON,
) -> None:
    """Print how far columns have shifted between two sets of rows: stability index (PSI), shift of means."""
    from fastadmm.runs.scorecard import column_drift

    print_columns("drift", column_drift(reference, new), "psi", as_json)

"""``fastadmm scorecard``: bins, weights of evidence, and points for each party's columns."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fastadmm.cli.app import app
from fastadmm.cli.convert import Duplicates
from fastadmm.cli.options import InfiniteEpsilon
from fastadmm.cli.tables import cell, show
from fastadmm.cli.terminal import data_output, say
from fastadmm.files.escapes import csv_rows, printable, printable_json

group = typer.Typer(
    help="Make a scorecard: bins and weights of evidence, then points of a model trained on them.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(group, name="scorecard")

_Force = Annotated[bool, typer.Option("--force", help="Replace what exists.")]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


@group.command()
def bins(
    data: Annotated[
        Path, typer.Argument(metavar="DATA", readable=False, help="Partition, or one party's file.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", readable=False, help="The same kind, to write.")],
    labels: Annotated[
        Path | None,
        typer.Option(
            readable=False,
            help="Label file of the same rows, true or from 'scorecard labels' (default: the partition's).",
        ),
    ] = None,
    max_bins: Annotated[int, typer.Option(help="Most bins of a column, without that of missing cells.")] = 6,
    min_share: Annotated[float, typer.Option(help="Smallest share of the rows in a bin.")] = 0.05,
    min_events: Annotated[int, typer.Option(help="Fewest rows of each class in a bin.")] = 5,
    min_iv: Annotated[
        float, typer.Option(help="Leave out columns with less cross-fitted information value.")
    ] = 0.0,
    own: Annotated[
        list[str] | None,
        typer.Option("--bins", metavar="COLUMN=BINS", help="Own bins: age=25,40 or 'city=Rome|Oslo,Paris'."),
    ] = None,
    monotone: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[COLUMN=]WAY",
            help="auto, rising, falling or none: the rate of class 1 along numbers. (default: auto)",
        ),
    ] = None,
    force: _Force = False,
    as_json: _Json = False,
) -> None:
    """Bin columns against labels, and write their weights of evidence (WOE) as features to train on."""

    from fastadmm.judging.binning import Rules
    from fastadmm.runs.scorecard import Binning, bin_data, read_bins

    ways = [entry.rpartition("=") for entry in monotone or []]
    of_column = {name: way for name, equals, way in ways if equals}
    general = [way for _, equals, way in ways if not equals] or ["auto"]
    rules = Rules(max_bins, min_share, min_events, general[-1])
    binning = Binning(rules, of_column, dict(map(read_bins, own or [])), min_iv)
    rows, notes = bin_data(data, out, binning, labels, force=force)
    _print("columns", rows, ("party", "column"), as_json)
    for line in notes:
        say(f"fastadmm: {line}", error=True)


@group.command("labels")
def release(
    labels: Annotated[Path, typer.Argument(metavar="LABELS", readable=False, help="The true labels.")],
    out: Annotated[Path, typer.Option("--out", "-o", readable=False, help="Label file for a party.")],
    label_epsilon: Annotated[
        float, typer.Option(help="Each label is flipped with probability 1 / (1 + e^epsilon).")
    ],
    ledger: Annotated[
        Path, typer.Option(readable=False, help="Your privacy ledger, charged before the file is there.")
    ],
    total_epsilon: Annotated[
        float | None,
        typer.Option(help="Most that the ledger may charge to these labels. (default: this epsilon)"),
    ] = None,
    force: _Force = False,
) -> None:
    """Write labels after randomised response, for parties that may not see the true ones."""
    from fastadmm.privacy.public import flip_probability
    from fastadmm.runs.scorecard import release_labels

    most = label_epsilon if total_epsilon is None else total_epsilon
    n_samples = release_labels(labels, out, label_epsilon, ledger, most, force=force)
    flipped = 100.0 * flip_probability(label_epsilon)
    say(
        f"{out}: {n_samples} labels, each flipped with probability {flipped:.3g} %: epsilon {label_epsilon:g}"
    )
    say("give every party this file: another one of the same labels adds its epsilon")


@group.command()
def points(
    model: Annotated[
        Path, typer.Argument(readable=False, help="Run or model directory, or one party's file of a model.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", readable=False, help="Directory to create.")],
    base: Annotated[float, typer.Option(help="Points where the odds are --odds.")] = 600.0,
    odds: Annotated[float, typer.Option(help="Good to bad.")] = 50.0,
    pdo: Annotated[float, typer.Option(help="Points that double the odds.")] = 20.0,
    good: Annotated[
        str | None, typer.Option(help="Class that earns points. (default: the good one, or class 0)")
    ] = None,
    digits: Annotated[int, typer.Option(help="Decimals of points.", min=0, max=12)] = 0,
    allow_infinite_epsilon: InfiniteEpsilon = False,
    force: _Force = False,
    as_json: _Json = False,
) -> None:
    """Write each party's points as CSV, JSON and SQL, and what all parties share."""
    from fastadmm.runs.points import Scaling, cells_of, write_card

    rows, bad = write_card(
        model,
        out,
        Scaling(base, odds, pdo, good, digits),
        force=force,
        allow_infinite_epsilon=allow_infinite_epsilon,
    )
    shown = rows if as_json else [{k: row[k] for k in _SHOWN} | {"cells": cells_of(row)} for row in rows]
    _print("bins", shown, ("party", "column", "cells"), as_json)
    say(f"fastadmm: points rise as the rate of {printable(bad)} falls", error=True)


@group.command()
def apply(
    card: Annotated[
        Path, typer.Argument(readable=False, help="Directory from 'points', or one party's NAME.json.")
    ],
    tables: Annotated[
        list[Path], typer.Argument(readable=False, help="One table for each party, or one with all columns.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", readable=False, help="CSV file (default: standard output).")
    ] = None,
    id_: Annotated[
        list[str] | None, typer.Option("--id", help="Id column of the tables; TABLE:NAME for one.")
    ] = None,
    id_pattern: Annotated[
        list[str] | None, typer.Option(help="What of ids is compared; TABLE:REGEX for one table.")
    ] = None,
    alignment: Annotated[
        Path | None, typer.Option(readable=False, help="From 'fastadmm align': the rows, in order.")
    ] = None,
    duplicates: Annotated[
        Duplicates, typer.Option(help="Repeated ids: refuse, keep the first or last row, or drop all.")
    ] = Duplicates.refuse,
    unseen: Annotated[
        str, typer.Option(help="zeros or refuse: categories that training did not have get no points.")
    ] = "zeros",
    separator: Annotated[
        list[str] | None, typer.Option(help="Between CSV cells (default: recognised).")
    ] = None,
    encoding: Annotated[list[str] | None, typer.Option(help="Of CSV text (default: recognised).")] = None,
    no_header: Annotated[
        bool, typer.Option("--no-header", help="The first line is data: columns c1, c2, ...")
    ] = False,
    force: _Force = False,
) -> None:
    """Add up the points of new rows, read like the training tables."""
    from fastadmm.data_tools.predict_tables import TableRows
    from fastadmm.files.atomic import atomic_file
    from fastadmm.runs.points import apply_card

    options = TableRows(
        id=id_ or None, alignment=alignment, unseen=unseen, separator=separator, encoding=encoding,
        header=not no_header, duplicates=duplicates.value, id_pattern=id_pattern or None,
    )  # fmt: skip
    header, rows, notes = apply_card(card, tables, options)
    if out is None:
        csv_rows(data_output(), [header, *rows])
    else:
        with atomic_file(out, force=force) as new, new.open("w", encoding="utf-8", newline="") as file:
            csv_rows(file, [header, *rows])
        say(f"points of {len(rows)} rows in {out}")
    for line in notes:
        say(f"fastadmm: {line}", error=True)


#: What the screen shows of a bin; files have all of it.
_SHOWN = ("party", "column", "rows", "rate", "woe", "points")


def _print(title: str, rows: list[dict[str, Any]], words: tuple[str, ...], as_json: bool) -> None:

    if as_json:
        import json

        print(printable_json(json.dumps({title: rows}, indent=2, allow_nan=False, ensure_ascii=False)))
        return
    from rich.box import SIMPLE
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, box=SIMPLE, padding=(0, 1))
    for name in rows[0]:
        table.add_column(name, justify="left" if name in words else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell(value)) for value in row.values()))
    show(table)

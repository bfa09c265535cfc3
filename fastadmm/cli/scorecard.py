"""``fastadmm scorecard``: bins, weights of evidence, and points for each party's columns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastadmm.cli import options as opt
from fastadmm.cli.app import new_group
from fastadmm.cli.predict import ReadOptions
from fastadmm.cli.terminal import csv_output, grid, say, say_all, tell
from fastadmm.files.escapes import csv_rows, printable
from fastadmm.settings.setting import declare

group = new_group(
    scorecard="Make a scorecard: bins and weights of evidence, then points of a model trained on them."
)


@dataclass(frozen=True)
class _Rules:
    """What bins must hold to."""

    max_bins: int = declare("data", "most bins of a column, without that of missing cells", default=6)
    min_share: float = declare("data", "smallest share of the rows in a bin", default=0.05)
    min_events: int = declare("data", "fewest rows of each class in a bin", default=5)
    min_iv: float = declare("data", "least cross-fitted information value of a column", default=0.0)


@opt.with_options(group.command())
def bins(
    data: Path = opt.argument("Partition, or one party's file.", metavar="DATA"),
    out: Path = opt.written("DATA", ...),
    labels: Path | None = opt.LABELS,
    own: list[str] | None = opt.option(
        "Own bins: age=25,40 or 'city=Rome|Oslo,Paris'.", "--bins", metavar="COLUMN=BINS"
    ),
    monotone: list[str] | None = opt.option(
        "auto, rising, falling or none: the rate of class 1 along numbers. (default: auto)",
        metavar="[COLUMN=]WAY",
    ),
    *,
    limits: _Rules,
    force: bool = opt.FORCE,
    as_json: bool = opt.JSON,
) -> None:
    """Bin columns against labels, and write their weights of evidence (WOE) as features to train on."""

    from fastadmm.judging.binning import Rules
    from fastadmm.runs.scorecard import Binning, bin_data, read_bins

    ways = [entry.rpartition("=") for entry in monotone or []]
    of_column = {name: way for name, equals, way in ways if equals}
    general = [way for _, equals, way in ways if not equals] or ["auto"]
    rules = Rules(limits.max_bins, limits.min_share, limits.min_events, general[-1])
    binning = Binning(rules, of_column, dict(map(read_bins, own or [])), limits.min_iv)
    rows, notes = bin_data(data, out, binning, labels, force=force)
    _print("columns", rows, ("party", "column"), as_json)
    say_all(notes, "fastadmm: ", error=True)


@group.command("labels")
def release(
    labels: Path = opt.argument("The true labels.", metavar="LABELS"),
    out: Path = opt.written("LABELS.h5", ...),
    label_epsilon: float = opt.option(
        "Each label is flipped with probability 1 / (1 + e^epsilon).", default=...
    ),
    ledger: Path = opt.option(opt.LEDGER.help, "--ledger", default=..., metavar="FILE"),
    total_epsilon: float | None = opt.option(
        "Most that the ledger may charge to these labels. (default: this epsilon)"
    ),
    force: bool = opt.FORCE,
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
    model: Path = opt.argument("Run or model directory, or one party's file of a model."),
    out: Path = opt.written("DIR", ...),
    base: float = opt.option("Points where the odds are --odds.", default=600.0),
    odds: float = opt.option("Good to bad.", default=50.0),
    pdo: float = opt.option("Points that double the odds.", default=20.0),
    good: str | None = opt.option("Class that earns points. (default: the good one, or class 0)"),
    decimals: int = opt.option("Decimals of points.", default=0, min=0, max=12),
    allow_infinite_epsilon: bool = opt.INFINITE_EPSILON,
    force: bool = opt.FORCE,
    as_json: bool = opt.JSON,
) -> None:
    """Write each party's points as CSV and JSON, and what all parties share."""
    from fastadmm.runs.points import Scaling, write_card

    rows, bad = write_card(
        model,
        out,
        Scaling(base, odds, pdo, good, decimals),
        force=force,
        allow_infinite_epsilon=allow_infinite_epsilon,
    )
    shown = rows if as_json else [{key: _cell(key, row[key]) for key in _SHOWN} for row in rows]
    _print("bins", shown, ("party", "column", "categories"), as_json)
    say(f"fastadmm: points rise as the rate of {printable(bad)} falls", error=True)


@opt.with_options(group.command())
def apply(
    card: Path = opt.argument("Directory from 'points', or one party's NAME.json."),
    tables: list[Path] = opt.argument("One table for each party, or one with all columns."),
    out: Path | None = opt.written("FILE.csv", usual="standard output"),
    *,
    rows: ReadOptions,
    force: bool = opt.FORCE,
) -> None:
    """Add up the points of new rows, read like the training tables."""
    from fastadmm.runs.points import apply_card

    header, lines, notes = apply_card(card, tables, rows.reading())
    with csv_output(out, force) as file:
        csv_rows(file, [header, *lines])
    if out is not None:
        say(f"points of {len(lines)} rows in {out}")
    say_all(notes, "fastadmm: ", error=True)


#: What the screen shows of a bin; files have all of it.
_SHOWN = ("party", "column", "bin", "above", "up_to", "categories", "rows", "rate", "woe", "points")


def _cell(key: str, value: Any) -> Any:
    """An edge is shown with more digits than other numbers."""
    return f"{value:.6g}" if key in ("above", "up_to") and value is not None else value


def _print(title: str, rows: list[dict[str, Any]], words: tuple[str, ...], as_json: bool) -> None:
    cells = (row.values() for row in rows)
    table = lambda: [grid(title, rows[0], cells, words, simple=True)]  # noqa: E731
    tell(as_json, {title: rows}, table, allow_nan=False, ensure_ascii=False)

"""``fastadmm predict``, ``combine`` and ``evaluate``: predictions for new rows, and how good they are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from fastadmm.cli import options as opt
from fastadmm.cli.app import app
from fastadmm.cli.terminal import csv_output, grid, say, say_all, tell
from fastadmm.errors import ConfigError
from fastadmm.files.escapes import printable

if TYPE_CHECKING:
    from rich.table import Table

    from fastadmm.data_tools.per_table import TableRows
    from fastadmm.runs.predict import Predictions

#: Heading of the options for tables in the help.
TABLES = "Tables (docs/predicting.md)"


@dataclass(frozen=True)
class ReadOptions(opt.CsvLayout):
    """Options for tables of new rows."""

    panel: ClassVar[str] = TABLES
    id: list[str] | None = opt.ID
    duplicates: opt.Duplicates = opt.DUPLICATES
    alignment: Path | None = opt.option("Alignment from 'fastadmm align': the rows to predict, in order.")

    def reading(self) -> TableRows:
        """How tables are read."""
        from fastadmm.data_tools.per_table import TableRows

        known = {f.name for f in fields(TableRows)}
        own = {name: value for name, value in opt.plain_values(self).items() if name in known}
        return TableRows(**own | {"id": self.id or None, "header": not self.no_header})


@dataclass(frozen=True)
class RowOptions(ReadOptions):
    """Options for tables whose rows are scored."""

    offset: str | None = opt.OFFSET
    exposure: str | None = opt.EXPOSURE

    def of(self, data: list[Path], command: str) -> TableRows | None:
        """How tables are read; None for a partition, to which none of the options belongs."""
        if are_tables(data):
            return self.reading()
        if wrong := opt.given_options(self):
            raise ConfigError(f"{wrong[0]}: is for tables, but {data[0]} is none")
        if len(data) > 1:
            raise ConfigError(f"{command}: one partition at a time, not {len(data)}")
        return None


@dataclass(frozen=True)
class _Rows(RowOptions):
    """Those of ``predict``."""

    party: str | None = opt.PARTY


@opt.with_options(app.command())
def predict(
    model: Path = opt.argument("Run directory or model directory."),
    data: list[Path] = opt.argument(
        "Partition with the same columns, or CSV or Parquet tables: one for each party, or one with "
        "all columns. Labels are not needed. With --partial, one party's file or table."
    ),
    out: Path | None = opt.written("FILE.csv", usual="standard output"),
    partial: bool = opt.flag(
        "Write one party's contribution, for 'fastadmm combine'; MODEL may be its file.", "--partial"
    ),
    *,
    rows: _Rows,
    allow_infinite_epsilon: bool = opt.INFINITE_EPSILON,
    force: bool = opt.FORCE,
) -> None:
    """Predict the rows of a partition or of tables: score, probability and label, or value."""

    from fastadmm.runs.predict import notes_of, partial_predict, predict_partition, predict_tables

    if partial and out is None:
        raise ConfigError("--partial: name the contribution file with -o FILE.h5")
    if partial and len(data) > 1:
        raise ConfigError("--partial: one party's file or table at a time")
    options = rows.of(data, "predict")
    if partial and out is not None:
        how = {"force": force, "allow_infinite_epsilon": allow_infinite_epsilon}
        found = partial_predict(model, data[0], out, rows.party, options, **how)
        say(f"contribution of {found.name} to {len(found.values)} rows in {out}")
        say_all(found.notes, "fastadmm: ", error=True)
        return
    if rows.party is not None:
        raise ConfigError("--party: belongs to --partial")
    notes: list[str] = []
    if options is None:
        predictions = predict_partition(model, data[0])
    else:
        predictions, notes = predict_tables(model, data, options)
    write_csv(predictions, out, force)
    say_all([*notes, *notes_of(predictions.model)], "fastadmm: ", error=True)


def are_tables(paths: list[Path]) -> bool:
    """Whether paths are tables: files, and not of HDF5."""
    from fastadmm.files.atomic import storage_errors
    from fastadmm.files.reading import require_regular

    for path in paths:
        with storage_errors(path, "read"):
            if path.is_dir() or not path.exists():
                return False
            require_regular(path)
            with path.open("rb") as file:
                if file.read(8) == b"\x89HDF\r\n\x1a\n":
                    return False
    return True


def write_csv(predictions: Predictions, out: Path | None, force: bool) -> None:
    """Write predictions to a file, or to standard output."""
    from fastadmm.runs.predict import write_predictions

    with csv_output(out, force) as file:
        write_predictions(file, predictions)
    if out is not None:
        say(f"{len(predictions.score)} predictions in {out}")


@app.command()
def combine(
    contributions: list[Path] = opt.argument("Files written by 'fastadmm predict --partial'."),
    model: Path = opt.option(
        "Run directory or model directory; weights are not read.", "--model", "-m", default=...
    ),
    out: Path | None = opt.written("FILE.csv", usual="standard output"),
    labels: Path | None = opt.LABELS,
    force: bool = opt.FORCE,
) -> None:
    """Add up the parties' contributions to predictions."""

    from fastadmm.runs.predict import combine_contributions

    write_csv(combine_contributions(model, contributions, labels), out, force)


@dataclass(frozen=True)
class _Labelled(RowOptions):
    """Options for tables with labels."""

    label: str | None = opt.LABEL
    weight: str | None = opt.WEIGHT


@opt.with_options(app.command())
def evaluate(
    model: Path = opt.argument("Run directory or model directory."),
    data: list[Path] = opt.argument("Labelled partition with the same columns, or CSV or Parquet tables."),
    threshold: float | None = opt.option(
        "Probability above which the second class is predicted. (default: 0.5)"
    ),
    reference: Path | None = opt.option(
        "Training partition, to measure how far scores have shifted since (PSI).", metavar="TRAIN.parts"
    ),
    *,
    rows: _Labelled,
    as_json: bool = opt.JSON,
) -> None:
    """Measure log loss, AUC, KS, calibration, confusion and drift, or RMSE, MAE, R², D², on labelled data."""
    from fastadmm.runs.evaluate import evaluate_partition, evaluate_tables

    how: dict[str, Any] = {"threshold": threshold, "reference": reference}
    options = rows.of(data, "evaluate")
    if options is None:
        document = evaluate_partition(model, data[0], **how)
    else:
        document = evaluate_tables(model, data, options, label=rows.label, weight=rows.weight, **how)
    print_evaluation(document, as_json)


def print_evaluation(document: dict[str, Any], as_json: bool) -> None:
    """Print metrics, as a table or as JSON."""
    tell(as_json, document, lambda: _parts(document))


def _parts(document: dict[str, Any]) -> Iterator[Table | str]:
    """Tables of metrics and classes, and notes."""
    from fastadmm.reports.html import class_table, confusion_table

    if len((confusion := document.get("confusion", {})).get("classes", ())) == 2:
        matrix = confusion["matrix"]
        share = 100.0 * sum(matrix[1]) / sum(map(sum, matrix))
        yield f"class 1 = {printable(confusion['classes'][1])} ({share:.3g} % of rows)"
    title = f"{document['data']} ({document['n_samples']} rows)"
    yield grid(title, ("metric", "value"), _metric_rows(document))
    table = class_table(document["metrics"].get("classes"))
    if table is None and confusion:
        table = confusion_table(confusion)
        table["title"] = f"rows by class (threshold {confusion['threshold']:g})"
        del table["rows"][len(confusion["classes"]) :]  # what follows from them is in the report
    if table is not None:
        yield grid(table["title"], table["header"], table["rows"])
    yield from (f"note: {note}" for note in document.get("notes", ()))
    yield from map(str, document.get("looks", ()))


def _metric_rows(document: dict[str, Any]) -> list[tuple[str, str]]:
    """Name and value of everything that is one number, or an interval."""
    rows = []
    ranking = document.get("ranking", {})
    for name, value in document["metrics"].items():
        if isinstance(value, list):
            continue  # one row per class, in a table of their own
        if isinstance(value, dict):
            name, value = "expected calibration error", value["expected_calibration_error"]
        rows.append((name.replace("_", " "), "–" if value is None else f"{value:.6f}"))
        if name == "auc" and ranking.get("auc_interval"):
            low, high = ranking["auc_interval"]
            rows.append((f"auc, {100 * ranking['level']:g} % interval", f"{low:.4f} to {high:.4f}"))
    if ranking:
        rows.append(("average precision", f"{ranking['average_precision']:.6f}"))
        rows.append((f"KS distance (at {ranking['ks_score']:.4g})", f"{ranking['ks']:.6f}"))
        rows.append(("lift of the top tenth", f"{ranking['groups'][0]['lift']:.4f}"))
    if "drift" in document:
        drift = document["drift"]
        beyond = f", {drift['outside']} rows outside" if drift["outside"] else ""
        rows.append((f"PSI of scores since {printable(drift['reference'])}", f"{drift['psi']:.4f}{beyond}"))
    return rows

"""``fastadmm predict`` and ``combine``: predictions for new rows, also from parties' contributions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastadmm.cli.app import app
from fastadmm.cli.options import (
    FORCE,
    INFINITE_EPSILON,
    argument,
    check_csv,
    flag,
    given_options,
    option,
    with_options,
)
from fastadmm.cli.terminal import data_output, say
from fastadmm.errors import ConfigError

if TYPE_CHECKING:
    from fastadmm.data_tools.per_table import TableRows
    from fastadmm.runs.predict import Predictions

#: Heading of the options for tables in the help.
TABLES = "Tables (docs/predicting.md)"


@dataclass(frozen=True)
class ReadOptions:
    """Options for tables of new rows."""

    id_: list[str] | None = option(
        "Id column of the tables; TABLE:NAME for one (default: rows of a single table are numbered from 0).",
        "--id",
        panel=TABLES,
    )
    id_pattern: list[str] | None = option(
        "Regular expression of ids; what its group finds is compared. TABLE:PATTERN for one table.",
        panel=TABLES,
    )
    alignment: Path | None = option(
        "Alignment from 'fastadmm align': the rows to predict, in order.", panel=TABLES
    )
    unseen: str | None = option(
        "zeros or refuse: categories that training did not have. (default: zeros)", panel=TABLES
    )
    separator: list[str] | None = option(
        "Separator between CSV cells; TABLE:CHAR for one table. (default: recognised)", panel=TABLES
    )
    encoding: list[str] | None = option(
        "Encoding of CSV text; TABLE:NAME for one table. (default: recognised)", panel=TABLES
    )
    no_header: bool = flag(
        "The first line of CSV files is data: columns c1, c2, ...", "--no-header", panel=TABLES
    )
    duplicates: str | None = option(
        "refuse, first, last or drop: ids that occur more than once. (default: refuse)", panel=TABLES
    )

    def reading(self, **more: Any) -> TableRows:
        """How tables are read."""
        from fastadmm.data_tools.per_table import TableRows

        return TableRows(
            id=self.id_ or None,
            alignment=self.alignment,
            unseen=self.unseen or "zeros",
            separator=self.separator,
            encoding=self.encoding,
            header=not self.no_header,
            duplicates=self.duplicates or "refuse",
            id_pattern=self.id_pattern or None,
            **more,
        )


@dataclass(frozen=True)
class RowOptions(ReadOptions):
    """Options for tables whose rows are scored."""

    offset: str | None = option("Column of the first table that is added to the score.", panel=TABLES)
    exposure: str | None = option("Column of the first table whose logarithm is added.", panel=TABLES)

    def of(self, data: list[Path], command: str) -> TableRows | None:
        """How tables are read; None for a partition, to which none of the options belongs."""
        if are_tables(data):
            return self.reading(offset=self.offset, exposure=self.exposure)
        if wrong := given_options(self):
            raise ConfigError(f"{wrong[0]}: is for tables, but {data[0]} is none")
        if len(data) > 1:
            raise ConfigError(f"{command}: one partition at a time, not {len(data)}")
        return None


@dataclass(frozen=True)
class _Rows(RowOptions):
    """Those of ``predict``."""

    party: str | None = option(
        "With --partial and a table: the party that the table belongs to.", panel=TABLES
    )


@app.command()
@with_options()
def predict(
    model: Path = argument("Run directory or model directory."),
    data: list[Path] = argument(
        "Partition with the same columns, or CSV or Parquet tables: one for each party, or one with "
        "all columns. Labels are not needed. With --partial, one party's file or table."
    ),
    out: Path | None = option("CSV file to write (default: standard output).", "--out", "-o"),
    partial: bool = flag(
        "Write one party's contribution, for 'fastadmm combine'; MODEL may be its file.", "--partial"
    ),
    *,
    rows: _Rows,
    allow_infinite_epsilon: bool = INFINITE_EPSILON,
    force: bool = FORCE,
) -> None:
    """Predict the rows of a partition or of tables: score, probability and label, or value."""

    from fastadmm.runs.combine import partial_predict
    from fastadmm.runs.predict import notes_of, predict_partition, predict_tables

    if partial and out is None:
        raise ConfigError("--partial: name the contribution file with -o FILE.h5")
    if partial and len(data) > 1:
        raise ConfigError("--partial: one party's file or table at a time")
    if not partial:
        check_csv(out)
    options = rows.of(data, "predict")
    if partial and out is not None:
        how = {"force": force, "allow_infinite_epsilon": allow_infinite_epsilon}
        found = partial_predict(model, data[0], out, rows.party, options, **how)
        say(f"contribution of {found.name} to {len(found.values)} rows in {out}")
        _say_all(found.notes)
        return
    if rows.party is not None:
        raise ConfigError("--party: belongs to --partial")
    notes: list[str] = []
    if options is None:
        predictions = predict_partition(model, data[0])
    else:
        predictions, notes = predict_tables(model, data, options)
    write_csv(predictions, out, force)
    _say_all([*notes, *notes_of(predictions.model)])


def _say_all(notes: Iterable[str]) -> None:
    for line in notes:
        say(f"fastadmm: {line}", error=True)


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
    from fastadmm.files.atomic import csv_file
    from fastadmm.runs.predict import write_predictions

    if out is None:
        write_predictions(data_output(), predictions)
    else:
        with csv_file(out, force=force) as file:
            write_predictions(file, predictions)
        say(f"{len(predictions.score)} predictions in {out}")


@app.command()
def combine(
    contributions: list[Path] = argument("Files written by 'fastadmm predict --partial'."),
    model: Path = option(
        "Run directory or model directory; weights are not read.", "--model", "-m", default=...
    ),
    out: Path | None = option("CSV file to write (default: standard output).", "--out", "-o"),
    labels: Path | None = option("Label file of the same rows, whose offset is added."),
    allow_missing: list[str] | None = option(
        "Party whose file may be missing; may be repeated.", metavar="PARTY"
    ),
    fallback: str | None = option(
        "Replaces a missing party: zero, or the mean of its training contributions."
    ),
    force: bool = FORCE,
) -> None:
    """Add up the parties' contributions to predictions."""

    from fastadmm.runs.combine import combine_contributions

    predictions = combine_contributions(
        model, contributions, labels=labels, allow_missing=allow_missing or (), fallback=fallback
    )
    for name, stand_in in predictions.missing.items():
        say(f"fastadmm: warning: no contribution of {name}: {stand_in} stands for it", error=True)
    write_csv(predictions, out, force)

"""``fastadmm convert``: make a partition from a data file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import typer

from fastadmm.cli.app import app
from fastadmm.cli.options import (
    CsvOptions,
    IdOptions,
    argument,
    flag,
    given_options,
    option,
    plain_values,
    with_options,
)
from fastadmm.cli.terminal import print_json, redraws, say
from fastadmm.errors import ConfigError

if TYPE_CHECKING:
    from fastadmm.data_tools.convert import Progress
    from fastadmm.data_tools.convert_tables import TableOptions, TablePlan
    from fastadmm.store import Partition


Normalize = StrEnum("Normalize", "none l2")
Dtype = StrEnum("Dtype", "float64 float32")
Task = StrEnum("Task", "auto classification regression")
Storage = StrEnum("Storage", "auto dense csr")
Format = StrEnum("Format", "auto libsvm csv npz")


class Missing(StrEnum):
    """How missing values are filled."""

    refuse = "refuse"
    mean = "mean"
    median = "median"
    most_frequent = "most-frequent"
    indicator = "indicator"


Compression = StrEnum("Compression", "none gzip zstd blosc2")

_LIBSVM, _CSV, _NPZ = "LIBSVM sources", "CSV sources", "NPZ sources"


@dataclass(frozen=True)
class _Tables(IdOptions):
    """Options for one table per party."""

    panel = "One table per party, with ids"
    guest: Path | None = option("CSV or Parquet table of the label holder.", metavar="FILE")
    host: list[Path] | None = option("Table of another party; may be repeated.", metavar="FILE")
    id: list[str] | None = option("Id column; TABLE:NAME for one table.", "--id", metavar="NAME")
    align: Path | None = option("Alignment from 'fastadmm align' (default: join by id).", metavar="FILE")


@dataclass(frozen=True)
class _Cells:
    """Options for what columns of CSV and Parquet tables are taken for."""

    panel = "Columns of tables"
    public_columns: Path | None = option(
        "Public bounds, categories and fill values; none is computed from the rows.", metavar="FILE.toml"
    )
    missing: Missing | None = option("How to fill missing values (default: refuse).")
    na_values: list[str] | None = option(
        "More words that mean 'missing'; COLUMN=WORD for one column.", metavar="A,B"
    )
    categorical: str = option("Columns that are categories, also codes.", default="", metavar="A,B")
    types: list[str] | None = option(
        "number, category, days, year, month, weekday (of dates; days:%d.%m.%Y) or hours.",
        metavar="NAME=KIND",
    )
    decimal: str | None = option("Decimal mark (default: by the whole column).", metavar="CHAR")

    @property
    def options(self) -> dict[str, Any]:
        """The options that say how cells are read."""
        lists = {"types": self.types or (), "na_values": self.na_values or ()}
        return plain_values(self) | lists | {"categorical": _list(self.categorical)}


@dataclass(frozen=True)
class _Split:
    """Options for who gets which columns."""

    columns: str | None = option(
        "Widths (66,57), or CSV column names: 'age,bmi;glucose' (semicolons between parties).", metavar="SPEC"
    )
    parties: int | None = option("K equal consecutive blocks of columns.", metavar="K")
    like: Path | None = option(
        "Use columns, scaling, dtype and classes of this partition (for tables, also a run).",
        metavar="OTHER.parts",
    )
    names: str | None = option("Names of the parties (default: party-1, ...).", metavar="A,B")


@dataclass(frozen=True)
class Beside:
    """Options for what is kept beside the labels."""

    panel: ClassVar[str | None] = None
    weight: str | None = option("Column of the label holder with sample weights.", metavar="NAME")
    offset: str | None = option("Column of the label holder that is added to scores.", metavar="NAME")
    exposure: str | None = option(
        "Column of exposures of counts: the logarithm is the offset.", metavar="NAME"
    )


@dataclass(frozen=True)
class _Values(Beside):
    """Options for what is stored of values and labels."""

    panel = "Values and labels"
    split: str | None = option(
        "Hold rows out: 0.3, time:COLUMN=0.3 or =DATE, group:COLUMN=0.3; makes OUT/train.parts and "
        "OUT/test.parts.",
        panel="Options",
        metavar="SHARE",
    )
    standardize: bool = flag(
        "Divide columns by their standard deviation; centre dense columns.", "--standardize", panel="Options"
    )
    task: Task | None = option("auto: two distinct labels, or words, are classes (default: auto).")
    positive: str | None = option(
        "Label that is counted, as class 1 (default: yes, true, bad, 1 ...).", metavar="VALUE"
    )
    normalize: Normalize | None = option("l2: scale each row of each party to norm 1 (default: none).")
    dtype: Dtype | None = option("Type of stored features (default: float64).")
    storage: Storage | None = option(
        "auto: CSR for sparse sources, unless more than half full (default: auto)."
    )
    compression: Compression = option(
        "Make smaller files that are slower to read; zstd and blosc2 need the package hdf5plugin.",
        default=Compression.none,
    )


@dataclass(frozen=True)
class FileOptions:
    """Options for how a data file of any format is read."""

    panel: ClassVar[str | None] = None
    label: str | None = option("Label column (with --guest: of the guest's table).", metavar="NAME")
    drop: str = option("Columns to leave out.", default="", panel=_CSV, metavar="A,B")
    features: int | None = option(
        "Number of features, if the last ones never occur.", panel=_LIBSVM, metavar="D"
    )
    zero_based: bool = flag("Indices count from 0.", "--zero-based", panel=_LIBSVM)
    x_key: str | None = option("Feature array (default: X, or CSR arrays).", panel=_NPZ, metavar="KEY")
    y_key: str | None = option("Label array (default: y).", panel=_NPZ, metavar="KEY")
    format: Format = option("Format of the source.", default=Format.auto)

    @property
    def dropped(self) -> list[str]:
        """Names of the columns to leave out."""
        return _list(self.drop)


@dataclass(frozen=True)
class _Source(FileOptions, CsvOptions):
    """Options for how a source is read."""

    panel = _CSV


@app.command()
@with_options()
def convert(
    source: Path | None = argument(
        "LIBSVM text, CSV, Parquet or NPZ, also .gz, .bz2, .xz; a folder or 'pattern' of parts.",
        default=None,
        metavar="SOURCE",
        show_default=False,
    ),
    out: Path | None = option(
        "Partition directory to create.", "-o", "--out", "--output", metavar="OUT.parts"
    ),
    *,
    tables: _Tables,
    cells: _Cells,
    owners: _Split,
    values: _Values,
    reading: _Source,
    dry_run: bool = flag("Show column types and joined rows; write nothing.", "--dry-run"),
    force: bool = flag("Replace an existing partition.", "--force"),
    as_json: bool = flag("Print the summary as JSON.", "--json"),
) -> None:
    """Convert a data file, or one table per party, to a partition: one file per party, one for labels."""
    how = plain_values(owners) | plain_values(values) | plain_values(reading) | cells.options | reading.layout
    how |= {"drop": reading.dropped}
    del how["no_header"]
    show = _show_json if as_json else _show
    of_tables = tables.guest is not None or bool(tables.host)
    if of_tables:
        foreign = ["SOURCE"] if source is not None else []
        foreign += given_options(owners, "like", "names")
        foreign += given_options(reading, "label", "drop", "separator", "encoding", "no_header")
        if foreign:
            raise ConfigError(f"{foreign[0]} does not go with --guest and --host, one table per party")
        if not tables.id:
            raise ConfigError("--id: which column holds the ids, in every table?")
    elif given := given_options(tables):
        raise ConfigError(f"{given[0]} is for tables with ids: give them with --guest and --host")
    elif source is None:
        raise typer.BadParameter("give a data file, or tables with --guest and --host", param_hint="SOURCE")
    elif _is_partition(source):
        raise ConfigError(f"{source}: a partition already; train on it as it is")
    if out is None and not dry_run:
        hint = ", or --dry-run" if of_tables else ""
        raise typer.BadParameter(f"give the partition to make{hint}", param_hint="--out")
    if source is not None and out is not None and not dry_run:
        show(_convert_source(source, out, how, force))
        return
    options = _table_options(how, tables)
    if source is not None:
        from fastadmm.data_tools.convert_tables import plan_one_table

        _show_plan(plan_one_table(source, options, owners.columns, owners.parties or 1))
    else:
        plan, told = _convert_tables(tables, options, None if dry_run else out, force)
        if dry_run and not as_json:
            _show_plan(plan)
        else:
            show(told)


def _is_partition(path: Path) -> bool:
    return any(os.path.exists(path / name) for name in ("partition.toml", "shards.toml"))


def _table_options(how: dict[str, Any], tables: _Tables) -> TableOptions:
    """How tables become a partition; a single one has no ids."""
    from fastadmm.data_tools.convert_tables import TableOptions

    own = plain_values(tables) | {"id": tables.id or "", "alignment": tables.align}
    given = how | own
    return TableOptions(**{f.name: given[f.name] for f in fields(TableOptions)})


def _list(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def _convert_tables(
    tables: _Tables, options: TableOptions, out: Path | None, force: bool
) -> tuple[TablePlan, dict[str, Any]]:
    """Plan a partition of tables, and write it; what is told of it."""
    from fastadmm.data_tools.convert_tables import plan_tables, write_plan
    from fastadmm.data_tools.destination import check_out
    from fastadmm.runs.looks import partition_looks

    if out is not None:
        check_out(out, force)
    scratch = None if out is None else out.absolute().parent
    with progress_bar() as progress:
        plan = plan_tables(tables.guest, tables.host or [], options, scratch=scratch, progress=progress)
    told: dict[str, Any] = {
        "row_digest": plan.alignment.digest,
        "report": plan.report,
        "columns": plan.columns,
    }
    if out is None:
        return plan, told | {"n_samples": len(plan.alignment.ids), "task": plan.task}
    with progress_bar() as progress:
        how: dict[str, Any] = {"compression": options.compression, "progress": progress}
        partition = write_plan(plan, out, force=force, **how)
    if options.public_columns is None:
        plan.report.extend(partition_looks(partition, tables.align))
    return plan, _summary(partition) | told | _held_out(options.split, out)


def _convert_source(source: Path, out: Path, how: dict[str, Any], force: bool) -> dict[str, Any]:
    from fastadmm.data_tools.convert import convert as run
    from fastadmm.runs.looks import partition_looks

    report: dict[str, Any] = {}

    def told(notes: list[str], columns: Any) -> None:
        report.update(report=notes, columns=columns)

    with progress_bar() as progress:
        partition = run(source, out, **how, force=force, progress=progress, told=told)
    if how["public_columns"] is None:
        report["report"] = [*report.get("report", ()), *partition_looks(partition)]
    return _summary(partition) | report | _held_out(how["split"], out)


def _held_out(split: str | None, out: Path) -> dict[str, Any]:
    """The partition of held-out rows, as part of a summary."""
    from fastadmm.store import open_partition

    if split is None:
        return {}
    return {"test": _summary(open_partition(out / "test.parts", require_labels=False))}


def _show_plan(plan: TablePlan) -> None:
    lines = list(plan.report)
    for name, columns in plan.columns.items():
        lines.append(f"{name}: {len(columns)} columns, {sum(c['features'] for c in columns)} features")
        lines += [f"  {_column_line(record)}" for record in columns]
    held = "" if plan.test is None else f" and {len(plan.test.alignment.ids)} held out"
    lines.append(f"nothing written: {len(plan.alignment.ids)} rows{held}, {plan.task}")
    say("\n".join(lines))


def _type_lines(columns: list[dict[str, Any]]) -> list[str]:
    """What columns were taken for: plain numbers in one line, all others in one line each."""
    plain = {"column", "type", "features", "missing"}
    numbers = [
        c["column"] for c in columns if c["type"] == "number" and not (c.keys() - plain or c["missing"])
    ]
    more = f" and {len(numbers) - 30} more" if len(numbers) > 30 else ""
    lines = [f"numbers: {', '.join(numbers[:30])}{more}"] if numbers else []
    return lines + [_column_line(c) for c in columns if c["column"] not in numbers]


def _column_line(record: dict[str, Any]) -> str:
    line = f"{record['column']}: {record['type']}"
    if "read_as" in record:
        line += f" ({record['read_as']})"
    if "bounds" in record:
        line += " from {:g} to {:g}".format(*record["bounds"])
    if "levels" in record:
        levels = record["levels"]
        line += f" {', '.join(levels[:8])}" + (f", ... ({len(levels)})" if len(levels) > 8 else "")
    if record["missing"]:
        line += f"; {record['missing']} missing"
        if "filled_with" in record:
            line += f", filled with {record['filled_with']}"
    return line


@contextmanager
def progress_bar() -> Iterator[Progress | None]:
    """A progress bar on a terminal, nothing elsewhere; it leaves no trace."""
    import sys

    if not redraws(sys.stderr):
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, Any] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(stage, total=total)
            bar.update(tasks[stage], completed=done)

        yield report


def _summary(partition: Partition) -> dict[str, Any]:
    labels, classes = partition.labels, None
    if labels is not None and labels.classes is not None:
        counts = [int((labels.y == c).sum()) for c in range(len(labels.classes))]
        classes = dict(zip(labels.classes, counts))
    kept = ("name", "n_features", "kind", "dtype", "nnz")
    parties = [{key: getattr(p, key) for key in kept} | {"dtype": str(p.dtype)} for p in partition.parties]
    cells = (p.n_samples * p.n_features if p.nnz is None else p.nnz for p in partition.parties)
    return {
        "partition": str(partition.path),
        "source": partition.source,
        "n_samples": partition.n_samples,
        "n_features": sum(party.n_features for party in partition.parties),
        "nnz": sum(cells),
        "task": partition.task,
        "classes": classes,
        "parties": parties,
    }


def _show_json(summary: dict[str, Any]) -> None:
    print_json(summary, indent=None)


def _show(summary: dict[str, Any]) -> None:
    # Plain text: a name in brackets must not be taken for markup.
    lines = [
        *summary.get("report", ()),
        f"{summary['partition']}: {summary['n_samples']} rows, {summary['n_features']} features, "
        f"{summary['task']}",
    ]
    for party in summary["parties"]:
        stored = f"csr, {party['nnz']} non-zeros" if party["kind"] == "csr" else "dense"
        lines.append(f"  {party['name']}: {party['n_features']} features, {stored}, {party['dtype']}")
        lines += [f"    {line}" for line in _type_lines(summary.get("columns", {}).get(party["name"], []))]
    if summary["classes"] is not None:
        named = (f"{name} -> {c} ({n} rows)" for c, (name, n) in enumerate(summary["classes"].items()))
        lines.append(f"  labels: {', '.join(named)}")
    if "test" in summary:
        lines.append(f"{summary['test']['partition']}: {summary['test']['n_samples']} rows held out")
    say("\n".join(lines))

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

from fastadmm.cli import options as opt
from fastadmm.cli.app import app
from fastadmm.cli.terminal import redraws, tell
from fastadmm.errors import ConfigError
from fastadmm.settings.setting import declare

if TYPE_CHECKING:
    from fastadmm.data_tools.blocks import Progress
    from fastadmm.store.partition import Partition


Format = StrEnum("Format", "auto libsvm csv npz")


class Missing(StrEnum):
    """How missing values are filled."""

    refuse = "refuse"
    mean = "mean"
    median = "median"
    most_frequent = "most-frequent"
    indicator = "indicator"


_CSV = "CSV sources"

LIKE = opt.option(
    "Take columns, scaling and classes from this partition, run or label file.", metavar="OTHER"
)
PARTIES = opt.option("Number of parties; 'convert' gives each an equal block of columns.", metavar="K")
NAMES = opt.option("Names of the parties or owners.", metavar="A,B")


@dataclass(frozen=True)
class _Tables(opt.IdPattern):
    """Options for one table per party."""

    panel = "One table per party, with ids"
    guest: Path | None = opt.option("CSV or Parquet table of the label holder.", metavar="FILE")
    host: list[Path] | None = opt.option("Table of another party; may be repeated.", metavar="FILE")
    id: list[str] | None = opt.ID
    duplicates: opt.Duplicates = opt.DUPLICATES
    align: Path | None = opt.option("Alignment from 'fastadmm align' (default: join by id).", metavar="FILE")


@dataclass(frozen=True)
class _Cells:
    """Options for what columns of CSV and Parquet tables are taken for."""

    panel = "Columns of tables"
    public_columns: Path | None = opt.option(
        "Public bounds, categories and fill values; none is computed from the rows.", metavar="FILE.toml"
    )
    missing: Missing | None = opt.option("How to fill missing values (default: refuse).")
    na_values: list[str] | None = opt.option(
        "More words that mean 'missing'; COLUMN=WORD for one column.", metavar="A,B"
    )
    categorical: str = opt.option("Columns that are categories, also codes.", default="", metavar="A,B")
    types: list[str] | None = opt.option(
        "number, category, days, year, month, weekday (of dates; days:%d.%m.%Y) or hours.",
        metavar="NAME=KIND",
    )
    decimal: str | None = opt.option("Decimal mark (default: by the whole column).", metavar="CHAR")


@dataclass(frozen=True)
class _Split:
    """Options for who gets which columns."""

    columns: str | None = opt.option(
        "Widths (66,57), or CSV column names: 'age,bmi;glucose' (semicolons between parties).", metavar="SPEC"
    )
    parties: int | None = PARTIES
    like: Path | None = LIKE
    names: str | None = NAMES


@dataclass(frozen=True)
class Beside:
    """Options for what is kept beside the labels."""

    panel: ClassVar[str | None] = None
    weight: str | None = opt.WEIGHT
    offset: str | None = opt.OFFSET
    exposure: str | None = opt.EXPOSURE


@dataclass(frozen=True)
class _Values(Beside):
    """Options for what is stored of values and labels."""

    panel = "Values and labels"
    split: str | None = opt.option(
        "Hold rows out: 0.3, time:COLUMN=0.3 or =DATE, group:COLUMN=0.3; makes OUT/train.parts and "
        "OUT/test.parts.",
        panel="Options",
        metavar="SHARE",
    )
    standardize: bool = opt.flag(
        "Centre columns, and divide them by their deviation.", "--standardize", panel="Options"
    )
    task: opt.Task | None = opt.option(opt.TASK.help)
    positive: str | None = opt.POSITIVE
    normalize: str | None = declare("data", "rows of each party to norm 1", choices=("none", "l2"))
    dtype: str | None = declare("data", "of features", choices=("float64", "float32"))
    storage: str | None = declare("data", "of features", choices=("auto", "dense", "csr"))
    compression: str = declare(
        "data", "of the files", choices=("none", "gzip", "zstd", "blosc2"), default="none"
    )


@dataclass(frozen=True)
class FileOptions:
    """Options for how a data file of any format is read."""

    panel: ClassVar[str | None] = None
    label: str | None = opt.LABEL
    drop: str = opt.option("Columns to leave out.", default="", panel=_CSV, metavar="A,B")
    zero_based: bool = declare("data", "true: indices of LIBSVM count from 0", default=False)
    x_key: str | None = declare("data", "features in NPZ, otherwise X or CSR arrays")
    y_key: str | None = declare("data", "labels in NPZ, otherwise y")

    @property
    def dropped(self) -> list[str]:
        """Names of the columns to leave out."""
        return _list(self.drop)


@dataclass(frozen=True)
class _Source(FileOptions):
    """Options for how a source is read."""

    panel = _CSV
    separator: str | None = opt.option("Separator between CSV cells (default: recognised).", metavar="CHAR")
    encoding: str | None = opt.option("Encoding of CSV text (default: recognised).", metavar="NAME")
    no_header: bool = opt.flag("The first line of CSV is data: columns are called c1, c2, ...", "--no-header")
    features: int | None = opt.option(
        "LIBSVM: number of features, if the last ones never occur.", metavar="D"
    )
    format: Format = opt.option("Format of the source.", default=Format.auto)


@opt.with_options(app.command())
def convert(
    source: Path | None = opt.argument(
        "LIBSVM text, CSV, Parquet or NPZ, also .gz, .bz2, .xz; a folder or 'pattern' of parts.",
        default=None,
        metavar="SOURCE",
        show_default=False,
    ),
    out: Path | None = opt.written("OUT.parts"),
    *,
    tables: _Tables,
    cells: _Cells,
    owners: _Split,
    values: _Values,
    reading: _Source,
    dry_run: bool = opt.DRY_RUN,
    force: bool = opt.FORCE,
    as_json: bool = opt.JSON,
) -> None:
    """Convert a data file, or one table per party, to a partition: one file per party, one for labels."""
    of_tables = tables.guest is not None or bool(tables.host)
    if of_tables:
        foreign = ["SOURCE"] if source is not None else []
        foreign += opt.given_options(owners, "like", "names")
        foreign += opt.given_options(reading, "label", "drop", "separator", "encoding", "no_header")
        if foreign:
            raise ConfigError(f"{foreign[0]} does not go with --guest and --host, one table per party")
        if not tables.id:
            raise ConfigError("--id: which column holds the ids, in every table?")
    elif given := opt.given_options(tables):
        raise ConfigError(f"{given[0]} is for tables with ids: give them with --guest and --host")
    elif source is None:
        raise typer.BadParameter("give a data file, or tables with --guest and --host", param_hint="SOURCE")
    elif any(os.path.exists(source / name) for name in ("partition.toml", "shards.toml")):
        raise ConfigError(f"{source}: a partition already; train on it as it is")
    if out is None and not dry_run:
        hint = ", or --dry-run" if of_tables else ""
        raise typer.BadParameter(f"give the partition to make{hint}", param_hint="--out")
    how: dict[str, Any] = {}
    for group in (tables, cells, owners, values, reading):
        how |= opt.plain_values(group)
    how |= {"types": cells.types or (), "na_values": cells.na_values or (), "alignment": how.pop("align")}
    how |= {"categorical": _list(cells.categorical), "drop": reading.dropped, "header": not reading.no_header}
    how |= {"source": source, "hosts": how.pop("host") or ()}
    told = _convert(how, None if dry_run else out, force)
    tell(as_json, told, lambda: _lines(told), indent=None)


def _list(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def _convert(how: dict[str, Any], out: Path | None, force: bool) -> dict[str, Any]:
    """Plan a partition, and write it if it has a place; what is told of it."""
    from fastadmm.data_tools.blocks import check_out, write_plan
    from fastadmm.data_tools.convert import plan_source
    from fastadmm.data_tools.convert_tables import plan_tables
    from fastadmm.data_tools.per_table import TableOptions
    from fastadmm.runs.load import partition_looks
    from fastadmm.store.partition import open_partition

    if out is not None:
        check_out(out, force)
    elif how["source"] is not None and how["columns"] is None and how["like"] is None:
        how["parties"] = how["parties"] or 1
    options = TableOptions(**{field.name: how[field.name] for field in fields(TableOptions)})
    with progress_bar() as progress:
        plan_of = plan_tables if options.source is None else plan_source
        plan = plan_of(options, None if out is None else out.absolute().parent, progress)
        told: dict[str, Any] = {"report": plan.report}
        told |= {"columns": plan.columns} if plan.columns else {}
        if out is None:
            return {"row_digest": plan.digest, **told, "n_samples": plan.n_samples, "task": plan.task}
        partition = write_plan(plan, out, force=force, progress=progress)
    if options.public_columns is None:
        plan.report.extend(partition_looks(partition, how["alignment"]))
    joined = {"row_digest": plan.digest} if options.source is None else {}
    told = _summary(partition) | joined | told
    if plan.test is not None:
        told["test"] = _summary(open_partition(out / "test.parts", require_labels=False))
    return told


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


def _lines(told: dict[str, Any]) -> Iterator[str]:
    """What was converted; of a partition that is only planned, how its columns are read."""
    yield from told.get("report", ())
    columns = dict(told.get("columns", {}))
    if "partition" in told:
        yield (
            f"{told['partition']}: {told['n_samples']} rows, {told['n_features']} features, {told['task']}"
        )
    for party in told.get("parties", ()):
        stored = f"csr, {party['nnz']} non-zeros" if party["kind"] == "csr" else "dense"
        yield f"  {party['name']}: {party['n_features']} features, {stored}, {party['dtype']}"
        yield from (f"    {line}" for line in _type_lines(columns.pop(party["name"], [])))
    for name, own in columns.items():
        yield f"  {name}: {len(own)} columns, {sum(column['features'] for column in own)} features"
        yield from (f"    {line}" for line in _type_lines(own))
    if told.get("classes"):
        named = (f"{name} -> {c} ({n} rows)" for c, (name, n) in enumerate(told["classes"].items()))
        yield f"  labels: {', '.join(named)}"
    if "test" in told:
        yield f"{told['test']['partition']}: {told['test']['n_samples']} rows held out"
    if "partition" not in told:
        yield f"nothing written: {told['n_samples']} rows, {told['task']}"

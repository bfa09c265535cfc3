"""``fastadmm convert``: make a partition from a data file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastadmm.cli.app import app

if TYPE_CHECKING:
    from fastadmm.data_tools.convert import Progress
    from fastadmm.store import Partition


class Normalize(StrEnum):
    """Values of --normalize."""

    none = "none"
    l2 = "l2"


class Dtype(StrEnum):
    """Values of --dtype."""

    float64 = "float64"
    float32 = "float32"


class Task(StrEnum):
    """Values of --task."""

    auto = "auto"
    classification = "classification"
    regression = "regression"


class Storage(StrEnum):
    """Values of --storage."""

    auto = "auto"
    dense = "dense"
    csr = "csr"


class Format(StrEnum):
    """Values of --format."""

    auto = "auto"
    libsvm = "libsvm"
    csv = "csv"
    npz = "npz"


class Compression(StrEnum):
    """Values of --compression."""

    none = "none"
    gzip = "gzip"
    zstd = "zstd"
    blosc2 = "blosc2"


_SPLIT, _VALUES, _LIBSVM, _CSV, _NPZ = (
    "Split between parties",
    "Values and labels",
    "LIBSVM sources",
    "CSV sources",
    "NPZ sources",
)


@app.command()
def convert(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            readable=False,
            help="LIBSVM text, CSV (.csv, .data) or NPZ; also .gz, .bz2, .xz.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "-o",
            "--out",
            "--output",
            metavar="OUT.parts",
            readable=False,
            help="Partition directory to make.",
        ),
    ],
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="SPEC",
            help="Widths (66,57), or for CSV names: 'age,bmi;glucose' (semicolons between parties).",
            rich_help_panel=_SPLIT,
        ),
    ] = None,
    parties: Annotated[
        int | None,
        typer.Option(metavar="K", help="K equal consecutive blocks of columns.", rich_help_panel=_SPLIT),
    ] = None,
    like: Annotated[
        Path | None,
        typer.Option(
            metavar="OTHER.parts",
            readable=False,
            help="Take columns, scaling, dtype and classes from this partition (for test sets).",
            rich_help_panel=_SPLIT,
        ),
    ] = None,
    names: Annotated[
        str | None,
        typer.Option(
            metavar="A,B", help="Names of the parties (default: party-1, ...).", rich_help_panel=_SPLIT
        ),
    ] = None,
    task: Annotated[
        Task | None,
        typer.Option(
            help="Two distinct labels, or words, are classes, unless said otherwise (default: auto).",
            rich_help_panel=_VALUES,
        ),
    ] = None,
    standardize: Annotated[
        bool,
        typer.Option(
            "--standardize",
            help="Divide columns by their standard deviation; centre those stored dense.",
            rich_help_panel=_VALUES,
        ),
    ] = False,
    normalize: Annotated[
        Normalize | None,
        typer.Option(help="l2: each row of each party to norm 1 (default: none).", rich_help_panel=_VALUES),
    ] = None,
    dtype: Annotated[
        Dtype | None,
        typer.Option(help="Type of stored features (default: float64).", rich_help_panel=_VALUES),
    ] = None,
    storage: Annotated[
        Storage | None,
        typer.Option(
            help="auto: sparse sources as CSR, unless more than half full (default).", rich_help_panel=_VALUES
        ),
    ] = None,
    compression: Annotated[
        Compression,
        typer.Option(
            help="Smaller files, slower to read; zstd and blosc2 need fastadmm[compression].",
            rich_help_panel=_VALUES,
        ),
    ] = Compression.none,
    features: Annotated[
        int | None,
        typer.Option(
            metavar="D", help="Number of features, if the last never occur.", rich_help_panel=_LIBSVM
        ),
    ] = None,
    zero_based: Annotated[
        bool, typer.Option("--zero-based", help="Indices count from 0.", rich_help_panel=_LIBSVM)
    ] = False,
    label: Annotated[
        str | None, typer.Option(metavar="NAME", help="Label column.", rich_help_panel=_CSV)
    ] = None,
    drop: Annotated[
        str, typer.Option(metavar="A,B", help="Columns to leave out.", rich_help_panel=_CSV)
    ] = "",
    no_header: Annotated[
        bool,
        typer.Option("--no-header", help="No line of names: columns are c1, c2, ...", rich_help_panel=_CSV),
    ] = False,
    separator: Annotated[
        str, typer.Option(metavar="CHAR", help="Character between cells.", rich_help_panel=_CSV)
    ] = ",",
    x_key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Feature array (default: X, or CSR arrays).", rich_help_panel=_NPZ),
    ] = None,
    y_key: Annotated[
        str | None, typer.Option(metavar="KEY", help="Label array (default: y).", rich_help_panel=_NPZ)
    ] = None,
    format: Annotated[Format, typer.Option(help="Kind of source.")] = Format.auto,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing partition.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Make a partition (one file per party, one for labels) from a data file."""
    from fastadmm.data_tools.convert import convert as run

    with progress_bar() as progress:
        partition = run(
            source,
            out,
            columns=columns,
            parties=parties,
            names=names,
            label=label,
            like=like,
            normalize=_text(normalize),
            standardize=standardize,
            dtype=_text(dtype),
            task=_text(task),
            storage=_text(storage),
            features=features,
            zero_based=zero_based,
            header=not no_header,
            separator="\t" if separator == "\\t" else separator,
            drop=[name.strip() for name in drop.split(",") if name.strip()],
            x_key=x_key,
            y_key=y_key,
            format=format.value,
            compression=compression.value,
            force=force,
            progress=progress,
        )
    summary = _summary(partition)
    if as_json:
        import json

        typer.echo(json.dumps(summary))
    else:
        _show(summary)


def _text(choice: StrEnum | None) -> str | None:
    return None if choice is None else choice.value


@contextmanager
def progress_bar() -> Iterator[Progress | None]:
    """A progress bar on a terminal, nothing elsewhere; it leaves no trace."""
    import sys

    if not sys.stderr.isatty():
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
    labels = partition.labels
    assert labels is not None
    classes = None
    if labels.classes is not None:
        counts = [int((labels.y == c).sum()) for c in range(len(labels.classes))]
        classes = dict(zip(labels.classes, counts))
    return {
        "partition": str(partition.path),
        "source": partition.source,
        "n_samples": partition.n_samples,
        "n_features": sum(party.n_features for party in partition.parties),
        "nnz": sum(
            party.nnz if party.nnz is not None else party.n_samples * party.n_features
            for party in partition.parties
        ),
        "task": partition.task,
        "classes": classes,
        "parties": [
            {
                "name": party.name,
                "n_features": party.n_features,
                "kind": party.kind,
                "dtype": str(party.dtype),
                "nnz": party.nnz,
            }
            for party in partition.parties
        ],
    }


def _show(summary: dict[str, Any]) -> None:
    # Plain text: a name in brackets must not be taken for markup.
    lines = [
        f"{summary['partition']}: {summary['n_samples']} rows, {summary['n_features']} features, "
        f"{summary['task']}"
    ]
    for party in summary["parties"]:
        stored = f"csr, {party['nnz']} non-zeros" if party["kind"] == "csr" else "dense"
        lines.append(f"  {party['name']}: {party['n_features']} features, {stored}, {party['dtype']}")
    if summary["classes"] is not None:
        named = (f"{name} -> {c} ({n} rows)" for c, (name, n) in enumerate(summary["classes"].items()))
        lines.append(f"  labels: {', '.join(named)}")
    typer.echo("\n".join(lines))

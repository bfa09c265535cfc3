"""``fastadmm align``: which rows of the parties' tables are the same samples."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fastadmm.cli.app import app
from fastadmm.cli.convert import Duplicates
from fastadmm.cli.terminal import say

if TYPE_CHECKING:
    from fastadmm.data_tools.alignment import Alignment, TableIds

group = typer.Typer(
    help="Find the rows that all tables have, by id: on one machine, or privately by exchanging files.",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(group, name="align")

_Table = Annotated[Path, typer.Argument(metavar="TABLE", readable=False, help="CSV or Parquet table.")]
_Id = Annotated[str, typer.Option("--id", metavar="NAME", help="Id column.")]
_Repeated = Annotated[
    Duplicates,
    typer.Option(help="Repeated ids in a table: refuse, keep the first or last row, or drop all."),
]
_Pattern = Annotated[
    list[str] | None,
    typer.Option(
        "--id-pattern",
        metavar="REGEX",
        help="What of ids is compared, as 'C-0*([0-9]+)'; TABLE:REGEX for one.",
    ),
]
_Separator = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CHAR", help="Separator between CSV cells (default: recognised); TABLE:CHAR for one."
    ),
]
_Encoding = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Encoding of CSV text (default: recognised); TABLE:NAME for one."),
]
_NoHeader = Annotated[
    bool, typer.Option("--no-header", help="The first line is data: columns are called c1, c2, ...")
]
_Force = Annotated[bool, typer.Option("--force", help="Replace existing files.")]
_Out = Annotated[Path, typer.Option("-o", "--out", metavar="FILE", readable=False, help="File to write.")]


@group.callback()
def align(
    context: typer.Context,
    guest: Annotated[
        Path | None, typer.Option(metavar="FILE", readable=False, help="Table of the label holder.")
    ] = None,
    host: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", readable=False, help="Table of another party; may be repeated."),
    ] = None,
    id: Annotated[
        list[str] | None, typer.Option("--id", metavar="NAME", help="Id column; TABLE:NAME for one table.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", metavar="FILE", readable=False, help="Alignment to write, for 'convert --align'."
        ),
    ] = None,
    pattern: _Pattern = None,
    duplicates: _Repeated = Duplicates.refuse,
    separator: _Separator = None,
    encoding: _Encoding = None,
    no_header: _NoHeader = False,
    force: _Force = False,
) -> None:
    """Find the rows that all tables have, by id, in one order that all later steps check."""
    from fastadmm.errors import ConfigError

    if context.invoked_subcommand is not None:
        if guest or host or id or out:
            raise ConfigError(f"options of 'align' itself do not go with {context.invoked_subcommand}")
        return
    if guest is None or not host:
        raise ConfigError("--guest and --host: give the tables of all parties")
    if not id:
        raise ConfigError("--id: which column holds the ids, in every table?")
    from fastadmm.data_tools.alignment import align as run

    tables = _ids([guest, *host], id, pattern, duplicates, separator, encoding, no_header)
    alignment, report = run(tables)
    _finish(alignment, report, out, force)


@group.command("psi-request")
def request(
    table: _Table,
    id: _Id,
    out: _Out,
    secret: Annotated[Path, typer.Option(metavar="FILE", readable=False, help="Key file to write; keep it.")],
    pattern: _Pattern = None,
    duplicates: _Repeated = Duplicates.refuse,
    separator: _Separator = None,
    encoding: _Encoding = None,
    no_header: _NoHeader = False,
    force: _Force = False,
) -> None:
    """Guest, first step: blind the ids. Send the request to every host."""
    from fastadmm.data_tools.psi import psi_request

    (ids,) = _ids([table], id, pattern, duplicates, separator, encoding, no_header)
    count = psi_request(ids, out, secret, force=force)
    say(f"{out}: {count} blinded ids, to be sent to the hosts; {secret} stays here")


@group.command("psi-respond")
def respond(
    table: _Table,
    id: _Id,
    out: _Out,
    request: Annotated[Path, typer.Option(metavar="FILE", readable=False, help="The guest's request.")],
    pattern: _Pattern = None,
    duplicates: _Repeated = Duplicates.refuse,
    separator: _Separator = None,
    encoding: _Encoding = None,
    no_header: _NoHeader = False,
    force: _Force = False,
) -> None:
    """Host: answer the guest's request. Send the response back."""
    from fastadmm.data_tools.psi import psi_respond

    (ids,) = _ids([table], id, pattern, duplicates, separator, encoding, no_header)
    count = psi_respond(ids, request, out, force=force)
    say(f"{out}: {len(ids)} blinded ids, and {count} of the guest's, to be sent to the guest")


@group.command("psi-finish")
def finish(
    table: _Table,
    id: _Id,
    out: _Out,
    secret: Annotated[
        Path, typer.Option(metavar="FILE", readable=False, help="Key file that psi-request wrote.")
    ],
    response: Annotated[
        list[Path], typer.Option(metavar="FILE", readable=False, help="A host's response; may be repeated.")
    ],
    pattern: _Pattern = None,
    duplicates: _Repeated = Duplicates.refuse,
    separator: _Separator = None,
    encoding: _Encoding = None,
    no_header: _NoHeader = False,
    force: _Force = False,
) -> None:
    """Guest, last step: find the common ids. Send the alignment to every host."""
    from fastadmm.data_tools.psi import psi_finish

    (ids,) = _ids([table], id, pattern, duplicates, separator, encoding, no_header)
    alignment, report = psi_finish(ids, secret, response)
    _finish(alignment, report, out, force)


@group.command("merge")
def merge(
    sources: Annotated[
        list[Path],
        typer.Argument(metavar="PARTITION...", readable=False, help="Partitions of the same rows."),
    ],
    out: _Out,
    force: _Force = False,
) -> None:
    """Merge partitions that parties made from their own tables, with one alignment."""
    from fastadmm.store import merge_partitions

    partition = merge_partitions(sources, out, force=force)
    parties = ", ".join(party.name for party in partition.parties)
    say(f"{out}: {partition.n_samples} rows, parties {parties}, {partition.row_digest}")


def _ids(
    paths: list[Path],
    id: str | list[str],
    pattern: list[str] | None,
    duplicates: Duplicates,
    separator: list[str] | None,
    encoding: list[str] | None,
    no_header: bool,
) -> list[TableIds]:
    from fastadmm.data_tools.alignment import table_ids
    from fastadmm.data_tools.per_table import layouts, per_table, table_names
    from fastadmm.data_tools.tables import read_ids
    from fastadmm.errors import ConfigError

    hosts = ["host"] if len(paths) == 2 else [f"host-{k}" for k in range(1, len(paths))]
    names = table_names(paths, ["guest", *hosts])
    found = []
    own = (per_table(option, given, names) for option, given in (("--id", id), ("--id-pattern", pattern)))
    for path, layout, name, part in zip(paths, layouts(separator, encoding, not no_header, names), *own):
        if name is None:
            raise ConfigError(f"--id: which column of {path} holds the ids?")
        found.append(table_ids(read_ids(path, name, layout), name, duplicates.value, part))
    return found


def _finish(alignment: Alignment, report: list[str], out: Path | None, force: bool) -> None:
    from fastadmm.data_tools.alignment import write_alignment

    if out is not None:
        write_alignment(out, alignment, force=force)
    say("\n".join(report))
    written = f"{out}: " if out is not None else ""
    say(f"{written}{len(alignment.ids)} rows, {alignment.digest}")

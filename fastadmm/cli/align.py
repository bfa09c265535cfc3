"""``fastadmm align``: which rows of the parties' tables are the same samples."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fastadmm.cli import options as opt
from fastadmm.cli.app import new_group
from fastadmm.cli.terminal import say
from fastadmm.errors import ConfigError
from fastadmm.settings.setting import declare

if TYPE_CHECKING:
    from fastadmm.data_tools.alignment import Alignment, TableIds

group = new_group(
    {"invoke_without_command": True, "no_args_is_help": False},
    align="Find the rows that all tables have, by id: on one machine, or privately by exchanging files.",
)

_TABLE = opt.argument("CSV or Parquet table.", metavar="TABLE")
_ID: Any = opt.option(opt.ID.help, "--id", default=..., metavar="NAME")
_OUT: Any = opt.written(default=...)
_SECRET: Any = opt.option("Key file, which psi-request writes; keep it.", default=..., metavar="FILE")


@dataclass(frozen=True)
class _Reading(opt.CsvLayout):
    """How tables and their ids are read."""

    encoding: list[str] | None = declare("data", "of CSV text, where it is not recognised")

    def ids(self, paths: list[Path], id: str | list[str]) -> list[TableIds]:
        """Ids of tables, the label holder's first."""
        from fastadmm.data_tools.alignment import file_ids
        from fastadmm.data_tools.per_table import TableRows, id_columns, table_names

        hosts = ["host"] if len(paths) == 2 else [f"host-{k}" for k in range(1, len(paths))]
        how: Any = {"separator": self.separator, "encoding": self.encoding, "header": not self.no_header}
        rows = TableRows(id=id, id_pattern=self.id_pattern, duplicates=self.duplicates, **how)
        found = []
        for path, name in zip(paths, id_columns(id, table_names(paths, ["guest", *hosts]))):
            if name is None:
                raise ConfigError(f"--id: which column of {path} holds the ids?")
            found.append(file_ids(path, name, rows.layout, rows.duplicates, rows.id_pattern))
        return found


@opt.with_options(group.callback())
def align(
    context: typer.Context,
    guest: Path | None = opt.option("Table of the label holder.", metavar="FILE"),
    host: list[Path] | None = opt.option("Table of another party; may be repeated.", metavar="FILE"),
    id: list[str] | None = opt.ID,
    out: Path | None = opt.written(),
    *,
    reading: _Reading,
    force: bool = opt.FORCE,
) -> None:
    """Find the rows that all tables have, by id, in one order; -o writes it, for 'convert --align'."""
    if context.invoked_subcommand is not None:
        if guest or host or id or out:
            raise ConfigError(f"options of 'align' itself do not go with {context.invoked_subcommand}")
        return
    if guest is None or not host:
        raise ConfigError("--guest and --host: give the tables of all parties")
    if not id:
        raise ConfigError("--id: which column holds the ids, in every table?")
    from fastadmm.data_tools.alignment import align as run

    alignment, report = run(reading.ids([guest, *host], id))
    _finish(alignment, report, out, force)


@opt.with_options(group.command("psi-request"))
def request(
    table: Path = _TABLE,
    id: str = _ID,
    out: Path = _OUT,
    secret: Path = _SECRET,
    *,
    reading: _Reading,
) -> None:
    """Guest, first step: blind the ids. Send the request to every host."""
    from fastadmm.data_tools.alignment import psi_request

    (ids,) = reading.ids([table], id)
    count = psi_request(ids, out, secret)
    say(f"{out}: {count} blinded ids, to be sent to the hosts; {secret} stays here")


@opt.with_options(group.command("psi-respond"))
def respond(
    table: Path = _TABLE,
    id: str = _ID,
    out: Path = _OUT,
    request: Path = opt.option("The guest's request.", default=..., metavar="FILE"),
    *,
    reading: _Reading,
    force: bool = opt.FORCE,
) -> None:
    """Host: answer the guest's request. Send the response back."""
    from fastadmm.data_tools.alignment import psi_respond

    (ids,) = reading.ids([table], id)
    count = psi_respond(ids, request, out, force=force)
    say(f"{out}: {len(ids)} blinded ids, and {count} of the guest's, to be sent to the guest")


@opt.with_options(group.command("psi-finish"))
def finish(
    table: Path = _TABLE,
    id: str = _ID,
    out: Path = _OUT,
    secret: Path = _SECRET,
    response: list[Path] = opt.option("A host's response; may be repeated.", default=..., metavar="FILE"),
    *,
    reading: _Reading,
    force: bool = opt.FORCE,
) -> None:
    """Guest, last step: find the common ids. Send the alignment to every host."""
    from fastadmm.data_tools.alignment import psi_finish

    (ids,) = reading.ids([table], id)
    alignment, report = psi_finish(ids, secret, response)
    _finish(alignment, report, out, force)


@group.command("merge")
def merge(
    sources: list[Path] = opt.argument("Partitions of the same rows.", metavar="PARTITION..."),
    out: Path = _OUT,
) -> None:
    """Merge partitions that parties made from their own tables, with one alignment."""
    from fastadmm.store.partition import merge_partitions

    partition = merge_partitions(sources, out)
    parties = ", ".join(party.name for party in partition.parties)
    say(f"{out}: {partition.n_samples} rows, parties {parties}, {partition.row_digest}")


def _finish(alignment: Alignment, report: list[str], out: Path | None, force: bool) -> None:
    from fastadmm.data_tools.alignment import write_alignment

    if out is not None:
        write_alignment(out, alignment, force=force)
    say("\n".join(report))
    written = f"{out}: " if out is not None else ""
    say(f"{written}{len(alignment.ids)} rows, {alignment.digest}")

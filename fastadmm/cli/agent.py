"""``fastadmm agent``: a party's own process, which answers what its owner has approved."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fastadmm.cli.app import app
from fastadmm.cli.convert import Duplicates
from fastadmm.cli.options import IdPattern
from fastadmm.cli.party_options import Ledger, Test, Threads, Validation
from fastadmm.cli.terminal import say

group = typer.Typer(
    help="A party's own process: answers what its owner has approved.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(group, name="agent")

_Data = Annotated[
    Path | None,
    typer.Option(metavar="PARTY.h5", readable=False, help="The party's features; they stay here."),
]
_State = Annotated[
    Path,
    typer.Option(metavar="DIR", readable=False, help="The agent's directory: approvals, state, audit log."),
]


@group.callback()
def agent() -> None:
    """A party's own process (docs/federation.md)."""


@group.command()
def run(
    state: _State,
    socket: Annotated[Path, typer.Option(metavar="PATH", readable=False, help="Unix socket to listen on.")],
    data: _Data = None,
    party: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Name of the party, in place of --data while there are no features yet."
        ),
    ] = None,
    ledger: Ledger = None,
    test: Test = None,
    validation: Validation = None,
    streamed: Annotated[
        bool, typer.Option("--streamed", help="Leave features on disk, for files larger than memory.")
    ] = False,
    threads: Threads = None,
) -> None:
    """Answer requests until Ctrl-C."""
    from contextlib import closing

    from fastadmm.between.agent import Agent
    from fastadmm.between.socket import serve
    from fastadmm.errors import ConfigError

    if (data is None) == (party is None):
        raise ConfigError("--data: give the party's features; --party NAME as long as there are none")

    def tell(line: str) -> None:
        say(line.rstrip(), error=True)

    agent = Agent(
        data,
        state,
        name=party or "",
        ledger=ledger,
        threads=threads,
        test=test,
        validation=validation,
        streamed=streamed,
        say=tell,
    )
    with closing(agent):
        server = serve(socket, agent.handle, agent.known)
        say(f"{agent.name} listens on {socket}; Ctrl-C ends it")
        try:
            server.wait()
        finally:
            server.stop()


@group.command()
def approve(
    what: Annotated[
        str,
        typer.Argument(
            metavar="RUN.json|ID",
            help="The coordinator's file about a run, or the identifier of a request from 'agent status'.",
        ),
    ],
    state: _State,
    data: _Data = None,
    rows: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            readable=False,
            help="Alignment: your table. Predictions: features of the rows, or your table of them.",
        ),
    ] = None,
    id: Annotated[str | None, typer.Option("--id", metavar="NAME", help="Id column of the table.")] = None,
    id_pattern: IdPattern = None,
    duplicates: Annotated[
        Duplicates,
        typer.Option(help="Repeated ids in the table: refuse, keep the first or last row, or drop all."),
    ] = Duplicates.refuse,
    separator: Annotated[
        str | None, typer.Option(metavar="CHAR", help="Separator between CSV cells (default: recognised).")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace an earlier approval of the same request.")
    ] = False,
    confirm: Annotated[
        str | None,
        typer.Option(metavar="DIGEST", help="Approve what was shown with this digest, and nothing else."),
    ] = None,
    fingerprint: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT", help="For sums only: another party's key, as its owner says it; may be repeated."
        ),
    ] = None,
) -> None:
    """Show on one screen what is asked for; --confirm DIGEST approves exactly that, within limits."""
    from fastadmm.between.approve import agent_approve, approve_fingerprints
    from fastadmm.between.approve_task import approve_task, is_task
    from fastadmm.between.consent import asked_file
    from fastadmm.errors import ConfigError
    from fastadmm.files.atomic import shown

    if fingerprint:
        say(f"{approve_fingerprints(what, fingerprint, state)}: names {len(fingerprint)} key(s)")
        return
    file = asked_file(what, state)
    table = {"id": id, "duplicates": duplicates.value, "separator": separator, "id_pattern": id_pattern}

    def settle(digest: str | None) -> tuple[list[str], Path]:
        if is_task(file):
            return approve_task(file, state, rows, data=data, force=force, confirm=digest, **table)  # type: ignore[arg-type]
        if data is None:
            raise ConfigError("--data: name the features that the run is to be trained on")
        return agent_approve(file, data, state, force, digest)

    lines, path = settle(confirm)
    if confirm is None:
        for line in lines:
            say(shown(line))
        return
    say(f"approved in {path}; edit the limits there, or delete it to answer nothing")


@group.command()
def status(
    state: Annotated[Path, typer.Argument(metavar="DIR", readable=False, help="The agent's directory.")],
) -> None:
    """Show each run: what was answered, refused and spent."""
    from fastadmm.between.status import agent_status

    for line in agent_status(state):
        say(line)

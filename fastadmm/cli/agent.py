"""``fastadmm agent``: a party's own process, which answers what its owner has approved."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fastadmm.cli.app import app
from fastadmm.cli.party_options import Data, Ledger, Test, Threads, Validation

group = typer.Typer(
    help="A party's own process: answers what its owner has approved.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(group, name="agent")

_State = Annotated[
    Path,
    typer.Option(metavar="DIR", readable=False, help="The agent's directory: approvals, state, audit log."),
]


@group.callback()
def agent() -> None:
    """A party's own process (docs/federation.md)."""


@group.command()
def run(
    data: Data,
    state: _State,
    socket: Annotated[Path, typer.Option(metavar="PATH", readable=False, help="Unix socket to listen on.")],
    ledger: Ledger = None,
    test: Test = None,
    validation: Validation = None,
    streamed: Annotated[
        bool, typer.Option("--streamed", help="Leave features on disk, for files larger than memory.")
    ] = False,
    threads: Threads = None,
) -> None:
    """Answer requests until Ctrl-C."""
    import sys
    from contextlib import closing

    from fastadmm.federation.agent import Agent
    from fastadmm.federation.socket import serve

    def say(line: str) -> None:
        print(line.rstrip(), file=sys.stderr, flush=True)

    agent = Agent(
        data,
        state,
        ledger=ledger,
        threads=threads,
        test=test,
        validation=validation,
        streamed=streamed,
        say=say,
    )
    with closing(agent):
        server = serve(socket, agent.handle)
        print(f"{agent.data.name} listens on {socket}; Ctrl-C ends it", flush=True)
        try:
            server.wait()
        finally:
            server.stop()


@group.command()
def approve(
    run: Annotated[
        Path, typer.Argument(metavar="RUN.json", readable=False, help="The coordinator's file about the run.")
    ],
    data: Data,
    state: _State,
    force: Annotated[bool, typer.Option("--force", help="Replace an approval of this run.")] = False,
) -> None:
    """Explain what a run asks for, and approve it within limits."""
    from fastadmm.federation.approve import agent_approve

    lines, path = agent_approve(run, data, state, force)
    for line in lines:
        print(line)
    print(f"approved in {path}; edit the limits there, or delete it to answer nothing")


@group.command()
def status(
    state: Annotated[Path, typer.Argument(metavar="DIR", readable=False, help="The agent's directory.")],
) -> None:
    """Show each run: what was answered, refused and spent."""
    from fastadmm.federation.status import agent_status

    for line in agent_status(state):
        print(line)

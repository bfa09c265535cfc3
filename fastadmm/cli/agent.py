"""``fastadmm agent``: a party's own process, which answers what its owner has approved."""

from __future__ import annotations

from pathlib import Path

from fastadmm.cli.app import app, new_group, share
from fastadmm.cli.coordinator import party_group
from fastadmm.cli.options import (
    LEDGER,
    TEST,
    THREADS,
    VALIDATION,
    Ids,
    argument,
    flag,
    option,
    plain_values,
    with_options,
)
from fastadmm.cli.terminal import say
from fastadmm.errors import ConfigError

group = new_group("agent", "A party's own process: answers what its owner has approved.")

_DATA = option("The party's features; they stay here.", metavar="PARTY.h5")
_ID = option("Id column of the table.", "--id", metavar="NAME")
_STATE = option("The agent's directory: approvals, state, audit log.", default=..., metavar="DIR")


@group.callback()
def agent() -> None:
    """A party's own process (docs/between.md)."""


@group.command()
def run(
    state: Path = _STATE,
    socket: Path = option(
        "Unix socket to listen on, or the directory of a coordinator's address files:DIR.",
        default=...,
        metavar="PATH",
    ),
    data: Path | None = _DATA,
    party: str | None = option(
        "Name of the party, in place of --data while there are no features yet.", metavar="NAME"
    ),
    ledger: Path | None = LEDGER,
    test: Path | None = TEST,
    validation: Path | None = VALIDATION,
    streamed: bool = flag("Leave features on disk, for files larger than memory.", "--streamed"),
    threads: int | None = THREADS,
) -> None:
    """Answer requests until Ctrl-C."""
    from contextlib import closing

    from fastadmm.between.agent import Agent
    from fastadmm.between.letters import Folder
    from fastadmm.between.socket import serve
    from fastadmm.engine.free_cores import sleep_between_jobs

    sleep_between_jobs()
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
        if socket.is_dir():
            say(f"{agent.name} answers requests in {socket}; Ctrl-C ends it")
            Folder(socket, agent.name, agent.handle, state).wait(tell)
            return
        server = serve(socket, agent.handle, agent.known)
        say(f"{agent.name} listens on {socket}; Ctrl-C ends it")
        try:
            server.wait()
        finally:
            server.stop()


@group.command()
@with_options()
def approve(
    what: str = argument(
        "The coordinator's file about a run, the identifier of a request from 'agent status', or by hand "
        "the first request of a run.",
        metavar="RUN.json|ID|REQUEST.msg",
    ),
    state: Path | None = option("The agent's directory.", metavar="DIR"),
    data: Path | None = _DATA,
    rows: Path | None = option(
        "Alignment: your table. Predictions: features of the rows, or your table of them.", metavar="FILE"
    ),
    id: str | None = _ID,
    *,
    ids: Ids,
    force: bool = flag("Replace an earlier approval of the same request.", "--force"),
    confirm: str | None = option(
        "Approve what was shown with this digest, and nothing else.", metavar="DIGEST"
    ),
    fingerprint: list[str] | None = option(
        "For sums only: another party's key, as its owner says it; may be repeated.", metavar="TEXT"
    ),
    out: Path | None = option(
        "By hand: the file of limits to write, for 'party step'.", "--out", "-o", metavar="APPROVAL.toml"
    ),
    ledger: Path | None = LEDGER,
) -> None:
    """Show on one screen what is asked for; --confirm DIGEST approves exactly that, within limits."""
    from fastadmm.between.agent import party_approve
    from fastadmm.between.consent import agent_approve, approve_fingerprints, asked_file, remembered
    from fastadmm.files.atomic import shown

    if out is not None and data is not None:
        for line in party_approve(Path(what), data, out, force, ledger):
            say(line)
        say(f"edit the limits in {out}, then: fastadmm party step --approval {out} ...")
        return
    if state is None:
        raise ConfigError("--state: name the agent's directory; by hand, give --data and --out")
    if fingerprint:
        say(f"{approve_fingerprints(what, fingerprint, state)}: names {len(fingerprint)} key(s)")
        return
    file = asked_file(what, state)
    data = data or remembered(state, "data")
    lines, path = agent_approve(file, data, state, force, confirm, rows=rows, id=id, **plain_values(ids))
    if confirm is None:
        for line in lines:
            say(shown(line))
        return
    say(f"approved in {path}; edit the limits there, or delete it to answer nothing")


@group.command()
@app.command()
def status(
    directory: Path = argument("An agent's directory or a run's.", metavar="DIR"),
) -> None:
    """Show where things stand: what was answered, refused and spent, and who is waited for."""
    from fastadmm.between.agent import agent_status
    from fastadmm.between.train import run_status
    from fastadmm.files.atomic import storage_errors

    with storage_errors(directory, "read"):
        show = run_status if (directory / "run.toml").exists() else agent_status
    for line in show(directory):
        say(line)


share(group, party_group)

"""``fastadmm agent`` and ``party``: a party's side, as a process of its own or over exchanged files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fastadmm.cli import options as opt
from fastadmm.cli.app import app, new_group
from fastadmm.cli.terminal import say, say_all
from fastadmm.errors import ConfigError

group = new_group(
    agent="A party's own process: answers what its owner has approved.",
    party="A party's side of training, over exchanged files or as 'agent'.",
)

_DATA = opt.option("The party's features; they stay here.", metavar="PARTY.h5")
_STATE = opt.option(opt.STATE.help, "--state", metavar="DIR")
_ROWS = opt.option("Your table, of which an alignment chooses rows.", metavar="TABLE")


@dataclass(frozen=True)
class _Own:
    """What a party answers from, beside its features."""

    ledger: Path | None = opt.LEDGER
    test: Path | None = opt.TEST
    validation: Path | None = opt.VALIDATION
    threads: int | None = opt.THREADS


@opt.with_options(group.command())
def run(
    state: Path = opt.STATE,
    socket: Path = opt.option(
        "Unix socket of the agent, or a directory for files.", default=..., metavar="PATH"
    ),
    data: Path | None = _DATA,
    party: str | None = opt.PARTY,
    streamed: bool = opt.flag("Leave features on disk, for files larger than memory.", "--streamed"),
    *,
    own: _Own,
) -> None:
    """Answer requests until Ctrl-C."""
    from contextlib import closing

    from fastadmm.between.agent import Agent
    from fastadmm.between.hub import Folder
    from fastadmm.between.socket import serve
    from fastadmm.engine.free_cores import sleep_between_jobs

    sleep_between_jobs()
    if (data is None) == (party is None):
        raise ConfigError("--data: give the party's features; --party NAME as long as there are none")

    def tell(line: str) -> None:
        say(line.rstrip(), error=True)

    agent = Agent(data, state, name=party or "", streamed=streamed, say=tell, **vars(own))
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


@opt.with_options(group.command())
def approve(
    what: str = opt.argument(
        "The coordinator's file about a run, the identifier of a request from 'agent status', or by hand "
        "the first request of a run.",
        metavar="RUN.json|ID|REQUEST.msg",
    ),
    state: Path | None = _STATE,
    data: Path | None = _DATA,
    rows: Path | None = _ROWS,
    id: str | None = opt.ID,
    *,
    ids: opt.OneTable,
    force: bool = opt.FORCE,
    confirm: str | None = opt.option(
        "Approve what was shown with this digest, and nothing else.", metavar="DIGEST"
    ),
    fingerprint: list[str] | None = opt.option(
        "For sums only: another party's key, as its owner says it; may be repeated.", metavar="TEXT"
    ),
    out: Path | None = opt.written("APPROVAL.toml"),
    ledger: Path | None = opt.LEDGER,
) -> None:
    """Show on one screen what is asked for; --confirm DIGEST approves exactly that, within limits."""
    from fastadmm.between.agent import party_approve
    from fastadmm.between.consent import agent_approve, approve_fingerprints, asked_file, remembered
    from fastadmm.files.atomic import shown

    if out is not None and data is not None:
        say_all(party_approve(Path(what), data, out, force, ledger))
        say(f"edit the limits in {out}, then: fastadmm party step --approval {out} ...")
        return
    if state is None:
        raise ConfigError("--state: name the agent's directory; by hand, give --data and --out")
    if fingerprint:
        say(f"{approve_fingerprints(what, fingerprint, state)}: names {len(fingerprint)} key(s)")
        return
    file = asked_file(what, state)
    data = data or remembered(state, "data")
    lines, path = agent_approve(file, data, state, force, confirm, rows=rows, id=id, **opt.plain_values(ids))
    if confirm is None:
        say_all(map(shown, lines))
        return
    say(f"approved in {path}; edit the limits there, or delete it to answer nothing")


@group.command()
@app.command()
def status(
    directory: Path = opt.argument("An agent's directory or a run's.", metavar="DIR"),
) -> None:
    """Show where things stand: what was answered, refused and spent, and who is waited for."""
    from fastadmm.between.agent import agent_status
    from fastadmm.between.train import run_status
    from fastadmm.files.atomic import storage_errors

    with storage_errors(directory, "read"):
        show = run_status if (directory / "run.toml").exists() else agent_status
    say_all(show(directory))


@opt.with_options(group.command("step"))
def party_step(
    request: Path = opt.option("The coordinator's request.", "--in", default=..., metavar="REQUEST.msg"),
    out: Path = opt.written("MESSAGE.msg", ...),
    data: Path = opt.DATA,
    state: Path = opt.STATE,
    approval: Path | None = opt.option(
        "Limits from 'party approve'; remembered in --state.", metavar="APPROVAL.toml"
    ),
    *,
    own: _Own,
    force: bool = opt.FORCE,
) -> None:
    """Answer one request. The same request always gives the same answer."""
    from fastadmm.between.agent import party_step as answer

    say_all(answer(data, state, request, out, approval=approval, force=force, **vars(own)))

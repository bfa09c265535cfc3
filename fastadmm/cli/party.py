"""``fastadmm party``: a party's side of a training run over exchanged files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fastadmm.cli.app import app
from fastadmm.cli.party_options import Data, Ledger, Test, Threads, Validation
from fastadmm.cli.terminal import say

group = typer.Typer(
    help="A party's side of training over exchanged files.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(group, name="party")


@group.callback()
def party() -> None:
    """A party's side of training over exchanged files (docs/rounds-by-files.md)."""


@group.command()
def approve(
    request: Annotated[
        Path, typer.Argument(metavar="REQUEST.msg", readable=False, help="The first request of a run.")
    ],
    data: Data,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="APPROVAL.toml", readable=False, help="File of limits to write."),
    ],
    ledger: Ledger = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Explain what a run asks for, and write a file of limits to edit."""
    from fastadmm.between.party_step import party_approve

    for line in party_approve(request, data, out, force, ledger):
        say(line)
    say(f"edit the limits in {out}, then: fastadmm party step --approval {out} ...")


@group.command()
def step(
    request: Annotated[
        Path,
        typer.Option("--in", metavar="REQUEST.msg", readable=False, help="The coordinator's request."),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="MESSAGE.msg", readable=False, help="Answer to write.")
    ],
    data: Data,
    state: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            readable=False,
            help="Directory for the party's state in this run; the first step creates it.",
        ),
    ],
    approval: Annotated[
        Path | None,
        typer.Option(
            metavar="APPROVAL.toml",
            readable=False,
            help="Limits from 'party approve'; remembered in --state.",
        ),
    ] = None,
    ledger: Ledger = None,
    test: Test = None,
    validation: Validation = None,
    threads: Threads = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a different existing file.")] = False,
) -> None:
    """Answer one request. The same request always gives the same answer."""
    from fastadmm.between.party_step import party_step

    done = party_step(
        data,
        state,
        request,
        out,
        approval=approval,
        ledger=ledger,
        force=force,
        threads=threads,
        test=test,
        validation=validation,
    )
    say(f"request {done.number} answered{' before: the same message' if done.repeated else ''} in {out}")
    if done.agreed:
        say("without --approval this is what was agreed to; edit approval.toml in the state to narrow it:")
        for line in done.agreed:
            say(line)
    if done.statement:
        say(done.statement)
    if done.keys:
        say("the coordinator sees only sums if these are the parties' keys: compare them by telephone")
        for line in done.keys:
            say(line)
    if done.model is not None:
        say(f"the run is over; own part of the model in {done.model}")


@group.command()
def infer(
    request: Annotated[
        Path,
        typer.Argument(
            metavar="REQUEST.msg", readable=False, help="Request of 'fastadmm coordinator infer'."
        ),
    ],
    data: Data,
    state: Annotated[
        Path, typer.Option(metavar="DIR", readable=False, help="The party's --state of the run.")
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="ANSWER.msg", readable=False, help="Answer to write."),
    ] = None,
    approve: Annotated[
        bool, typer.Option("--approve", help="Explain what leaves, and approve it, instead of answering.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Answer a request of 'coordinator infer'; the last one brings your own standard errors."""
    from fastadmm.between.party_step import party_infer

    for line in party_infer(request, data, state, out, approve=approve, force=force):
        say(line)

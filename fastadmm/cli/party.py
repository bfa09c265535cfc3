"""``fastadmm party``: a party's side of a training run over exchanged files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastadmm.cli.app import new_group
from fastadmm.cli.options import DATA, FORCE, LEDGER, TEST, THREADS, VALIDATION, argument, flag, option
from fastadmm.cli.terminal import say

group = new_group("party", "A party's side of training over exchanged files.")


@group.callback()
def party() -> None:
    """A party's side of training over exchanged files (docs/between.md#files-by-hand)."""


@group.command()
def approve(
    request: Path = argument("The first request of a run.", metavar="REQUEST.msg"),
    data: Path = DATA,
    out: Path = option("File of limits to write.", "--out", "-o", default=..., metavar="APPROVAL.toml"),
    ledger: Path | None = LEDGER,
    force: bool = FORCE,
) -> None:
    """Explain what a run asks for, and write a file of limits to edit."""
    from fastadmm.between.agent import party_approve

    for line in party_approve(request, data, out, force, ledger):
        say(line)
    say(f"edit the limits in {out}, then: fastadmm party step --approval {out} ...")


@group.command()
def step(
    request: Path = option("The coordinator's request.", "--in", default=..., metavar="REQUEST.msg"),
    out: Path = option("Answer to write.", "--out", "-o", default=..., metavar="MESSAGE.msg"),
    data: Path = DATA,
    state: Path = option(
        "Directory for the party's state in this run; the first step creates it.", default=..., metavar="DIR"
    ),
    approval: Path | None = option(
        "Limits from 'party approve'; remembered in --state.", metavar="APPROVAL.toml"
    ),
    ledger: Path | None = LEDGER,
    test: Path | None = TEST,
    validation: Path | None = VALIDATION,
    threads: int | None = THREADS,
    force: bool = flag("Replace a different existing file.", "--force"),
) -> None:
    """Answer one request. The same request always gives the same answer."""
    from fastadmm.between.agent import party_step

    more: dict[str, Any] = {
        "ledger": ledger,
        "force": force,
        "threads": threads,
        "test": test,
        "validation": validation,
    }
    for line in party_step(data, state, request, out, approval=approval, **more):
        say(line)


@group.command()
def infer(
    request: Path = argument("Request of 'fastadmm coordinator infer'.", metavar="REQUEST.msg"),
    data: Path = DATA,
    state: Path = option("The party's --state of the run.", default=..., metavar="DIR"),
    out: Path | None = option("Answer to write.", "--out", "-o", metavar="ANSWER.msg"),
    approve: bool = flag("Explain what leaves, and approve it, instead of answering.", "--approve"),
    force: bool = FORCE,
) -> None:
    """Answer a request of 'coordinator infer'; the last one brings your own standard errors."""
    from fastadmm.between.agent import party_infer

    for line in party_infer(request, data, state, out, approve=approve, force=force):
        say(line)

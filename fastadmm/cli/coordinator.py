"""``fastadmm coordinator`` and ``party``: both sides of a training run over exchanged files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastadmm.cli import options as opt
from fastadmm.cli.app import new_group
from fastadmm.cli.terminal import say

if TYPE_CHECKING:
    from fastadmm.between.train import StepResult

group = new_group("coordinator", "The coordinator's side of training, over exchanged files or as 'federate'.")
party_group = new_group("party", "A party's side of training, over exchanged files or as 'agent'.")


def _settings() -> Any:
    from fastadmm.settings.keys import PRIVACY, SETTINGS

    own = [s for s in SETTINGS.values() if s.role != "data" and "exchange" not in s.refused]
    return opt.common(own), PRIVACY.values()


@group.command()
@opt.with_options(_settings)
def start(
    labels: Path = opt.argument("Label file (labels.h5 of a partition)."),
    party: list[str] = opt.option(opt.PARTY.help, default=..., metavar="NAME"),
    out: Path = opt.written("DIR", ...),
    *,
    options: dict[str, Any],
    config: Path | None = opt.CONFIG,
    own: Path | None = opt.OWN,
) -> None:
    """Start a run: write the first request for each --party, given in the model's order."""
    from fastadmm.between.train import coordinator_start
    from fastadmm.cli.options import settings_of
    from fastadmm.files.atomic import shown
    from fastadmm.runs.config import read_config

    base = read_config(config) if config is not None else {}
    base.pop("provenance", None)
    place = shown(config) if config is not None else "command line"
    with settings_of(config):
        _say(coordinator_start(labels, party, out, base, place, options=options, own=own))


@group.command()
def step(
    run: Path = opt.argument("Directory of 'fastadmm coordinator start'."),
    messages: list[Path] | None = opt.argument(
        "Messages received from parties.", default=None, metavar="[MESSAGE.msg]..."
    ),
    as_json: bool = opt.JSON,
) -> int:
    """Read messages and continue: write new requests or, at the end, the model."""
    from fastadmm.between.train import coordinator_step
    from fastadmm.cli.train import report_result

    result = coordinator_step(run, messages or [])
    if result.document is None:
        _say(result)
        return 0
    return report_result(result.document, run, as_json)


@group.command()
def repair(
    run: Path = opt.argument("Directory of 'fastadmm coordinator start'."),
    again: int | None = opt.option(
        "Ask again for exchange N and all after it, because a message was wrong.", metavar="N"
    ),
) -> None:
    """Discard unusable messages and ask for them again."""
    from fastadmm.between.train import coordinator_repair

    _say(coordinator_repair(run, again))


def _say(result: StepResult) -> None:
    for note in result.notes:
        say(note)
    say(f"rounds done: {result.n_rounds}")


# --- the party's side ------------------------------------------------------------------------------------


@party_group.callback()
def party() -> None:
    """A party's side of training, over exchanged files or as 'agent' (docs/between.md#files-by-hand)."""


@party_group.command("step")
def party_step(
    request: Path = opt.option("The coordinator's request.", "--in", default=..., metavar="REQUEST.msg"),
    out: Path = opt.written("MESSAGE.msg", ...),
    data: Path = opt.DATA,
    state: Path = opt.STATE,
    approval: Path | None = opt.option(
        "Limits from 'party approve'; remembered in --state.", metavar="APPROVAL.toml"
    ),
    ledger: Path | None = opt.LEDGER,
    test: Path | None = opt.TEST,
    validation: Path | None = opt.VALIDATION,
    threads: int | None = opt.THREADS,
    force: bool = opt.FORCE,
) -> None:
    """Answer one request. The same request always gives the same answer."""
    from fastadmm.between.agent import party_step as answer

    more: dict[str, Any] = {"threads": threads, "test": test, "validation": validation}
    for line in answer(data, state, request, out, approval=approval, ledger=ledger, force=force, **more):
        say(line)

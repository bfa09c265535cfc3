"""``fastadmm coordinator`` and ``party``: both sides of a training run over exchanged files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastadmm.cli.app import new_group
from fastadmm.cli.options import (
    DATA,
    LEDGER,
    TEST,
    THREADS,
    VALIDATION,
    argument,
    common,
    flag,
    option,
    with_options,
)
from fastadmm.cli.terminal import say

if TYPE_CHECKING:
    from fastadmm.between.train import StepResult

group = new_group("coordinator", "The coordinator's side of training, over exchanged files or as 'federate'.")
party_group = new_group("party", "A party's side of training, over exchanged files or as 'agent'.")


def _settings() -> Any:
    from fastadmm.settings.keys import PRIVACY, SETTINGS

    own = [s for s in SETTINGS.values() if s.role != "data" and "exchange" not in s.refused]
    return common(own), PRIVACY.values()


@group.command()
@with_options(_settings)
def start(
    labels: Path = argument("Label file (labels.h5 of a partition)."),
    party: list[str] = option(
        "Name of a party; repeat for each, in the model's order.", default=..., metavar="NAME"
    ),
    out: Path = option("Directory to create.", "--out", "-o", default=...),
    *,
    options: dict[str, Any],
    config: Path | None = option("TOML file with settings of 'fastadmm train'; options override it."),
    own: Path | None = option(
        "The label holder's own features, in privacy mode fusion; they stay here.", metavar="PARTY.h5"
    ),
) -> None:
    """Start a run: write the first request for each party."""
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
    run: Path = argument("Directory of 'fastadmm coordinator start'."),
    messages: list[Path] | None = argument(
        "Messages received from parties.", default=None, metavar="[MESSAGE.msg]..."
    ),
    as_json: bool = flag("Print the result, when training ends, as JSON.", "--json"),
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
    run: Path = argument("Directory of 'fastadmm coordinator start'."),
) -> None:
    """Discard all messages and ask for them again; parties repeat their answers."""
    from fastadmm.between.train import coordinator_repair

    _say(coordinator_repair(run))


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
    from fastadmm.between.agent import party_step as answer

    more: dict[str, Any] = {"threads": threads, "test": test, "validation": validation}
    for line in answer(data, state, request, out, approval=approval, ledger=ledger, force=force, **more):
        say(line)

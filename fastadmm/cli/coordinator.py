"""``fastadmm coordinator``: the coordinator's side of a training run over exchanged files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastadmm.cli.app import app
from fastadmm.cli.infer import Covariance, Level
from fastadmm.cli.options import with_options
from fastadmm.cli.terminal import say

if TYPE_CHECKING:
    from fastadmm.between.coordinator_step import StepResult

group = typer.Typer(
    help="The coordinator's side of training over exchanged files.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(group, name="coordinator")


def _settings() -> Any:
    from fastadmm.settings.keys import PRIVACY, SETTINGS

    own = [s for s in SETTINGS.values() if s.role != "data" and "exchange" not in s.refused]
    return own, PRIVACY.values()


@group.command()
@with_options(_settings)
def start(
    labels: Annotated[Path, typer.Argument(readable=False, help="Label file (labels.h5 of a partition).")],
    party: Annotated[
        list[str],
        typer.Option(metavar="NAME", help="Name of a party; repeat for each, in the model's order."),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", readable=False, help="Directory to create.")],
    *,
    options: dict[str, Any],
    config: Annotated[
        Path | None,
        typer.Option(
            readable=False, help="TOML file with settings of 'fastadmm train'; options override it."
        ),
    ] = None,
    own: Annotated[
        Path | None,
        typer.Option(
            metavar="PARTY.h5",
            readable=False,
            help="The label holder's own features, in privacy mode fusion; they stay here.",
        ),
    ] = None,
) -> None:
    """Start a run: write the first request for each party."""
    from fastadmm.between.coordinator_step import coordinator_start
    from fastadmm.cli.place import settings_of
    from fastadmm.files.atomic import shown
    from fastadmm.runs.config import read_config

    base = read_config(config) if config is not None else {}
    base.pop("provenance", None)
    place = shown(config) if config is not None else "command line"
    with settings_of(config):
        _say(coordinator_start(labels, party, out, base, place, options=options, own=own))


@group.command()
def step(
    run: Annotated[Path, typer.Argument(readable=False, help="Directory of 'fastadmm coordinator start'.")],
    messages: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[MESSAGE.msg]...", readable=False, help="Messages received from parties."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result, when training ends, as JSON.")
    ] = False,
) -> int:
    """Read messages and continue: write new requests or, at the end, the model."""
    from fastadmm.between.coordinator_step import coordinator_step
    from fastadmm.cli.train import report_result

    result = coordinator_step(run, messages or [])
    if result.document is None:
        _say(result)
        return 0
    return report_result(result.document, run, as_json)


@group.command()
def infer(
    run: Annotated[Path, typer.Argument(readable=False, help="Finished run of 'fastadmm coordinator'.")],
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", readable=False, help="Directory of requests; an existing one is continued."
        ),
    ],
    messages: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[ANSWER.msg]...", readable=False, help="Answers received from parties."),
    ] = None,
    level: Level = 0.95,
    covariance: Covariance = "model",
    as_json: Annotated[bool, typer.Option("--json", help="Print the result, at the end, as JSON.")] = False,
) -> None:
    """Standard errors by files: write requests for 'party infer', or read the answers."""
    from fastadmm.between.infer import coordinator_infer
    from fastadmm.cli.infer import print_inference

    found = coordinator_infer(run, out, messages or [], covariance=covariance, level=level)
    if isinstance(found, list):
        for path in found:
            say(f"waiting for an answer to {path}")
        return
    print_inference(found, as_json)


@group.command()
def repair(
    run: Annotated[Path, typer.Argument(readable=False, help="Directory of 'fastadmm coordinator start'.")],
    again: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Ask again for exchange N and all after it, because a message was wrong."
        ),
    ] = None,
) -> None:
    """Discard unusable messages and ask for them again."""
    from fastadmm.between.repair import coordinator_repair

    _say(coordinator_repair(run, again))


def _say(result: StepResult) -> None:
    for note in result.notes:
        say(note)
    say(f"rounds done: {result.n_rounds}")

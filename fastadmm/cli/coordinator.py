"""``fastadmm coordinator``: the coordinator's side of a training run over exchanged files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastadmm.cli.app import app

if TYPE_CHECKING:
    from fastadmm.rounds.coordinator_step import StepResult

group = typer.Typer(
    help="The coordinator's side of training over exchanged files.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(group, name="coordinator")


@group.command()
def start(
    labels: Annotated[Path, typer.Argument(readable=False, help="Label file (labels.h5 of a partition).")],
    party: Annotated[list[str], typer.Option(metavar="NAME", help="A party; repeat, in the model's order.")],
    out: Annotated[Path, typer.Option("--out", "-o", readable=False, help="Directory to create.")],
    config: Annotated[
        Path | None,
        typer.Option(readable=False, help="TOML file with keys of 'fastadmm train'; options win."),
    ] = None,
    lambda_: Annotated[float | None, typer.Option("--lambda", help="As of train. [default: 1e-4]")] = None,
    loss: Annotated[str | None, typer.Option(help="As of train.")] = None,
    regularizer: Annotated[str | None, typer.Option(help="As of train; not l2: scheme sharing.")] = None,
    l1_ratio: Annotated[float | None, typer.Option(help="As of train.")] = None,
    constraint: Annotated[str | None, typer.Option(help="As of train.")] = None,
    intercept: Annotated[bool | None, typer.Option("--intercept/--no-intercept", help="As of train.")] = None,
    gap: Annotated[float | None, typer.Option(help="As of train. [default: 1e-6]")] = None,
    rounds: Annotated[int | None, typer.Option(help="As of train.")] = None,
    scheme: Annotated[
        str | None, typer.Option(help="auto, subspace, sharing, jacobi or gauss-seidel.")
    ] = None,
    penalty: Annotated[float | None, typer.Option(help="As of train.")] = None,
    acceleration: Annotated[str | None, typer.Option(help="As of train.")] = None,
    x_update: Annotated[str | None, typer.Option(help="As of train.")] = None,
    threads: Annotated[int | None, typer.Option(help="The result does not depend on it.")] = None,
    history: Annotated[int | None, typer.Option(help="As of train.")] = None,
    directions: Annotated[
        str | None, typer.Option(help="auto, one or both, which is auto's choice here.")
    ] = None,
) -> None:
    """Open a run: write the first request for each party."""
    from fastadmm.cli.place import settings_of
    from fastadmm.files.atomic import shown
    from fastadmm.rounds.coordinator_step import coordinator_start
    from fastadmm.runs.config import read_config

    options: dict[str, Any] = {
        "lambda": lambda_,
        "loss": loss,
        "regularizer": regularizer,
        "l1_ratio": l1_ratio,
        "constraint": constraint,
        "intercept": intercept,
        "gap": gap,
        "rounds": rounds,
        "scheme": scheme,
        "penalty": penalty,
        "acceleration": acceleration,
        "x_update": x_update,
        "threads": threads,
        "history": history,
        "directions": directions,
    }
    base = read_config(config) if config is not None else {}
    base.pop("provenance", None)
    values = {**base, **{key: value for key, value in options.items() if value is not None}}
    place = shown(config) if config is not None else "command line"
    with settings_of(config):
        _say(coordinator_start(labels, party, out, values, place))


@group.command()
def step(
    run: Annotated[Path, typer.Argument(readable=False, help="Directory of 'fastadmm coordinator start'.")],
    messages: Annotated[
        list[Path] | None, typer.Argument(metavar="[MESSAGE.h5]...", readable=False, help="Answers received.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result, once there is one, as JSON.")
    ] = False,
) -> int:
    """Take messages in and go on: new requests, or the model."""
    from fastadmm.cli.train import report_result
    from fastadmm.rounds.coordinator_step import coordinator_step

    result = coordinator_step(run, messages or [])
    if result.document is None:
        _say(result)
        return 0
    return report_result(result.document, run, as_json)


@group.command()
def repair(
    run: Annotated[Path, typer.Argument(readable=False, help="Directory of 'fastadmm coordinator start'.")],
    again: Annotated[
        int | None,
        typer.Option(metavar="N", help="Ask for exchange N and all after it again: a message was wrong."),
    ] = None,
) -> None:
    """Drop kept messages that cannot be used and ask for them again."""
    from fastadmm.rounds.repair import coordinator_repair

    _say(coordinator_repair(run, again))


def _say(result: StepResult) -> None:
    for note in result.notes:
        print(note)
    print(f"rounds done: {result.n_rounds}")

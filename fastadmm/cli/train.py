"""``fastadmm train``: a certified joint model from a partition."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fastadmm.cli.app import app

#: Heading of the privacy options in the help.
PRIVACY = "Privacy (docs/privacy.md)"

#: Headings of early stopping and of the regularisation path.
EARLY, PATH = "Early stopping (docs/training.md)", "Regularisation path (docs/path.md)"


@app.command()
def train(
    data: Annotated[
        Path | None, typer.Argument(readable=False, help="Partition directory made by 'fastadmm convert'.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", readable=False, help="Run directory to create. [default: run]"),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", readable=False, help="TOML file with the same keys; options win."),
    ] = None,
    test: Annotated[
        Path | None,
        typer.Option("--test", readable=False, help="Partition whose metrics are logged per round."),
    ] = None,
    lambda_: Annotated[
        float | None,
        typer.Option("--lambda", help="Regularisation per mean loss, 1 / (N C). [default: 1e-4]"),
    ] = None,
    party_lambda: Annotated[
        list[str] | None,
        typer.Option(
            "--party-lambda", metavar="NAME=VALUE", help="Another lambda for one party; may be repeated."
        ),
    ] = None,
    loss: Annotated[
        str | None,
        typer.Option(
            help="auto, logistic, squared, huber, quantile, hinge, smoothed_hinge, squared_hinge, poisson, "
            "or the non-convex sigmoid, tukey, welsch; "
            "a parameter follows a colon: huber:2.0. [default: auto]"
        ),
    ] = None,
    regularizer: Annotated[
        str | None,
        typer.Option(help="l2, l1, elastic_net, group_lasso, none or log_sum:WIDTH. [default: l2]"),
    ] = None,
    l1_ratio: Annotated[
        float | None, typer.Option(help="Share of l1 in elastic_net, above 0 to 1. [default: 0.5]")
    ] = None,
    constraint: Annotated[
        str | None,
        typer.Option(help="all, nonnegative, box:LOW,HIGH or ball:RADIUS. [default: all]"),
    ] = None,
    party_constraint: Annotated[
        list[str] | None,
        typer.Option(
            "--party-constraint",
            metavar="NAME=SET",
            help="Another constraint for one party, such as a=box:0,1; may be repeated.",
        ),
    ] = None,
    intercept: Annotated[
        bool | None,
        typer.Option("--intercept/--no-intercept", help="Fit an unpenalised intercept. [default: intercept]"),
    ] = None,
    gap: Annotated[
        float | None, typer.Option(help="Relative duality gap to certify. [default: 1e-6]")
    ] = None,
    stationarity: Annotated[
        float | None,
        typer.Option(
            help="Of a non-convex problem, which has no gap: gradient at which to stop, as a share of that "
            "at zero weights. [default: 1e-5]"
        ),
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Round limit. [default: 10000]")] = None,
    time: Annotated[float | None, typer.Option(help="Time limit in seconds.")] = None,
    scheme: Annotated[
        str | None,
        typer.Option(help="auto, subspace, proximal, sharing, jacobi or gauss-seidel. [default: auto]"),
    ] = None,
    penalty: Annotated[
        float | None, typer.Option(help="ADMM penalty r; unset: from the loss's curvature.")
    ] = None,
    acceleration: Annotated[str | None, typer.Option(help="auto, anderson or none. [default: auto]")] = None,
    x_update: Annotated[str | None, typer.Option(help="auto, gram, kernel or cg. [default: auto]")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads; the result does not depend on it.")] = None,
    checkpoint_rounds: Annotated[int | None, typer.Option(help="Checkpoint every so many rounds.")] = None,
    checkpoint_seconds: Annotated[
        float | None, typer.Option(help="Checkpoint at least this often, in seconds. [default: 30]")
    ] = None,
    privacy: Annotated[
        str | None,
        typer.Option(
            help="none, fusion or message: differential privacy. [default: none]", rich_help_panel=PRIVACY
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(help="Budget of each party for one record's features.", rich_help_panel=PRIVACY),
    ] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="Exceptional probability, below 1/N. [default: 1e-5]", rich_help_panel=PRIVACY),
    ] = None,
    adjacency: Annotated[
        str | None,
        typer.Option(help="replace_one, zero_out or column. [default: replace_one]", rich_help_panel=PRIVACY),
    ] = None,
    label_epsilon: Annotated[
        float | None, typer.Option(help="Randomised response on the labels.", rich_help_panel=PRIVACY)
    ] = None,
    label_party: Annotated[
        str | None,
        typer.Option(
            help="Party that holds the labels (fusion). [default: the first]", rich_help_panel=PRIVACY
        ),
    ] = None,
    row_norm: Annotated[
        float | None,
        typer.Option(
            help="Public bound to which rows are shortened (fusion); unset: found with noise.",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    private_rounds: Annotated[
        int | None,
        typer.Option(help="Messages of each party, fixed and charged. [default: 1]", rich_help_panel=PRIVACY),
    ] = None,
    ball: Annotated[
        float | None,
        typer.Option(help="Bound on each party's weights. [default: 8]", rich_help_panel=PRIVACY),
    ] = None,
    target_clip: Annotated[
        float | None,
        typer.Option(help="Bound on public targets. [default: the ball]", rich_help_panel=PRIVACY),
    ] = None,
    message_clip: Annotated[
        float | None, typer.Option(help="Bound on each message entry. [default: 2]", rich_help_panel=PRIVACY)
    ] = None,
    sampler: Annotated[
        str | None,
        typer.Option(help="grid, discrete or insecure_test. [default: grid]", rich_help_panel=PRIVACY),
    ] = None,
    public_scaling: Annotated[
        bool | None,
        typer.Option(
            "--public-scaling",
            help="Scales, fills and categories of the data do not come from their private rows.",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    allow_infinite_epsilon: Annotated[
        bool | None,
        typer.Option(
            "--allow-infinite-epsilon",
            help="Train also where no epsilon can be proved for the data as they were prepared.",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(
            readable=False,
            help="Account shared by all runs on these data. [default: in the run]",
            rich_help_panel=PRIVACY,
        ),
    ] = None,
    total_epsilon: Annotated[
        float | None,
        typer.Option(help="Budget of all runs in the ledger. [default: epsilon]", rich_help_panel=PRIVACY),
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            help="Most memory to take, for example 2GB or 512MiB; what does not fit is streamed. "
            "[default: 80 % of what is free]"
        ),
    ] = None,
    history: Annotated[
        int | None,
        typer.Option(help="Directions per party, or differences of the acceleration; unset: by memory."),
    ] = None,
    directions: Annotated[
        str | None,
        typer.Option(help="What a party answers in a round of subspace: auto, one or both. [default: auto]"),
    ] = None,
    log_to: Annotated[
        list[str] | None,
        typer.Option(
            "--log-to",
            metavar="KIND[=PLACE]",
            help="tensorboard or mlflow, with =DIR or =URI; may be repeated. See docs/tracking.md.",
        ),
    ] = None,
    class_weight: Annotated[
        str | None, typer.Option(help="balanced, or a factor for classes: yes:2,no:1.")
    ] = None,
    warm_start: Annotated[
        Path | None, typer.Option(readable=False, help="Model or run directory whose weights to start at.")
    ] = None,
    validation: Annotated[
        str | None,
        typer.Option(
            help="Stop early by a share of the rows (0.2) or by a partition.", rich_help_panel=EARLY
        ),
    ] = None,
    validation_metric: Annotated[
        str | None,
        typer.Option(
            help="loss, log_loss, accuracy, auc, rmse or r2. [default: loss]", rich_help_panel=EARLY
        ),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(help="Rounds without improvement before the stop. [default: 5]", rich_help_panel=EARLY),
    ] = None,
    path: Annotated[
        bool | None,
        typer.Option("--path", help="Train a decreasing grid of lambda; folds choose.", rich_help_panel=PATH),
    ] = None,
    path_values: Annotated[
        str | None, typer.Option(help="The grid: 1e-1,1e-2,1e-3. [default: made]", rich_help_panel=PATH)
    ] = None,
    path_length: Annotated[
        int | None, typer.Option(help="Values of the grid. [default: 20]", rich_help_panel=PATH)
    ] = None,
    path_ratio: Annotated[
        float | None, typer.Option(help="Smallest over largest value of the grid.", rich_help_panel=PATH)
    ] = None,
    folds: Annotated[
        int | None,
        typer.Option(help="Folds of the cross-validation; 0 for none. [default: 5]", rich_help_panel=PATH),
    ] = None,
    rule: Annotated[
        str | None,
        typer.Option(
            help="best, or 1se: the largest lambda within one standard error. [default: best]",
            rich_help_panel=PATH,
        ),
    ] = None,
    gap_share: Annotated[
        float | None,
        typer.Option(
            help="Gaps of the folds' fits over the differences that decide. [default: 0.01]",
            rich_help_panel=PATH,
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Chooses held-out rows and folds. [default: 0]")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the plan (with --json as JSON) and do nothing.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an older run.")] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Show nothing but errors and the result.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")] = False,
) -> int:
    """Train a joint model until its duality gap certifies it; one without a gap, until it is stationary."""
    from fastadmm.cli.display import make_display
    from fastadmm.cli.place import settings_of
    from fastadmm.errors import ConfigError
    from fastadmm.files.atomic import shown
    from fastadmm.runs.config import make_config, read_config
    from fastadmm.runs.train import start_run
    from fastadmm.settings.checks import read_class_weights
    from fastadmm.tracking import tracked

    options: dict[str, Any] = {
        "data": str(data) if data is not None else None,
        "test": str(test) if test is not None else None,
        "lambda": lambda_,
        "party_lambda": _of_parties("--party-lambda", party_lambda),
        "loss": loss,
        "regularizer": regularizer,
        "l1_ratio": l1_ratio,
        "constraint": constraint,
        "party_constraint": _texts_of_parties("--party-constraint", "party-1=box:0,1", party_constraint),
        "intercept": intercept,
        "gap": gap,
        "stationarity": stationarity,
        "rounds": rounds,
        "time": time,
        "scheme": scheme,
        "penalty": penalty,
        "acceleration": acceleration,
        "x_update": x_update,
        "threads": threads,
        "checkpoint_rounds": checkpoint_rounds,
        "checkpoint_seconds": checkpoint_seconds,
        "ledger": str(ledger) if ledger is not None else None,
        "memory": memory,
        "history": history,
        "directions": directions,
        "class_weight": read_class_weights(class_weight) if class_weight is not None else None,
        "warm_start": str(warm_start) if warm_start is not None else None,
        "validation": _share_or_path(validation),
        "validation_metric": validation_metric,
        "patience": patience,
        "seed": seed,
        "path": path,
        "path_values": _numbers("--path-values", path_values),
        "path_length": path_length,
        "path_ratio": path_ratio,
        "folds": folds,
        "rule": rule,
        "gap_share": gap_share,
    }
    asked: dict[str, Any] = {
        "mode": privacy,
        "epsilon": epsilon,
        "delta": delta,
        "adjacency": adjacency,
        "label_epsilon": label_epsilon,
        "label_party": label_party,
        "row_norm": row_norm,
        "rounds": private_rounds,
        "ball": ball,
        "target_clip": target_clip,
        "message_clip": message_clip,
        "sampler": sampler,
        "public_scaling": public_scaling,
        "allow_infinite_epsilon": allow_infinite_epsilon,
        "total_epsilon": total_epsilon,
    }
    options["privacy"] = {key: value for key, value in asked.items() if value is not None} or None
    given = {key: value for key, value in options.items() if value is not None}
    base = read_config(config) if config is not None else {}
    # A run.toml is a valid configuration; what it says about its data is checked by resume alone.
    base.pop("provenance", None)
    place = shown(config) if config is not None else "command line"
    if config is None and data is None:
        raise ConfigError("train: give a partition directory, or --config with the key 'data'")
    settings = make_config(base, place, given)
    run = out if out is not None else Path("run")
    if log_to and settings.path:
        raise ConfigError("log-to: a path is many fits; log a run at the lambda that it chooses")
    with settings_of(config):
        if dry_run:
            return show_plan(settings, as_json)
        with tracked(run, log_to or [], make_display(quiet)) as tracking:
            result = tracking.finish(start_run(settings, run, force=force, display=tracking))
    return report_result(result, run, as_json)


def _share_or_path(text: str | None) -> float | str | None:
    """A number where the text is one, else the text."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _of_parties(option: str, texts: list[str] | None) -> dict[str, float] | None:
    """Numbers by party, from ``NAME=VALUE``."""
    from fastadmm.errors import ConfigError

    numbers: dict[str, float] = {}
    for name, number in (_texts_of_parties(option, "party-1=1e-3", texts) or {}).items():
        try:
            numbers[name] = float(number)
        except ValueError:
            raise ConfigError(
                f"{option}: {f'{name}={number}'!r} is not NAME=VALUE, such as party-1=1e-3"
            ) from None
    return numbers or None


def _texts_of_parties(option: str, example: str, texts: list[str] | None) -> dict[str, str] | None:
    """Texts by party, from ``NAME=VALUE``."""
    from fastadmm.errors import ConfigError

    values: dict[str, str] = {}
    for text in texts or []:
        name, equals, value = text.rpartition("=")
        if not equals or not name:
            raise ConfigError(f"{option}: {text!r} is not NAME=VALUE, such as {example}")
        if name in values:
            raise ConfigError(f"{option}: party {name!r} is given twice")
        values[name] = value
    return values or None


def _numbers(option: str, text: str | None) -> list[float] | None:
    """Numbers that commas separate."""
    from fastadmm.errors import ConfigError

    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"{option}: {text!r} is not a list of numbers such as 1e-1,1e-2") from None


def show_plan(settings: Any, as_json: bool) -> int:
    """Print what a run would do."""
    import json

    from fastadmm.errors import ExitCode
    from fastadmm.runs.train import plan_run

    plan = plan_run(settings)
    print(json.dumps(plan.to_json(), indent=2) if as_json else "\n".join(plan.lines()))
    return int(ExitCode.OK)


def report_result(result: dict[str, Any], run: Path, as_json: bool) -> int:
    """Print the result of a run; return the exit code its status asks for."""
    import json
    import sys

    from fastadmm.errors import ExitCode
    from fastadmm.solver.history import Status

    if as_json:
        print(json.dumps({**result, "run": str(run)}, indent=2))
    status = Status(result["status"])
    if status in (Status.CONVERGED, Status.STATIONARY, Status.COMPLETED, Status.EARLY_STOPPED):
        if not as_json:
            if "path" in result:
                from fastadmm.runs.path_run import read_table, table_lines

                print("\n".join(table_lines(read_table(run))))
            print(f"{result['message']}; model in {run / 'model'}")
            for line in (result.get("comparison") or {}).get("lines", []):
                print(line)
            if result.get("privacy", {}).get("mode", "none") != "none":
                from fastadmm.files.atomic import shown
                from fastadmm.privacy.statement import PrivacyStatement

                place = f"{shown(run / 'result.json')}: privacy"
                print(PrivacyStatement.from_json(result["privacy"], place).one_line())
        for line in (result.get("comparison") or {}).get("warnings", []):
            print(f"fastadmm: warning: {line}", file=sys.stderr)
        return int(ExitCode.OK)
    # "interrupted" begins the message itself
    kind = {Status.DIVERGED: "error: ", Status.INTERRUPTED: ""}.get(status, "warning: ")
    hint = {
        Status.INTERRUPTED: f"; continue with: fastadmm resume {run}",
        Status.MAX_ROUNDS: f"; continue with: fastadmm resume {run} --rounds {2 * result['rounds']}",
        Status.TIME_LIMIT: f"; continue with: fastadmm resume {run} --time {2 * result['seconds']:.0f}",
    }.get(status, "")
    print(f"fastadmm: {kind}{result['message']}{hint}", file=sys.stderr)
    return int(
        {Status.DIVERGED: ExitCode.DIVERGED, Status.INTERRUPTED: ExitCode.INTERRUPTED}.get(
            status, ExitCode.NOT_CONVERGED
        )
    )

"""``fastadmm train`` and ``resume``: a certified joint model from a partition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fastadmm.cli import options as opt
from fastadmm.cli.app import app
from fastadmm.cli.terminal import grid, print_json, say, say_all, show, tell
from fastadmm.errors import ConfigError, ExitCode, FastadmmError
from fastadmm.settings.setting import MORE, Setting

_LOG_TO = opt.option(
    "mlflow or mlflow=URI; may be repeated. See docs/training.md.",
    "--log-to",
    panel=MORE,
    metavar="KIND[=PLACE]",
)


@opt.with_options(app.command(), "parties")
def train(
    data: Path | None = opt.argument("Partition directory made by 'fastadmm convert'.", default=None),
    out: Path | None = opt.written("RUN", usual="run"),
    config: Path | None = opt.CONFIG,
    *,
    options: dict[str, Any],
    log_to: list[str] | None = _LOG_TO,
    dry_run: bool = opt.DRY_RUN,
    force: bool = opt.FORCE,
    quiet: bool = opt.QUIET,
    as_json: bool = opt.JSON,
) -> int:
    """Train a joint model until it is proved to be nearly the best one (non-convex: until stationary)."""

    from fastadmm.cli.cluster import agreed, on_cluster, refuse_many, workers
    from fastadmm.runs.config import make_config, read_config
    from fastadmm.runs.train import start_run

    def given() -> Any:
        if config is None and data is None:
            raise ConfigError("train: give a partition directory, or --config with the key 'data'")
        # A run.toml is a valid configuration; what it says about its data is checked by resume alone.
        base, place = opt.base_of(config, read_config, "provenance")
        own = {} if data is None else {"data": str(data)}
        settings = make_config(base, place, {**options, **own})
        if log_to and settings.path:
            raise ConfigError("log-to: a path is many fits; log a run at the lambda that it chooses")
        return settings

    run = out if out is not None else Path("run")
    with workers(options.get("cluster")) as comm:
        settings = agreed(comm, given)
        refuse_many(options.get("cluster"), settings.cluster)
        with opt.settings_of(config):
            if dry_run:
                return show_plan(settings, as_json, comm)

            lead = _leading(partial(start_run, settings, run, force=force), run, log_to, quiet, as_json)
            return on_cluster(lead, settings.cluster, comm)


def _leading(
    go: Callable[..., Any], run: Path, log_to: list[str] | None, quiet: bool, as_json: bool
) -> Callable[[Any], int]:
    """What the process does that leads a run: train, log and report."""
    from fastadmm.cli.display import make_display

    def lead(comm: Any) -> int:
        logs: list[Any] = []
        if log_to:
            from fastadmm.tracking import MlflowLog

            logs = [MlflowLog(target) for target in log_to]
        display = make_display(quiet)
        result = go(display=display, comm=comm)
        for log in logs:
            try:
                log.add(run, result)
            except FastadmmError as error:
                display.note(f"warning: {error}; the run itself is in {run}")
        return report_result(result, run, as_json)

    return lead


def show_plan(settings: Any, as_json: bool, comm: Any) -> int:
    """Print what a run would do; under ``mpiexec`` rank 0 alone does."""
    from fastadmm.cli.cluster import agreed, workers
    from fastadmm.runs.train import plan_run

    with workers(settings.cluster, comm) as met:  # by a file, where it is not by an option
        plan = agreed(met, lambda: plan_run(settings))
    if met is not None and met.rank:
        return int(ExitCode.OK)
    tell(as_json, plan.to_json(), plan.lines)
    return int(ExitCode.OK)


def report_result(result: dict[str, Any], run: Path, as_json: bool) -> int:
    """Print the result of a run; return the exit code its status asks for."""
    from fastadmm.runs.train import exit_code_of
    from fastadmm.solver.history import Status

    if as_json:
        print_json({**result, "run": str(run)})
    status = Status(result["status"])
    code = exit_code_of(status)
    if code == ExitCode.OK:
        comparison = result.get("comparison") or {}
        if not as_json:
            if "path" in result:
                from fastadmm.runs.fit import read_table

                show(_path_table(read_table(run)))
            say(f"{result['message']}; model in {run / 'model'}")
            say_all(comparison.get("lines", []))
            if result.get("privacy", {}).get("mode", "none") != "none":
                from fastadmm.files.atomic import shown
                from fastadmm.privacy.statement import PrivacyStatement

                place = f"{shown(run / 'result.json')}: privacy"
                say(PrivacyStatement.from_json(result["privacy"], place).one_line())
        say_all(comparison.get("warnings", []), "fastadmm: warning: ", error=True)
        return ExitCode.OK
    # "interrupted" begins the message itself
    kinds = {Status.INTERRUPTED: "", **dict.fromkeys((Status.DIVERGED, Status.CONTRADICTION), "error: ")}
    kind = kinds.get(status, "warning: ")
    hint = {
        Status.INTERRUPTED: f"; continue with: fastadmm resume {run}",
        Status.MAX_ROUNDS: f"; continue with: fastadmm resume {run} --rounds {2 * result['rounds']}",
        Status.TIME_LIMIT: f"; continue with: fastadmm resume {run} --set time={2 * result['seconds']:.3g}",
    }.get(status, "")
    say(f"fastadmm: {kind}{result['message']}{hint}", error=True)
    return code


def _path_table(table: dict[str, Any]) -> Any:
    """The fits of a path, and which of them folds chose."""
    known = ("lambda", "held_out_loss", "standard_error", "nonzero", "gap", "rounds")
    names = [name for name in known if name in table["values"][0]]
    chosen = table["chosen"] if table["rule"] is not None else None
    rows = [
        [*(row[name] for name in names), "chosen" if k == chosen else ""]
        for k, row in enumerate(table["values"])
    ]
    return grid("", [*names, ""], rows, ("",), simple=True)


def _resumed(setting: Setting) -> Setting | None:
    return replace(setting, default=None) if setting.resumed else None


@opt.with_options(app.command(), "parties", _resumed)
def resume(
    run: Path = opt.argument("Run directory made by 'fastadmm train'."),
    *,
    options: dict[str, Any],
    log_to: list[str] | None = _LOG_TO,
    quiet: bool = opt.QUIET,
    as_json: bool = opt.JSON,
) -> int:
    """Continue an interrupted run to the same result, bit for bit, or a finished one to a new limit."""

    from fastadmm.cli.cluster import agreed, on_cluster, refuse_many, workers
    from fastadmm.runs.train import cluster_of, resume_run

    with workers(options.get("cluster")) as comm:
        cluster = agreed(comm, lambda: cluster_of(run, options))
        refuse_many(options.get("cluster"), cluster)

        lead = _leading(partial(resume_run, run, changes=options), run, log_to, quiet, as_json)
        return on_cluster(lead, cluster, comm)

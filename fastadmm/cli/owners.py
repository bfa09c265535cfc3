"""``fastadmm owners``: rows with several owners, and training on their private answers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastadmm.cli import options as opt
from fastadmm.cli.app import new_group
from fastadmm.cli.convert import NAMES, FileOptions, Format, progress_bar
from fastadmm.cli.terminal import print_json, say, tell
from fastadmm.errors import ConfigError, ExitCode
from fastadmm.settings.setting import declare

if TYPE_CHECKING:
    from fastadmm.store.owner_file import Owners

group = new_group(owners="Train with owners of rows, who answer differentially private gradient queries.")


@dataclass(frozen=True)
class _Owners:
    """Options for which rows are whose, and what is stored."""

    sizes: str | None = opt.option("Number of consecutive rows of each owner.", metavar="N,N,...")
    by: str | None = opt.option("Column (CSV) or array (NPZ) that names the owner.", metavar="NAME")
    names: str | None = NAMES
    overlap: str = declare(
        "data",
        "count: records of several owners divide every epsilon",
        choices=("refuse", "count"),
        default="refuse",
    )
    storage: str = declare("data", "of features", choices=("auto", "dense", "csr"), default="auto")
    dtype: str = declare("data", "of features", choices=("float64", "float32"), default="float64")


@dataclass(frozen=True)
class _Source(FileOptions):
    """Options for how files are read."""

    task: opt.Task = opt.TASK
    features: int | None = declare("data", "number of features, if the last of LIBSVM never occur")
    format: str = declare("data", "of the sources", choices=tuple(Format), default="auto")
    no_header: bool = declare("data", "true: the first line of CSV is data", default=False)
    separator: str | None = declare("data", "between CSV cells, where it is not recognised")


@opt.with_options(group.command())
def convert(
    sources: list[Path] = opt.argument(
        "One file to divide, or one file per owner: LIBSVM, CSV or NPZ.", metavar="SOURCE..."
    ),
    out: Path = opt.written("OUT.owners", ...),
    *,
    owners: _Owners,
    reading: _Source,
    force: bool = opt.FORCE,
    as_json: bool = opt.JSON,
) -> None:
    """Make one file per owner from the rows of a data file."""
    from fastadmm.data_tools.owners import convert_owners

    who = opt.plain_values(owners)
    try:
        who["sizes"] = [int(part) for part in who["sizes"].split(",")] if who["sizes"] is not None else None
    except ValueError:
        raise ConfigError(f"--sizes {owners.sizes!r}: give whole numbers such as 250000,250000") from None
    how = opt.plain_values(reading)
    how |= {"header": not how.pop("no_header"), "drop": reading.dropped}
    with progress_bar() as progress:
        data = convert_owners(sources, out, **who, **how, force=force, progress=progress)
    _show(data, as_json)


def _show(data: Owners, as_json: bool) -> None:
    summary = {
        "owners": str(data.path),
        "n_samples": data.n_samples,
        "n_features": data.owners[0].n_features,
        "task": data.task,
        "classes": data.classes,
        "kappa": data.kappa,
        "parts": [{"name": o.name, "n_samples": o.n_samples, "kind": o.kind} for o in data.owners],
    }
    lines = [
        f"{data.path}: {data.n_samples} rows, {data.owners[0].n_features} features, {data.task}, "
        + ("no record with two owners" if data.kappa == 1 else f"records with up to {data.kappa} owners")
    ]
    lines += [f"  {o.name}: {o.n_samples} rows, {o.kind}" for o in data.owners]
    tell(as_json, summary, lambda: lines, indent=None)


@opt.with_options(group.command(), "owners")
def train(
    data: Path | None = opt.argument("Directory made by 'fastadmm owners convert'.", default=None),
    out: Path = opt.written("RUN", Path("owners-run")),
    config: Path | None = opt.CONFIG,
    *,
    options: dict[str, Any],
    stream: bool = opt.flag("Read rows from the files in every round.", "--stream"),
    force: bool = opt.FORCE,
    quiet: bool = opt.QUIET,
    as_json: bool = opt.JSON,
) -> int:
    """Train on noisy gradients from the owners of rows."""
    from fastadmm.cli.display import make_display
    from fastadmm.owners.run import start_owner_run
    from fastadmm.settings.checks import read_values
    from fastadmm.settings.owners import OwnerSettings, make_settings

    read = partial(read_values, OwnerSettings)
    base, place = opt.base_of(config, read, "provenance", "objective", "run")
    if config is None and data is None:
        raise ConfigError("owners train: give a directory, or --config with the key 'data'")
    if data is not None:
        options["data"] = str(data)
    settings = make_settings(base, place, options)
    display = make_display(quiet)
    with opt.settings_of(config):
        result = start_owner_run(settings, out, force=force, stream=stream, display=display)
    return _report(result, out, as_json)


@group.command()
def resume(
    run: Path = opt.argument("Run directory of 'fastadmm owners train'."),
    stream: bool = opt.flag("Read rows from the files in every round.", "--stream"),
    quiet: bool = opt.QUIET,
    as_json: bool = opt.JSON,
) -> int:
    """Continue an interrupted run; stored answers are used again, never drawn again."""
    from fastadmm.cli.display import make_display
    from fastadmm.owners.run import resume_owner_run

    result = resume_owner_run(run, stream=stream, display=make_display(quiet))
    return _report(result, run, as_json)


def _report(result: dict[str, Any], run: Path, as_json: bool) -> int:
    if as_json:
        print_json({**result, "run": str(run)})
    if result["status"] == "interrupted":
        say(f"fastadmm: {result['message']}; continue with: fastadmm owners resume {run}", error=True)
        return ExitCode.INTERRUPTED
    if not as_json:
        say(f"{result['message']}; model in {run / 'model'}")
        say(result["statement"]["sentence"])
        for owner in result["statement"]["owners"]:
            budget = f"epsilon {owner['epsilon']:g}" if owner["epsilon"] is not None else "no epsilon"
            say(
                f"  {owner['name']}: {owner['n_samples']} records, {budget}, noise {owner['noise_scale']:.3g}"
            )
    return int(ExitCode.OK)

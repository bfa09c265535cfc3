"""``fastadmm owners``: rows with several owners, and training on their private answers."""

from __future__ import annotations

import sys
import time as clock
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastadmm.cli.app import app
from fastadmm.cli.options import plain_values, with_options
from fastadmm.cli.terminal import note, redraws, say

if TYPE_CHECKING:
    from fastadmm.store.collection import Owners

group = typer.Typer(
    help="Train with owners of rows, who answer differentially private gradient queries.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(group, name="owners")


@dataclass(frozen=True)
class _Division:
    """Options for which rows are whose."""

    sizes: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Number of consecutive rows of each owner.")
    ] = None
    by: Annotated[
        str | None, typer.Option(metavar="NAME", help="Column (CSV) or array (NPZ) that names the owner.")
    ] = None
    drop_rest: Annotated[
        bool,
        typer.Option("--drop-rest", help="With --sizes: leave out the rows after those of the last owner."),
    ] = False
    names: Annotated[str | None, typer.Option(metavar="A,B", help="Names of the owners.")] = None
    overlap: Annotated[
        str,
        typer.Option(
            help="Records that several owners hold: refuse, or count (and divide every epsilon by the count)."
        ),
    ] = "refuse"


@dataclass(frozen=True)
class _Public:
    """Options for what is taken from public rows."""

    public: Annotated[
        Path | None,
        typer.Option(metavar="FILE", readable=False, help="File of public rows for scaling and components."),
    ] = None
    standardize: Annotated[
        bool, typer.Option("--standardize", help="Subtract the public mean, divide by the public deviation.")
    ] = False
    components: Annotated[
        int | None, typer.Option(metavar="K", help="Keep K principal components of the public rows.")
    ] = None


@dataclass(frozen=True)
class _Source:
    """Options for how files are read."""

    task: Annotated[str, typer.Option(help="auto, classification or regression.")] = "auto"
    label: Annotated[str | None, typer.Option(metavar="NAME", help="CSV: label column.")] = None
    drop: Annotated[str, typer.Option(metavar="A,B", help="CSV: columns to leave out.")] = ""
    no_header: Annotated[
        bool, typer.Option("--no-header", help="CSV: the first line is data; columns are called c1, c2, ...")
    ] = False
    separator: Annotated[
        str | None, typer.Option(metavar="CHAR", help="CSV: separator between cells (default: recognised).")
    ] = None
    features: Annotated[int | None, typer.Option(metavar="D", help="LIBSVM: number of features.")] = None
    zero_based: Annotated[bool, typer.Option("--zero-based", help="LIBSVM: indices count from 0.")] = False
    x_key: Annotated[str | None, typer.Option(metavar="KEY", help="NPZ: feature array.")] = None
    y_key: Annotated[str | None, typer.Option(metavar="KEY", help="NPZ: label array.")] = None
    format: Annotated[str, typer.Option(help="auto, libsvm, csv or npz.")] = "auto"


@dataclass(frozen=True)
class _Stored:
    """Options for what is stored."""

    storage: Annotated[str, typer.Option(help="auto, dense or csr.")] = "auto"
    dtype: Annotated[str, typer.Option(help="float64 or float32.")] = "float64"


@group.command()
@with_options()
def convert(
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="SOURCE...",
            readable=False,
            help="One file to divide, or one file per owner: LIBSVM, CSV or NPZ.",
        ),
    ],
    out: Annotated[
        Path, typer.Option("-o", "--out", metavar="OUT.owners", readable=False, help="Directory to create.")
    ],
    *,
    division: _Division,
    public: _Public,
    reading: _Source,
    stored: _Stored,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing directory.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
) -> None:
    """Make one file per owner from the rows of a data file."""
    from fastadmm.cli.convert import progress_bar
    from fastadmm.data_tools.owners import Reading, convert_owners
    from fastadmm.errors import ConfigError

    if reading.format not in ("auto", "libsvm", "csv", "npz"):
        raise ConfigError(f"--format {reading.format!r}: choose one of auto, libsvm, csv, npz")
    who = plain_values(division)
    try:
        who["sizes"] = [int(part) for part in who["sizes"].split(",")] if who["sizes"] is not None else None
    except ValueError:
        raise ConfigError(f"--sizes {division.sizes!r}: give whole numbers such as 250000,250000") from None
    if division.names is not None:
        who["names"] = [name.strip() for name in division.names.split(",")]
    how = plain_values(reading)
    task, header = how.pop("task"), not how.pop("no_header")
    how["drop"] = [name.strip() for name in reading.drop.split(",") if name.strip()]
    how["separator"] = "\t" if reading.separator == "\\t" else reading.separator
    with progress_bar() as progress:
        data = convert_owners(
            sources,
            out,
            **who,
            **plain_values(public),
            **plain_values(stored),
            reading=Reading(header=header, **how),
            task=task,
            force=force,
            progress=progress,
        )
    _show(data, as_json)


def _show(data: Owners, as_json: bool) -> None:
    summary = {
        "owners": str(data.path),
        "n_samples": data.n_samples,
        "n_features": data.owners[0].n_features,
        "task": data.task,
        "classes": data.classes,
        "kappa": data.kappa,
        "public_share": data.public_share,
        "parts": [{"name": o.name, "n_samples": o.n_samples, "kind": o.kind} for o in data.owners],
    }
    if as_json:
        import json

        print(json.dumps(summary))
        return
    lines = [
        f"{data.path}: {data.n_samples} rows, {data.owners[0].n_features} features, {data.task}, "
        + ("no record with two owners" if data.kappa == 1 else f"records with up to {data.kappa} owners")
    ]
    if data.public_share is not None:
        lines.append(
            f"  of the public file's rows or the owners', {data.public_share:.1%} are in both, at most"
        )
    lines += [f"  {o.name}: {o.n_samples} rows, {o.kind}" for o in data.owners]
    say("\n".join(lines))


def _settings() -> Any:
    from fastadmm.settings.owners import OwnerSettings
    from fastadmm.settings.setting import settings_of

    return settings_of(OwnerSettings).values(), ()


@group.command()
@with_options(_settings)
def train(
    data: Annotated[
        Path | None, typer.Argument(readable=False, help="Directory made by 'fastadmm owners convert'.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", readable=False, help="Run directory to create.")] = Path(
        "owners-run"
    ),
    config: Annotated[
        Path | None,
        typer.Option("--config", readable=False, help="TOML file with settings; options override it."),
    ] = None,
    *,
    options: dict[str, Any],
    objective: Annotated[
        bool,
        typer.Option(
            "--objective",
            help="For simulations: log the true objective; it has no noise, so no epsilon is claimed.",
        ),
    ] = False,
    stream: Annotated[
        bool, typer.Option("--stream", help="Read rows from the files in every round.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing run.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show only errors and the result.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")] = False,
) -> int:
    """Train on noisy gradients from the owners of rows."""
    from fastadmm.cli.place import settings_of
    from fastadmm.errors import ConfigError
    from fastadmm.files.atomic import shown
    from fastadmm.owners.run import start_owner_run
    from fastadmm.settings.owners import OwnerSettings, make_settings
    from fastadmm.settings.values import read_values

    base = read_values(OwnerSettings, config) if config is not None else {}
    for key in ("provenance", "objective", "run"):
        base.pop(key, None)
    if config is None and data is None:
        raise ConfigError("owners train: give a directory, or --config with the key 'data'")
    if data is not None:
        options["data"] = str(data)
    settings = make_settings(base, shown(config) if config is not None else "command line", options)
    display = None if quiet else _Rounds()
    with settings_of(config):
        result = start_owner_run(
            settings, out, force=force, objective=objective, stream=stream, display=display
        )
    return _report(result, out, as_json)


@group.command()
def resume(
    run: Annotated[Path, typer.Argument(readable=False, help="Run directory of 'fastadmm owners train'.")],
    stream: Annotated[
        bool, typer.Option("--stream", help="Read rows from the files in every round.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show only errors and the result.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON document.")] = False,
) -> int:
    """Continue an interrupted run; stored answers are used again, never drawn again."""
    from fastadmm.owners.run import resume_owner_run

    result = resume_owner_run(run, stream=stream, display=None if quiet else _Rounds())
    return _report(result, run, as_json)


def _report(result: dict[str, Any], run: Path, as_json: bool) -> int:
    import json

    from fastadmm.errors import ExitCode

    if as_json:
        print(json.dumps({**result, "run": str(run)}, indent=2))
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


class _Rounds:
    """A line now and then on standard error, or one that is redrawn on a terminal."""

    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._bar: Any = None
        self._task: Any = None
        self._last = 0.0
        self._rounds = 0

    def note(self, text: str) -> None:
        """Show one line."""
        note(self.console, text)

    def start(self, rounds: int) -> None:
        """Rounds begin."""
        self._rounds, self._last = rounds, clock.monotonic()
        if redraws(sys.stderr):
            from rich.progress import Progress

            self._bar = Progress(console=self.console, transient=True)
            self._task = self._bar.add_task("asking", total=rounds)
            self._bar.start()

    def round(self, record: dict[str, Any]) -> None:
        """One round is done."""
        text = (
            f"round {record['round']} of {self._rounds} · gradient {record['gradient_norm']:.3g} · "
            f"noise {record['noise']:.3g}"
        )
        if "objective" in record:
            text += f" · objective {record['objective']:.6g} (not private)"
        if self._bar is not None:
            self._bar.update(self._task, completed=record["round"], description=text)
        elif clock.monotonic() - self._last >= 5.0:
            self._last = clock.monotonic()
            note(self.console, text)

    def stop(self) -> None:
        """Rounds are over."""
        if self._bar is not None:
            self._bar.stop()

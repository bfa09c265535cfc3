"""``fastadmm federate`` and ``coordinator``: training between organisations, over a network or by files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fastadmm.cli import options as opt
from fastadmm.cli.agent import status
from fastadmm.cli.app import new_group
from fastadmm.cli.columns import COVARIANCE, LEVEL
from fastadmm.cli.convert import LIKE, Beside
from fastadmm.cli.terminal import say, say_all, tell
from fastadmm.cli.worth import LABEL_PARTY, METRIC
from fastadmm.errors import ConfigError, WaitingError
from fastadmm.settings.setting import MORE, Setting

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastadmm.between.train import StepResult
    from fastadmm.solver.history import RoundRecord

T = TypeVar("T")

group = new_group(
    federate="Between organisations, over NVFlare with mutual TLS: align, train, evaluate, predict.",
    coordinator="The coordinator's side of training, over exchanged files or as 'federate'.",
)

_KIT = opt.argument("A startup kit, as `nvflare provision` writes it.")


def _say(line: str) -> None:
    say(line, error=True)


_TASK = opt.written("DIR", ...)
_WAIT = opt.option("How long to ask again for approvals, such as 30m or 1h. (default: 0)", metavar="TIME")

#: Seconds between two questions to parties whose answer is missing, at first and at most.
_FIRST, _PAUSE = 0.5, 10.0


def _waiting(wait: str | None, go: Callable[[], T]) -> T:
    """Ask again until all parties are there and have approved, or the time is over."""
    from fastadmm.between.socket import Lost, again, pauses

    each = pauses(0.0 if wait is None else opt.seconds_of(wait, "--wait"), _FIRST, _PAUSE)
    return again(go, each, _say, kinds=(WaitingError, Lost), words="fastadmm: waiting: {}")


@group.command()
def harden(
    kit: Path = _KIT,
    socket: Path | None = opt.option(
        "Unix socket of the agent, or a directory for files. (default: /run/fastadmm/SITE.sock)",
        metavar="PATH",
    ),
) -> None:
    """Replace NVFlare's defaults in a kit: rights, classes that jobs may use, file modes."""
    from fastadmm.between import kit as kits

    say_all(kits.harden(kits.open_kit(kit), socket))


@group.command()
def check(
    kit: Path = _KIT,
    private: list[Path] | None = opt.option(
        "What NVFlare's user must not read: data, labels, ledger, agent's directory; repeatable.",
        metavar="PATH",
    ),
) -> None:
    """Check a kit and its machine before a site starts: users, rights, classes, versions."""
    from fastadmm.between import kit as kits

    found = kits.check(kits.open_kit(kit), private or [])
    say_all(f"{'ok  ' if finding.ok else 'FAIL'}  {finding.text}" for finding in found)
    if failed := sum(not finding.ok for finding in found):
        raise ConfigError(f"{kit}: {failed} of {len(found)} checks failed")


group.command()(status)


@group.command()
def train(
    config: Path = opt.argument(
        "Settings of 'fastadmm train', and an address per party.", metavar="CONFIG.toml"
    ),
    out: Path = _TASK,
    wait: str | None = _WAIT,
    quiet: bool = opt.QUIET,
    as_json: bool = opt.JSON,
) -> int:
    """Start a run, or continue it, until the model is certified."""
    from fastadmm.between.train import federate as go
    from fastadmm.cli.train import report_result
    from fastadmm.engine.free_cores import sleep_between_jobs

    sleep_between_jobs()

    def rounds(record: RoundRecord) -> None:
        if not quiet:
            found = f"objective {record.objective:.6g}, gap {record.gap:.2e}"
            _say(f"round {record.round}, {record.exchanges} exchanges so far: {found}")

    return report_result(_waiting(wait, lambda: go(config, out, _say, rounds)), out, as_json)


_CONFIG = opt.argument("Configuration with an address per party.", metavar="CONFIG.toml")
_RUN = opt.argument("Run of 'federate train'.", metavar="RUN")


@opt.with_options(group.command())
def align(
    config: Path = _CONFIG,
    table: Path = opt.argument("CSV or Parquet table with your ids.", metavar="TABLE"),
    id: str = opt.option(opt.ID.help, "--id", default=..., metavar="NAME"),
    out: Path = _TASK,
    label: str | None = opt.LABEL,
    task: opt.Task = opt.TASK,
    positive: str | None = opt.POSITIVE,
    like: Path | None = LIKE,
    *,
    spelled: opt.OneTable,
    beside: Beside,
    wait: str | None = _WAIT,
) -> None:
    """Find the rows that you and all parties have, by private set intersection."""
    from fastadmm.between.predict import ROWS, federate_align
    from fastadmm.data_tools.alignment import file_ids
    from fastadmm.data_tools.csv_table import Layout
    from fastadmm.data_tools.label_columns import write_label_table
    from fastadmm.files.atomic import shown
    from fastadmm.judging.looks import say as look

    if like is not None and label is None:
        raise ConfigError("--like: belongs to --label")
    if label is None and (given := opt.given_options(beside)):
        raise ConfigError(f"{given[0]}: is kept beside the labels: name them with --label")
    if positive is not None and (like is not None or label is None):
        raise ConfigError("--positive: belongs to --label, and --like has it already")
    how = opt.plain_values(spelled)
    ids = file_ids(table, id, Layout(spelled.separator), how["duplicates"], spelled.id_pattern)
    alignment, report = _waiting(wait, lambda: federate_align(config, ids, out, _say))
    say("\n".join([*report, f"{out / ROWS}: {len(alignment.ids)} rows, {alignment.digest}"]))
    if label is not None:
        write_label_table(
            out / "labels.h5",
            table,
            label,
            alignment,
            id=id,
            **how,
            task=task.value,
            positive=positive,
            like=like,
            **opt.plain_values(beside),
        )
        say(f"{out / 'labels.h5'}: labels of these rows")
        say(look("label", place=shown(table), column=label))


@group.command()
def labels(
    config: Path = _CONFIG,
    labels: Path = opt.argument("Label file from 'fastadmm scorecard labels'.", metavar="LABELS.h5"),
    out: Path = _TASK,
    wait: str | None = _WAIT,
) -> None:
    """Give every party labels with noise, for 'fastadmm scorecard bins'."""
    from fastadmm.between.predict import federate_labels

    count, parties = _waiting(wait, lambda: federate_labels(config, labels, out, _say))
    say(f"{count} labels with noise are with {', '.join(parties)}")


@group.command()
def predict(
    config: Path = _CONFIG,
    run: Path = _RUN,
    rows: Path = opt.argument("Which rows: rows.json of 'federate align', or a label file.", metavar="ROWS"),
    out: Path = _TASK,
    own: Path | None = opt.OWN,
    wait: str | None = _WAIT,
) -> None:
    """Ask every party for its share of the rows' scores, and add them up."""
    from fastadmm.between.predict import PREDICTIONS, federate_predict

    predictions = _waiting(wait, lambda: federate_predict(config, run, rows, out, own=own, say=_say))
    say(f"{len(predictions.score)} predictions in {out / PREDICTIONS}")


@group.command()
def evaluate(
    config: Path = _CONFIG,
    run: Path = _RUN,
    test: Path = opt.argument("Label file of the test rows.", metavar="LABELS.h5"),
    out: Path = _TASK,
    own: Path | None = opt.OWN,
    wait: str | None = _WAIT,
    as_json: bool = opt.JSON,
) -> None:
    """Measure the model on rows whose features the parties have."""
    from fastadmm.between.predict import federate_evaluate
    from fastadmm.cli.predict import print_evaluation

    found = _waiting(wait, lambda: federate_evaluate(config, run, test, out, own=own, say=_say))
    print_evaluation(found, as_json)


@group.command()
def infer(
    config: Path = _CONFIG,
    run: Path = _RUN,
    out: Path = _TASK,
    level: float = LEVEL,
    covariance: str = COVARIANCE,
    wait: str | None = _WAIT,
    as_json: bool = opt.JSON,
) -> None:
    """Compute standard errors: each party learns its own, you get the tests and the fit."""
    from fastadmm.between.predict import federate_infer

    how: dict[str, Any] = {"covariance": covariance, "level": level, "say": _say}
    found = _waiting(wait, lambda: federate_infer(config, run, out, **how))
    tell(as_json, found.to_dict(), found.parts, ensure_ascii=False)


@group.command()
def worth(
    config: Path = _CONFIG,
    test: Path = opt.argument("Label file of the test rows.", metavar="LABELS.h5"),
    out: Path = _TASK,
    metric: str | None = METRIC,
    label_party: str | None = LABEL_PARTY,
    wait: str | None = _WAIT,
    as_json: bool = opt.JSON,
) -> None:
    """Measure what each party adds: one run for each coalition, and one approval for all of them."""
    from fastadmm.cli.worth import print_worth
    from fastadmm.worth.federated import federate_worth

    how: dict[str, Any] = {"metric": metric, "label_party": label_party, "say": _say}
    found = _waiting(wait, lambda: federate_worth(config, test, out, **how))
    print_worth(found, as_json)


@group.command()
def demo(
    keep: Path | None = opt.option("Directory to create and keep, with every file.", metavar="DIR"),
) -> None:
    """Try it on this machine: three laboratories, each its own process, one killed on the way."""
    from contextlib import nullcontext
    from tempfile import TemporaryDirectory

    from fastadmm.cli.federate_demo import run_federate_demo
    from fastadmm.files.atomic import storage_errors

    if keep is not None:
        with storage_errors(keep):
            keep.mkdir(mode=0o700, parents=True)
    with TemporaryDirectory(prefix="fastadmm-") if keep is None else nullcontext(keep) as directory:
        run_federate_demo(Path(directory).absolute(), say)


def _started(setting: Setting) -> Setting | None:
    """Rare settings are no options here: ``--set`` and a file of settings have them."""
    if setting.role == "data" or "run between parties" in setting.not_with:
        return None
    return replace(setting, help="") if setting.panel == MORE else setting


@opt.with_options(group.command(), "parties", _started)
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
    from fastadmm.runs.config import read_config

    base, place = opt.base_of(config, read_config, "provenance")
    with opt.settings_of(config):
        _show(coordinator_start(labels, party, out, base, place, options=options, own=own))


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
        _show(result)
        return 0
    return report_result(result.document, run, as_json)


@group.command()
def repair(
    run: Path = opt.argument("Directory of 'fastadmm coordinator start'."),
) -> None:
    """Discard all messages and ask for them again; parties repeat their answers."""
    from fastadmm.between.train import coordinator_repair

    _show(coordinator_repair(run))


def _show(result: StepResult) -> None:
    say_all(result.notes)
    say(f"rounds done: {result.n_rounds}")

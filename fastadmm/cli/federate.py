"""``fastadmm federate``: training between organisations over NVFlare."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from fastadmm.cli.app import app
from fastadmm.cli.convert import Duplicates, Task
from fastadmm.cli.infer import Covariance, Level
from fastadmm.cli.options import IdPattern, seconds_of
from fastadmm.cli.terminal import say

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastadmm.solver.history import RoundRecord

T = TypeVar("T")

group = typer.Typer(
    help="Between organisations, over NVFlare with mutual TLS: align, train, evaluate, predict.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(group, name="federate")

_Kit = Annotated[
    Path, typer.Argument(readable=False, help="A startup kit, as `nvflare provision` writes it.")
]


def _say(line: str) -> None:
    say(line, error=True)


_Wait = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="How long to ask again for approvals, such as 30m or 1h. (default: 0)"),
]

#: Seconds between two questions to parties that have not approved yet.
_PAUSE = 10.0


def _waiting(wait: str | None, go: Callable[[], T]) -> T:
    """Ask again until all parties are there and have approved, or the time is over."""
    import time

    from fastadmm.between.socket import Lost
    from fastadmm.errors import WaitingError

    end, told = time.monotonic() + (0.0 if wait is None else seconds_of(wait, "--wait")), False
    while True:
        try:
            return go()
        except (WaitingError, Lost) as error:
            left = end - time.monotonic()
            if left <= 0:
                raise
            if not told:
                _say(f"fastadmm: waiting: {error}")
            told = True
            time.sleep(min(_PAUSE, left))


@group.command()
def harden(
    kit: _Kit,
    socket: Annotated[
        Path | None,
        typer.Option(
            readable=False,
            help="Socket between NVFlare's process and the agent (at the server: the coordinator). "
            "Default: /run/fastadmm/SITE.sock.",
        ),
    ] = None,
) -> None:
    """Replace NVFlare's defaults in a kit: rights, classes that jobs may use, file modes."""
    from fastadmm.between.kit import harden as harden_kit
    from fastadmm.between.kit import open_kit

    for line in harden_kit(open_kit(kit), socket):
        say(line)


@group.command()
def check(
    kit: _Kit,
    private: Annotated[
        list[Path] | None,
        typer.Option(
            readable=False,
            metavar="PATH",
            help="What NVFlare's user must not read: data, labels, ledger, agent's directory; repeatable.",
        ),
    ] = None,
) -> None:
    """Check a kit and its machine before a site starts: users, rights, certificates, port, versions."""
    from fastadmm.between.check import check as check_kit
    from fastadmm.between.kit import open_kit
    from fastadmm.errors import ConfigError

    found = check_kit(open_kit(kit), private or [])
    for finding in found:
        say(f"{'ok  ' if finding.ok else 'FAIL'}  {finding.text}")
    failed = [finding for finding in found if not finding.ok]
    if failed:
        raise ConfigError(f"{kit}: {len(failed)} of {len(found)} checks failed")


@group.command()
def status(kit: _Kit) -> None:
    """Show which sites are connected and which jobs run; KIT is the administrator's kit."""
    from datetime import datetime

    from fastadmm.between.admin import session
    from fastadmm.between.kit import open_kit

    opened = open_kit(kit)
    with session(opened) as server:
        state, jobs = server("check_status", "server"), server("list_jobs")
    for client in state.get("clients", []):
        seen = datetime.fromtimestamp(client["client_last_conn_time"])
        say(f"site {client['client_name']}: connected, last heard of {seen:%F %T}")
    for job in jobs:
        say(f"job {job['job_id']}: {job['status']}, submitted {job['submit_time'][:19]}")


@group.command()
def train(
    config: Annotated[
        Path,
        typer.Argument(
            metavar="CONFIG.toml",
            readable=False,
            help="Settings of 'fastadmm train', and an address per party.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", readable=False, help="Directory of the run; an existing run is continued."
        ),
    ],
    wait: _Wait = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Do not print rounds.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> int:
    """Start a run, or continue it, until the model is certified."""
    from fastadmm.between.train import federate as go
    from fastadmm.cli.train import report_result

    def rounds(record: RoundRecord) -> None:
        if not quiet:
            _say(f"round {record.round}: objective {record.objective:.6g}, gap {record.gap:.2e}")

    return report_result(_waiting(wait, lambda: go(config, out, _say, rounds)), out, as_json)


_Config = Annotated[
    Path,
    typer.Argument(metavar="CONFIG.toml", readable=False, help="Configuration with an address per party."),
]
_Run = Annotated[Path, typer.Argument(metavar="RUN", readable=False, help="Run of 'federate train'.")]
_Task = Annotated[
    Path,
    typer.Option("--out", "-o", readable=False, help="Directory of the task; an existing task is continued."),
]
_Own = Annotated[
    Path | None,
    typer.Option(
        metavar="PARTY.h5",
        readable=False,
        help="The label holder's own features of these rows, if it has any.",
    ),
]


@group.command()
def align(
    config: _Config,
    table: Annotated[
        Path, typer.Argument(metavar="TABLE", readable=False, help="CSV or Parquet table with your ids.")
    ],
    id: Annotated[str, typer.Option("--id", metavar="NAME", help="Id column.")],
    out: _Task,
    label: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Column of labels: writes labels.h5 of the common rows."),
    ] = None,
    task: Annotated[Task, typer.Option(help="What labels are: classes, or a number to predict.")] = Task.auto,
    positive: Annotated[
        str | None, typer.Option(metavar="VALUE", help="Label that is counted: class 1.")
    ] = None,
    weight: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Column of your table with sample weights."),
    ] = None,
    offset: Annotated[
        str | None, typer.Option(metavar="NAME", help="Column of your table that is added to scores.")
    ] = None,
    exposure: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Column of exposures of counts: the logarithm is the offset."),
    ] = None,
    like: Annotated[
        Path | None,
        typer.Option(
            metavar="LABELS.h5", readable=False, help="Label file whose classes to use, for test rows."
        ),
    ] = None,
    duplicates: Annotated[
        Duplicates,
        typer.Option(help="Repeated ids in the table: refuse, keep the first or last row, or drop all."),
    ] = Duplicates.refuse,
    separator: Annotated[
        str | None, typer.Option(metavar="CHAR", help="Separator between CSV cells (default: recognised).")
    ] = None,
    id_pattern: IdPattern = None,
    wait: _Wait = None,
) -> None:
    """Find the rows that you and all parties have, by private set intersection."""
    from fastadmm.between.align import ROWS, federate_align
    from fastadmm.data_tools.alignment import table_ids
    from fastadmm.data_tools.label_table import write_label_table
    from fastadmm.data_tools.tables import Layout, read_ids
    from fastadmm.errors import ConfigError
    from fastadmm.files.atomic import shown
    from fastadmm.judging.looks import say as look

    if like is not None and label is None:
        raise ConfigError("--like: belongs to --label")
    beside = {"weight": weight, "offset": offset, "exposure": exposure}
    if label is None and (given := [what for what, column in beside.items() if column is not None]):
        raise ConfigError(f"--{given[0]}: is kept beside the labels: name them with --label")
    if positive is not None and (like is not None or label is None):
        raise ConfigError("--positive: belongs to --label, and --like has it already")
    ids = table_ids(read_ids(table, id, Layout(separator)), id, duplicates.value, id_pattern)
    alignment, report = _waiting(wait, lambda: federate_align(config, ids, out, _say))
    say("\n".join([*report, f"{out / ROWS}: {len(alignment.ids)} rows, {alignment.digest}"]))
    if label is not None:
        write_label_table(
            out / "labels.h5",
            table,
            label,
            alignment,
            id=id,
            duplicates=duplicates.value,
            separator=separator,
            id_pattern=id_pattern,
            task=task.value,
            positive=positive,
            like=like,
            **beside,
        )
        say(f"{out / 'labels.h5'}: labels of these rows")
        say(look("label", place=shown(table), column=label))


@group.command()
def predict(
    config: _Config,
    run: _Run,
    rows: Annotated[
        Path,
        typer.Argument(
            metavar="ROWS", readable=False, help="Which rows: rows.json of 'federate align', or a label file."
        ),
    ],
    out: _Task,
    own: _Own = None,
    wait: _Wait = None,
) -> None:
    """Ask every party for its share of the rows' scores, and add them up."""
    from fastadmm.between.predict import PREDICTIONS, federate_predict

    predictions = _waiting(wait, lambda: federate_predict(config, run, rows, out, own=own, say=_say))
    say(f"{len(predictions.score)} predictions in {out / PREDICTIONS}")


@group.command()
def evaluate(
    config: _Config,
    run: _Run,
    test: Annotated[
        Path, typer.Argument(metavar="LABELS.h5", readable=False, help="Label file of the test rows.")
    ],
    out: _Task,
    own: _Own = None,
    wait: _Wait = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Measure the model on rows whose features the parties have."""
    from fastadmm.between.predict import federate_evaluate
    from fastadmm.cli.evaluate import print_evaluation

    found = _waiting(wait, lambda: federate_evaluate(config, run, test, out, own=own, say=_say))
    print_evaluation(found, as_json)


@group.command()
def infer(
    config: _Config,
    run: _Run,
    out: _Task,
    level: Level = 0.95,
    covariance: Covariance = "model",
    wait: _Wait = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Compute standard errors: each party learns its own, you get the tests and the fit."""
    from fastadmm.between.infer import federate_infer
    from fastadmm.cli.infer import print_inference

    found = _waiting(
        wait, lambda: federate_infer(config, run, out, covariance=covariance, level=level, say=_say)
    )
    print_inference(found, as_json)


@group.command()
def worth(
    config: _Config,
    test: Annotated[
        Path, typer.Argument(metavar="LABELS.h5", readable=False, help="Label file of the test rows.")
    ],
    out: _Task,
    metric: Annotated[
        str | None, typer.Option(help="Same as in 'fastadmm worth': auc, log_loss, r2 and others.")
    ] = None,
    label_party: Annotated[
        str | None, typer.Option(metavar="NAME", help="Party of the label holder. (default: the first)")
    ] = None,
    leave_one_out: Annotated[
        bool, typer.Option("--leave-one-out", help="Only 2 M + 2 coalitions, and no Shapley values.")
    ] = False,
    wait: _Wait = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Measure what each party adds: one run for each coalition, and one approval for all of them."""
    from fastadmm.cli.worth import print_worth
    from fastadmm.worth.federated import federate_worth

    more = {"exact": False} if leave_one_out else {}
    found = _waiting(
        wait,
        lambda: federate_worth(config, test, out, metric=metric, label_party=label_party, say=_say, **more),
    )
    print_worth(found, [], as_json)


@group.command()
def demo(
    keep: Annotated[
        Path | None,
        typer.Option(readable=False, metavar="DIR", help="Directory to create and keep, with every file."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Try it on this machine: a server, three sites, a party killed on the way."""
    import json
    from contextlib import nullcontext
    from tempfile import TemporaryDirectory

    from fastadmm.cli.federate_demo import made, run_federate_demo

    with TemporaryDirectory(prefix="fastadmm-") if keep is None else nullcontext(made(keep)) as directory:
        result = run_federate_demo(Path(directory), (lambda text: None) if as_json else say)
    if as_json:
        print(json.dumps(result, indent=2))
        _check_same(result)
        return
    say("")
    for name, path, sees in result["processes"]:
        say(f"{name:20} holds and sees: {sees}\n{'':20} files: {path}")
    metrics = result["metrics"]
    say(
        f"\n{result['message']}, over {result['jobs']} NVFlare jobs in {result['seconds']:.0f} s; weights "
        f"{'equal' if result['same'] else 'DIFFER FROM'} those of one process to the last bit, predictions "
        f"{'equal' if result['same_predictions'] else 'DIFFER FROM'} its predictions byte for byte\n"
        f"test patients: log loss {metrics['log_loss']:.4f}, accuracy {metrics['accuracy']:.4f}\n"
        "Here all processes run as you; between organisations each has a user of its own, "
        "which 'fastadmm federate check' verifies."
    )
    say("all processes have ended" + (f"; files: {keep}" if keep else "; all files are removed"))
    _check_same(result)


def _check_same(result: dict[str, Any]) -> None:
    from fastadmm.errors import FastadmmError

    for key, what in (("same", "weights"), ("same_predictions", "predictions")):
        if not result[key]:
            raise FastadmmError(f"federate demo: {what} differ from those of one process; please report it")

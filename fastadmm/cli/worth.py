"""``fastadmm worth``: what each party's data add to the test metric."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastadmm.cli import options as opt
from fastadmm.cli.app import app
from fastadmm.cli.terminal import grid, say, tell
from fastadmm.errors import ExitCode

if TYPE_CHECKING:
    from rich.table import Table

    from fastadmm.worth.coalitions import Worth


METRIC = opt.option(
    "auc, accuracy, log_loss, brier, r2, rmse, mae, deviance or d2. (default: auc, or r2 for regression)"
)
LABEL_PARTY = opt.option("Party that holds the labels. (default: the first)", metavar="NAME")


@opt.with_options(app.command(), "parties", lambda setting: setting if setting.key == "threads" else None)
def worth(
    run: Path = opt.argument("Run directory, trained without privacy.", metavar="RUN"),
    test: Path | None = opt.option(
        "Other rows, on which the model is measured and nothing learned. (default: the run's)",
        "--test",
        metavar="TEST.parts",
    ),
    metric: str | None = METRIC,
    label_party: str | None = LABEL_PARTY,
    *,
    options: dict[str, Any],
    quiet: bool = opt.QUIET,
    as_json: bool = opt.JSON,
) -> int:
    """Measure what each party adds to the test metric, with Shapley values."""
    from fastadmm.cli.display import make_display
    from fastadmm.worth.coalitions import coalitions_done, worth_of_run

    display = make_display(quiet)
    try:
        found = worth_of_run(
            run,
            test=test,
            metric=metric,
            label_party=label_party,
            threads=options.get("threads"),
            display=display,
        )
    finally:
        display.stop()
    if found is None:
        done = len(coalitions_done(run))
        say(f"fastadmm: interrupted after {done} coalitions; continue with the same command", error=True)
        return ExitCode.INTERRUPTED
    print_worth(found, as_json)
    return int(ExitCode.OK)


#: Columns of the table, with their headings and how their numbers are written.
_SHOWN = {
    "alone": ("alone", ".5f"),
    "without": ("without it", ".5f"),
    "adds_alone": ("adds alone", "+.5f"),
    "shapley": ("Shapley", "+.5f"),
    "adds_last": ("adds last", "+.5f"),
}


def print_worth(worth: Worth, as_json: bool) -> None:
    """Print the table and the sentences that go with it, or JSON."""
    tell(as_json, worth.to_json(), lambda: _parts(worth), allow_nan=False)


def _parts(worth: Worth) -> Iterator[Table | str]:
    """The table, and the sentences that go with it."""
    from fastadmm.figures.numbers import metric_label
    from fastadmm.worth.coalitions import HIGHER_IS_BETTER

    better = "larger" if HIGHER_IS_BETTER[worth.metric] else "smaller"
    what = f"test {metric_label(worth.metric)} ({better} is better)"
    title = f"{what}; what a party adds is positive where it helps"
    shown = {key: how for key, how in _SHOWN.items() if key != "shapley" or not worth.reason}
    rows = [
        [
            row["name"] + (" (labels)" if row["label_party"] else ""),
            *(f"{row[key]:{form}}" for key, (_, form) in shown.items()),
        ]
        for row in worth.table()
    ]
    yield grid(title, ["party", *(heading for heading, _ in shown.values())], rows)
    yield (
        f"nobody (intercept only) {worth.of(0):.5f}, all {worth.of(worth.everyone):.5f}; to "
        f"{worth.parties[worth.label_party]}, which holds the labels, joining adds {worth.joining_adds:+.5f}"
    )
    if worth.reason:
        yield worth.reason
    short = [c for c in worth.coalitions.values() if c.status not in ("converged", "stationary")]
    if short:
        yield f"{len(short)} of {len(worth.coalitions)} coalitions stopped at a limit before their gap"

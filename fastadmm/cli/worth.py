"""``fastadmm worth``: what each party's data add to the test metric."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fastadmm.cli.app import app
from fastadmm.cli.options import with_options
from fastadmm.cli.tables import show
from fastadmm.cli.terminal import note, redraws, say
from fastadmm.files.escapes import printable

if TYPE_CHECKING:
    from fastadmm.worth.coalitions import Worth


def _settings() -> Any:
    from fastadmm.settings.keys import SETTINGS

    return [SETTINGS["threads"]], ()


@app.command()
@with_options(_settings)
def worth(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", readable=False, help="Run directory, trained without privacy.")
    ],
    test: Annotated[
        Path | None,
        typer.Option("--test", readable=False, help="Labelled partition to measure on (default: the run's)."),
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="auc, accuracy, log_loss, brier, r2, rmse, mae, deviance or d2. "
            "(default: auc, or r2 for regression)"
        ),
    ] = None,
    label_party: Annotated[
        str | None, typer.Option(help="Party that holds the labels. (default: the first)")
    ] = None,
    leave_one_out: Annotated[
        bool,
        typer.Option("--leave-one-out", help="Skip Shapley values, so that many parties need few models."),
    ] = False,
    pooled: Annotated[
        bool,
        typer.Option("--pooled/--no-pooled", help="Also fit scikit-learn on all columns, for comparison."),
    ] = True,
    out: Annotated[
        list[Path] | None,
        typer.Option(
            "--out",
            "-o",
            readable=False,
            metavar="FILE",
            help="Figure to write: .svg, .png or .pdf; may be repeated.",
        ),
    ] = None,
    *,
    options: dict[str, Any],
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show only errors and the result.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> int:
    """Measure what each party adds to the test metric, with Shapley values."""

    from fastadmm.errors import ExitCode
    from fastadmm.figures.figure import check_picture, write_figure
    from fastadmm.reports.worth_plot import draw_worth, worth_height
    from fastadmm.worth.run import PARTIAL, worth_of_run

    for path in out or []:
        check_picture(path)  # before the work, not after it
    with _Progress(quiet) as display:
        found = worth_of_run(
            run,
            test=test,
            metric=metric,
            label_party=label_party,
            exact=False if leave_one_out else None,
            pooled=pooled,
            threads=options.get("threads"),
            display=display,
        )
    if found is None:
        done = len(list((run / PARTIAL).glob("[0-9]*.json")))
        say(f"fastadmm: interrupted after {done} coalitions; continue with the same command", error=True)
        return ExitCode.INTERRUPTED
    for path in out or []:
        write_figure(path, lambda figure: draw_worth(figure, found), height=worth_height(found))
    print_worth(found, out or [], as_json)
    return int(ExitCode.OK)


def print_worth(worth: Worth, written: list[Path], as_json: bool) -> None:
    """Print the table, or JSON; ``written`` are pictures that were drawn."""
    import json

    if as_json:
        print(json.dumps(worth.to_json(), indent=2, allow_nan=False))
    else:
        _show(worth, written)


class _Progress:
    """A bar on a terminal; elsewhere a line every few seconds, on standard error."""

    def __init__(self, quiet: bool) -> None:
        from rich.console import Console

        self.console = Console(stderr=True, highlight=False, soft_wrap=True)
        self.quiet = quiet
        self._bar: Any = None
        self._task: Any = None
        self._last = 0.0

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def note(self, text: str) -> None:
        """Show one line."""
        if not self.quiet:
            note(self.console, text)

    def coalition(self, names: list[str], coalition: Any, done: int, total: int) -> None:
        """Show that one coalition is done."""
        import time

        if self.quiet:
            return
        who = " + ".join(names[m] for m in coalition.members) or "nobody"
        name, value = next((n, v) for n, v in coalition.metrics.items() if v is not None)
        text = f"{done}/{total} coalitions · {who}: {name.replace('_', ' ')} {value:.5f}"
        if not redraws(sys.stderr):
            if time.monotonic() - self._last >= 5.0:
                self._last = time.monotonic()
                note(self.console, text)
            return
        if self._bar is None:
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

            self._bar = Progress(
                BarColumn(bar_width=20),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.description}", markup=False),
                console=self.console,
                transient=True,
            )
            self._task = self._bar.add_task(text, total=total)
            self._bar.start()
        self._bar.update(self._task, description=text, completed=done)


def _show(worth: Any, written: list[Path]) -> None:
    """The table, and the sentences that go with it."""
    from rich.table import Table
    from rich.text import Text

    from fastadmm.reports.plots import metric_label
    from fastadmm.worth.coalitions import HIGHER_IS_BETTER

    label = metric_label(worth.metric)
    better = "larger" if HIGHER_IS_BETTER[worth.metric] else "smaller"
    table = Table(title=f"test {label} ({better} is better); what a party adds is positive where it helps")
    table.add_column("party")
    shapley = worth.reason == ""
    for name in ("alone", "without it", "adds alone", *(("Shapley",) if shapley else ()), "adds last"):
        table.add_column(name, justify="right")
    for row in worth.table():
        name = printable(row["name"])
        cells = [f"{row['alone']:.5f}", f"{row['without']:.5f}", f"{row['adds_alone']:+.5f}"]
        cells += [f"{row['shapley']:+.5f}"] if shapley else []
        table.add_row(
            Text(name + (" (labels)" if row["label_party"] else "")), *cells, f"{row['adds_last']:+.5f}"
        )
    show(table)
    everyone, label_party = worth.everyone, 1 << worth.label_party
    say(
        f"nobody (intercept only) {worth.of(0):.5f}, all {worth.of(everyone):.5f}; to "
        f"{worth.parties[worth.label_party]}, which holds the labels, joining adds "
        f"{worth.better(everyone, label_party):+.5f}"
    )
    pooled = worth.pooled or {}
    if "metrics" in pooled and pooled["metrics"].get(worth.metric) is not None:
        say(f"pooled (scikit-learn) {pooled['metrics'][worth.metric]:.5f}")
    elif "reason" in pooled:
        say(f"pooled: none: {pooled['reason']}")
    if not shapley:
        say(worth.reason)
    short = [c for c in worth.coalitions.values() if c.status not in ("converged", "stationary")]
    if short:
        say(f"{len(short)} of {len(worth.coalitions)} coalitions stopped at a limit before their gap")
    for path in written:
        say(str(path))

"""Live progress on a terminal; elsewhere a line every few seconds, on standard error."""

from __future__ import annotations

import math
import time
from collections import deque
from typing import Any

from fastadmm.cli.terminal import note, redraws
from fastadmm.figures.progress import WINDOW, measure_of, progress_line
from fastadmm.solver.history import RoundRecord

#: Seconds between lines where there is no terminal.
_INTERVAL = 5.0


class _Bar:
    """A line that is drawn over on a terminal; elsewhere a line every few seconds."""

    def __init__(self, live: bool) -> None:
        from rich.console import Console

        self.console = Console(stderr=True, highlight=False, soft_wrap=True)
        self.live = live
        self._progress: Any = None
        self._task: Any = None
        self._last_line = 0.0

    def note(self, text: str) -> None:
        """Show one line."""
        note(self.console, text)

    def begin(self, text: str, total: float, *columns: Any) -> None:
        """Draw the bar, on a terminal."""
        if self.live:
            from rich.progress import Progress

            self._progress = Progress(*columns, console=self.console, transient=True)
            self._task = self._progress.add_task(text, total=total)
            self._progress.start()

    def due(self) -> bool:
        """Whether a line would be shown now."""
        return self._progress is not None or time.monotonic() - self._last_line >= _INTERVAL

    def show(self, text: str, completed: float) -> None:
        """Show how far it is, if that is due."""
        if self._progress is not None:
            self._progress.update(self._task, description=text, completed=completed)
        elif self.due():
            self._last_line = time.monotonic()
            note(self.console, text)

    def stop(self) -> None:
        """Remove the bar."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


class ProgressDisplay(_Bar):
    """Shows notes and rounds."""

    def __init__(self, live: bool) -> None:
        super().__init__(live)
        self._recent: deque[RoundRecord] = deque(maxlen=WINDOW)
        self._target = 0.0
        self._begin_gap: float | None = None

    def start(self, target: float, max_rounds: int) -> None:
        """Begin the rounds."""
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._target = target
        self._last_line = time.monotonic()
        what = TextColumn("{task.description}", markup=False)
        self.begin(
            "preparing (factorising)",
            1.0,
            SpinnerColumn(),
            what,
            BarColumn(bar_width=10),
            TimeElapsedColumn(),
        )

    def round(self, record: RoundRecord) -> None:
        """Show a round."""
        self._recent.append(record)
        if self.due():
            self.show(self._text(56 if self._progress is not None else 80), self._done(record))

    def stop(self) -> None:
        """End the rounds."""
        super().stop()
        if self._recent:
            note(self.console, self._text(80))

    def _text(self, width: int) -> str:
        return progress_line(self._recent, self._target, min(width, self.console.width))

    def _done(self, record: RoundRecord) -> float:
        """Share of the way to the target, on a logarithmic scale."""
        measure = measure_of(record)
        if not math.isfinite(measure) or self._target <= 0 or measure <= 0:
            return 0.0
        if self._begin_gap is None:
            self._begin_gap = max(measure, 10 * self._target)
        way = math.log(self._begin_gap / self._target)
        return min(1.0, max(0.0, 1.0 - math.log(measure / self._target) / way))


class OwnerRounds(_Bar):
    """Shows rounds of owners."""

    def start(self, rounds: int) -> None:
        """Begin the rounds."""
        self._rounds, self._last_line = rounds, time.monotonic()
        self.begin("asking", rounds)

    def round(self, record: dict[str, Any]) -> None:
        """Show a round."""
        text = (
            f"round {record['round']} of {self._rounds} · gradient {record['gradient_norm']:.3g} · "
            f"noise {record['noise']:.3g}"
        )
        if "objective" in record:
            text += f" · objective {record['objective']:.6g} (not private)"
        self.show(text, record["round"])


class Coalitions(_Bar):
    """Shows coalitions, until it is left."""

    def __enter__(self) -> Coalitions:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def coalition(self, names: list[str], coalition: Any, done: int, total: int) -> None:
        """Show that one coalition is done."""
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        who = " + ".join(names[m] for m in coalition.members) or "nobody"
        name, value = next((n, v) for n, v in coalition.metrics.items() if v is not None)
        text = f"{done}/{total} coalitions · {who}: {name.replace('_', ' ')} {value:.5f}"
        if self._progress is None:
            what = TextColumn("{task.description}", markup=False)
            self.begin(text, total, BarColumn(bar_width=20), TimeElapsedColumn(), TimeRemainingColumn(), what)
        self.show(text, done)


def make_display(quiet: bool, of: Any = ProgressDisplay) -> Any:
    """The display that fits where output goes; a silent one on request."""
    import sys

    if quiet:
        from fastadmm.runs.display import Silent

        return Silent()
    return of(live=redraws(sys.stderr))

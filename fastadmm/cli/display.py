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


class ProgressDisplay:
    """Shows notes and rounds."""

    def __init__(self, live: bool) -> None:
        from rich.console import Console

        self.console = Console(stderr=True, highlight=False, soft_wrap=True)
        self.live = live
        self._progress: Any = None
        self._task: Any = None
        self._recent: deque[RoundRecord] = deque(maxlen=WINDOW)
        self._last_line = 0.0
        self._target = 0.0
        self._begin_gap: float | None = None

    def note(self, text: str) -> None:
        """Show one line."""
        note(self.console, text)

    def start(self, target: float, max_rounds: int) -> None:
        """Begin the rounds."""
        self._target = target
        self._last_line = time.monotonic()
        if self.live:
            from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

            self._progress = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=10),
                TimeElapsedColumn(),
                console=self.console,
                transient=True,
            )
            self._task = self._progress.add_task("preparing (factorising)", total=1.0)
            self._progress.start()

    def round(self, record: RoundRecord) -> None:
        """Show a round."""
        self._recent.append(record)
        if self._progress is not None:
            self._progress.update(self._task, description=self._text(56), completed=self._done(record))
        elif time.monotonic() - self._last_line >= _INTERVAL:
            self._last_line = time.monotonic()
            note(self.console, self._text(80))

    def stop(self) -> None:
        """End the rounds."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
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


def make_display(quiet: bool) -> Any:
    """The display that fits where output goes; a silent one on request."""
    import sys

    if quiet:
        from fastadmm.runs.display import Silent

        return Silent()
    return ProgressDisplay(live=redraws(sys.stderr))

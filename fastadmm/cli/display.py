"""Live progress on a terminal; elsewhere a line every few seconds, on standard error."""

from __future__ import annotations

import math
import time
from collections import deque
from typing import Any

from fastadmm.solver.history import RoundRecord

__all__ = ["ProgressDisplay", "make_display", "seconds_left"]

#: Seconds between lines where there is no terminal.
_INTERVAL = 5.0

#: Rounds over which the rate of convergence is estimated.
_WINDOW = 30


def _measure(record: RoundRecord) -> float:
    """What the run stops by: the gap, or the stationarity of a problem without one."""
    return record.gap if record.stationarity is None else record.stationarity


def seconds_left(records: deque[RoundRecord], target: float) -> float | None:
    """Estimate the time until gap or stationarity reaches the target, from the slope of its logarithm.

    Parameters
    ----------
    records : deque of RoundRecord
        Recent rounds.
    target : float
        Relative gap, or stationarity, wanted.

    Returns
    -------
    float or None
        Seconds; None while it is not falling or not finite.
    """
    if len(records) < 5 or target <= 0:
        return None
    first, last = records[0], records[-1]
    before, now = _measure(first), _measure(last)
    if not (math.isfinite(before) and 0 < now < before) or last.seconds <= first.seconds:
        return None
    rate = math.log(before / now) / (last.seconds - first.seconds)
    return max(0.0, math.log(now / target) / rate)


class ProgressDisplay:
    """Shows notes and rounds.

    Parameters
    ----------
    live : bool
        Redraw one line on the terminal, else print a line now and then.
    """

    def __init__(self, live: bool) -> None:
        from rich.console import Console

        self.console = Console(stderr=True, highlight=False, soft_wrap=True)
        self.live = live
        self._progress: Any = None
        self._task: Any = None
        self._recent: deque[RoundRecord] = deque(maxlen=_WINDOW)
        self._last_line = 0.0
        self._target = 0.0
        self._begin_gap: float | None = None

    def note(self, text: str) -> None:
        """Show one line."""
        self.console.print(text, style="dim" if self.live else None, markup=False)

    def start(self, target: float, max_rounds: int) -> None:
        """Begin the rounds."""
        self._target = target
        self._last_line = time.monotonic()
        if self.live:
            from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

            self._progress = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=20),
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
            self._progress.update(self._task, description=self._text(record), completed=self._done(record))
        elif time.monotonic() - self._last_line >= _INTERVAL:
            self._last_line = time.monotonic()
            self.console.print(self._text(record), markup=False)

    def stop(self) -> None:
        """End the rounds."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
        if self._recent:
            self.console.print(self._text(self._recent[-1]), markup=False)

    def _text(self, record: RoundRecord) -> str:
        left = seconds_left(self._recent, self._target)
        measure = "gap" if record.stationarity is None else "stationarity"
        # A private run has no gap, and the first rounds may have none yet.
        parts = [f"round {record.round}", f"objective {record.objective:.9f}"] + [
            f"{name} {value:{digits}}"
            for name, value, digits in (
                (measure, _measure(record), ".2e"),
                ("primal", record.primal_residual, ".1e"),
                ("dual", record.dual_residual, ".1e"),
            )
            if math.isfinite(value)
        ]
        if record.test:
            name = next(iter(record.test))
            value = record.test[name]
            if value is not None:
                parts.append(f"test {name.replace('_', ' ')} {value:.5f}")
        if math.inf > _measure(record) > self._target > 0:
            parts.append(f"ETA {left:.0f} s" if left is not None else "ETA –")
        return " · ".join(parts)

    def _done(self, record: RoundRecord) -> float:
        """Share of the way to the target, on a logarithmic scale."""
        measure = _measure(record)
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
    return ProgressDisplay(live=sys.stderr.isatty())

"""The progress of a fit as one line of at most 80 columns, and a callback that shows it."""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from contextlib import ExitStack

from fastadmm.figures.numbers import format_duration
from fastadmm.kernels.compilation import watching
from fastadmm.solver.history import RoundRecord

#: Rounds over which the rate of convergence is estimated.
WINDOW = 30


def measure_of(record: RoundRecord) -> float:
    """What a fit stops by: the gap, or the stationarity of a problem without one."""
    return record.gap if record.stationarity is None else record.stationarity


def seconds_left(records: deque[RoundRecord], target: float) -> float | None:
    """Time until the target by the slope of its measure's logarithm; None while that does not fall."""
    if len(records) < 5 or target <= 0:
        return None
    first, last = records[0], records[-1]
    before, now = measure_of(first), measure_of(last)
    if not (math.isfinite(before) and 0 < now < before) or last.seconds <= first.seconds:
        return None
    rate = math.log(before / now) / (last.seconds - first.seconds)
    return max(0.0, math.log(now / target) / rate)


def progress_line(records: deque[RoundRecord], target: float, width: int = 80) -> str:
    """The state of a fit, most important first, cut at a part's end to the width."""
    record = records[-1]
    value = measure_of(record)
    parts = [f"round {record.round}"]
    if math.inf > value > target > 0:
        left = seconds_left(records, target)
        parts.insert(0, f"ETA {format_duration(None if left is None else round(left))}")
    # A private run has no gap, and the first rounds may have none yet.
    if math.isfinite(value):
        parts.append(f"{'gap' if record.stationarity is None else 'stationarity'} {value:.1e}")
    if record.exchanges:
        parts.append(f"{record.exchanges} exchanges")
    for name, test in list((record.test or {}).items())[:1]:
        parts += [] if test is None else [f"test {name.replace('_', ' ')} {test:.4f}"]
    parts.append(f"objective {record.objective:.6g}")
    line = parts[0]
    for part in parts[1:]:
        if len(line) + len(part) + 3 <= width:
            line += f" · {part}"
    return line


class Progress:
    """A callback that shows a fit on one line, in a terminal and in a notebook: ``callbacks=Progress()``.

    Elsewhere, as in a log, a line comes every five seconds. If kernels have to be compiled first, which takes
    some seconds once after an installation, it says so.
    """

    def __init__(self) -> None:
        self._target = 1e-6
        self._records: deque[RoundRecord] = deque(maxlen=WINDOW)
        self._shown = -math.inf
        self._compiling = ExitStack()
        self._compiling.enter_context(watching(self._say))

    def _say(self, kernel: str, seconds: float | None) -> None:
        self._compiling.close()  # once
        print("fastadmm: compiling kernels, once (a few seconds)", file=sys.stderr, flush=True)

    def begin(self, target: float) -> None:
        """A fit begins, and will say when it ends.

        Parameters
        ----------
        target : float
            Gap or stationarity that it stops at.
        """
        self._records.clear()
        self._target = target

    def end(self) -> None:
        """The fit has ended, with the round that was called last."""
        if self._records:
            self._show(last=True)

    def __call__(self, record: RoundRecord) -> None:
        """Show a round.

        Parameters
        ----------
        record : RoundRecord
        """
        self._compiling.close()
        if self._records and record.round <= self._records[-1].round:  # another fit
            self._records.clear()
        self._records.append(record)
        if time.monotonic() - self._shown >= (0.2 if _is_redrawn() else 5.0):
            self._show()

    def _show(self, last: bool = False) -> None:
        self._shown = time.monotonic()
        line = progress_line(self._records, self._target, 79)
        if _is_redrawn():
            print(f"\r{line:<79}", end="\n" if last else "", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)


def _is_redrawn() -> bool:
    """Whether a line is replaced by the next one where it is shown: a terminal or a notebook."""
    return sys.stderr.isatty() or type(sys.stderr).__module__.startswith("ipykernel")

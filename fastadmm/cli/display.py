"""Live progress on a terminal; elsewhere a line every few seconds, on standard error."""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import Any

from fastadmm.cli.terminal import draw_over, redraws, say
from fastadmm.figures.progress import WINDOW, progress_line

#: Seconds between lines, where one is drawn over the other and elsewhere.
_DRAWN, _PRINTED = 0.1, 5.0


class ProgressDisplay:
    """Shows notes, and rounds in a line that is drawn over on a terminal; elsewhere one every few seconds."""

    def __init__(self, live: bool) -> None:
        self.live, self.last = live, ""
        self.start()

    def start(self, *limits: Any) -> None:
        """Begin the rounds: the first line comes at once on a terminal, elsewhere after some seconds."""
        self.limits, self.recent = limits, deque[Any](maxlen=WINDOW)
        self._shown = 0.0 if self.live else time.monotonic()

    def round(self, record: Any) -> None:
        """Show a round, if that is due: a record, or the line itself."""
        self.recent.append(record)
        told = record if isinstance(record, str) else progress_line(self.recent, self.limits[0], 80)
        self.last, now = told, time.monotonic()
        if now - self._shown < (_DRAWN if self.live else _PRINTED):
            return
        self._shown = now
        (draw_over if self.live else self.note)(self.last)

    def note(self, text: str) -> None:
        """Show a line that stays."""
        self._clear()
        say(text, error=True)

    def stop(self) -> None:
        """End the rounds."""
        if self.last:
            self.note(self.last)
        self.last = ""

    def _clear(self) -> None:
        if self.live and self.last:
            draw_over("")


def make_display(quiet: bool) -> Any:
    """The display that fits where output goes; a silent one on request."""
    if quiet:
        from fastadmm.runs.folder import Display

        return Display()
    return ProgressDisplay(live=redraws(sys.stderr))

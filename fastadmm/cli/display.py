"""Live progress on a terminal; elsewhere a line every few seconds, on standard error."""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import Any

from fastadmm.cli.terminal import draw_over, redraws, say
from fastadmm.figures.progress import WINDOW, progress_line
from fastadmm.solver.history import RoundRecord

#: Seconds between lines, where one is drawn over the other and elsewhere.
_DRAWN, _PRINTED = 0.1, 5.0


class _Line:
    """A line that is drawn over on a terminal; elsewhere one every few seconds."""

    def __init__(self, live: bool) -> None:
        self.live = live
        self._last = ""
        self._begin()

    def _begin(self) -> None:
        """The first line comes at once on a terminal, elsewhere after some seconds."""
        self._shown = 0.0 if self.live else time.monotonic()

    def note(self, text: str) -> None:
        """Show a line that stays."""
        self._clear()
        say(text, dim=True, error=True)

    def draw(self, text: str) -> None:
        """Show how far it is, if that is due."""
        self._last = text
        now = time.monotonic()
        if now - self._shown < (_DRAWN if self.live else _PRINTED):
            return
        self._shown = now
        if self.live:
            draw_over(text)
        else:
            self.note(text)

    def stop(self) -> None:
        """It is over: the last line goes, or stays."""
        self._clear()
        self._last = ""

    def _clear(self) -> None:
        if self.live and self._last:
            draw_over("")


class ProgressDisplay(_Line):
    """Shows notes and rounds."""

    def start(self, target: float, max_rounds: int) -> None:
        """Begin the rounds."""
        self._recent: deque[RoundRecord] = deque(maxlen=WINDOW)
        self._target = target
        self._begin()

    def round(self, record: RoundRecord) -> None:
        """Show a round."""
        self._recent.append(record)
        self.draw(progress_line(self._recent, self._target, 80))

    def stop(self) -> None:
        """End the rounds; the last one stays."""
        if self._last:
            self.note(self._last)
            self._last = ""


class OwnerRounds(_Line):
    """Shows rounds of owners."""

    def start(self, rounds: int) -> None:
        """Begin the rounds."""
        self._rounds = rounds
        self._begin()

    def round(self, record: dict[str, Any]) -> None:
        """Show a round."""
        gradient, noise = f"gradient {record['gradient_norm']:.3g}", f"noise {record['noise']:.3g}"
        self.draw(f"round {record['round']} of {self._rounds} · {gradient} · {noise}")


class Coalitions(_Line):
    """Shows coalitions."""

    def coalition(self, names: list[str], coalition: Any, done: int, total: int) -> None:
        """Show that one coalition is done."""
        who = " + ".join(names[m] for m in coalition.members) or "nobody"
        self.draw(f"{done}/{total} coalitions · {who}")


def make_display(quiet: bool, of: Any = ProgressDisplay) -> Any:
    """The display that fits where output goes; a silent one on request."""
    if quiet:
        from fastadmm.runs.folder import Display

        return Display()
    return of(live=redraws(sys.stderr))

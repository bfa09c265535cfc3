"""Live progress on a terminal; elsewhere a line every few seconds, on standard error."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from fastadmm.cli.terminal import draw_over, redraws, say
from fastadmm.figures.progress import WINDOW, progress_line

#: Seconds between lines, where one is drawn over the other and elsewhere.
_DRAWN, _PRINTED = 0.1, 5.0


class ProgressDisplay:
    """Shows notes, and rounds in a line that is drawn over on a terminal; elsewhere one every few seconds."""

    lasting = True  # whether the last round stays at the end

    def __init__(self, live: bool) -> None:
        self.live, self.last = live, ""
        self.start()

    def start(self, *limits: Any) -> None:
        """Begin the rounds: the first line comes at once on a terminal, elsewhere after some seconds."""
        self.limits, self.recent = limits, deque[Any](maxlen=WINDOW)
        self._shown = 0.0 if self.live else time.monotonic()

    def line(self, record: Any) -> str:
        """What is shown of a round."""
        return progress_line(self.recent, self.limits[0], 80)

    def round(self, record: Any) -> None:
        """Show a round, if that is due."""
        self.recent.append(record)
        self.last, now = self.line(record), time.monotonic()
        if now - self._shown < (_DRAWN if self.live else _PRINTED):
            return
        self._shown = now
        (draw_over if self.live else self.note)(self.last)

    def note(self, text: str) -> None:
        """Show a line that stays."""
        self._clear()
        say(text, dim=True, error=True)

    def stop(self) -> None:
        """End the rounds."""
        if self.last and self.lasting:
            self.note(self.last)
        else:
            self._clear()
        self.last = ""

    def _clear(self) -> None:
        if self.live and self.last:
            draw_over("")


class OwnerRounds(ProgressDisplay):
    """Shows rounds of owners; the last one goes."""

    lasting = False

    def line(self, record: dict[str, Any]) -> str:
        """What is shown of a round."""
        gradient, noise = f"gradient {record['gradient_norm']:.3g}", f"noise {record['noise']:.3g}"
        return f"round {record['round']} of {self.limits[0]} · {gradient} · {noise}"


class Coalitions(ProgressDisplay):
    """Shows coalitions that are done; the last one goes."""

    lasting = False

    def line(self, record: tuple[list[str], Any, int, int]) -> str:
        """Who is in the coalition, and how many are done."""
        names, coalition, done, total = record
        who = " + ".join(names[m] for m in coalition.members) or "nobody"
        return f"{done}/{total} coalitions · {who}"

    def coalition(self, *done: Any) -> None:
        """Show that one coalition is done."""
        self.round(done)


def make_display(quiet: bool, of: Callable[..., Any] = ProgressDisplay) -> Any:
    """The display that fits where output goes; a silent one on request."""
    if quiet:
        from fastadmm.runs.folder import Display

        return Display()
    return of(live=redraws(sys.stderr))

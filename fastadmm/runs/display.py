"""Where a run shows what it does, and how it is told to end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol


class Notes(Protocol):
    """Where work that has no rounds shows what it does."""

    def note(self, text: str) -> None:
        """Show one line."""


class Display(Notes, Protocol):
    """Where a run shows what it does."""

    def start(self, *limits: Any, **named: Any) -> None:
        """Rounds begin: the target, and the most of them; of owners the most alone."""

    def round(self, record: Any) -> None:
        """One round is done."""

    def stop(self) -> None:
        """Rounds are over."""


class Silent:
    """A display that shows nothing."""

    def _nothing(self, *what: Any) -> None:
        """Show nothing."""

    note = start = round = stop = coalition = _nothing


@contextmanager
def stop_on_signal() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C, SIGTERM and SIGHUP end the run after the current round; a second one ends it at once."""
    received = 0

    def handler(number: int, frame: FrameType | None) -> None:
        nonlocal received
        received += 1
        if received > 1:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # signals belong to the main thread
        return
    numbers = [signal.SIGINT, signal.SIGTERM]
    # Under nohup it is ignored, and stays so.
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    old = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield lambda: received > 0
    finally:
        for number, previous in old.items():
            signal.signal(number, previous)

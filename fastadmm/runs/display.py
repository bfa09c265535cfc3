"""Where a run shows what it does, and how it is told to end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Display:
    """Where a run shows what it does; of itself it shows nothing."""

    def _nothing(self, *what: Any) -> None:
        """Show nothing."""

    note = _nothing  # one line
    start = _nothing  # rounds begin: the target, and the most of them; of owners the most alone
    round = _nothing  # one round is done
    stop = _nothing  # rounds are over
    coalition = _nothing  # names of all parties, a coalition that is done, and how many are of how many


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

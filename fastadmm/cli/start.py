"""Entry point of the console script: from its first moment a signal ends the program without a traceback."""

from __future__ import annotations

import os
import signal
from types import FrameType

__all__ = ["main"]


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(130)


def main() -> None:
    """Run the command line."""
    # Importing it takes some tenths of a second, in which there is nothing to clean up.
    signal.signal(signal.SIGINT, _leave)
    from fastadmm.cli.app import main as run

    # From here on every signal that asks for an end raises, so that what is half-written goes. Rounds have
    # handlers of their own; a signal that is ignored, as under nohup, stays so.
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    run()

"""Entry point of the console script: from its first moment a signal ends the program without a traceback."""

from __future__ import annotations

import gc
import os
import signal
import sys
from types import FrameType

__all__ = ["listen", "main"]

#: Objects until the collector looks at them, and its rounds until it looks at older ones. By Python's own
#: numbers it goes through all that the compiler holds several times a run, for a twentieth of a second each.
_COLLECTIONS = 10_000, 20, 100


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(130)


def listen() -> None:
    """Let every signal that asks for an end raise, so that what is half-written goes.

    Rounds have handlers of their own. A signal that is ignored, as under nohup, stays so.
    """
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    usual = sys.unraisablehook

    def again(unraisable: sys.UnraisableHookArgs) -> None:
        # Python drops what is raised while it clears an object away: there the signal comes once more, later.
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            import threading
            from _thread import interrupt_main

            threading.Timer(0.01, interrupt_main).start()
        else:
            usual(unraisable)

    sys.unraisablehook = again


def main() -> None:
    """Run the command line."""
    gc.set_threshold(*_COLLECTIONS)
    # Importing it takes some tenths of a second, in which there is nothing to clean up.
    signal.signal(signal.SIGINT, _leave)
    from fastadmm.cli.app import main as run

    listen()
    run()

"""Entry point of the console script: from its first moment a signal ends the program without a traceback."""

from __future__ import annotations

import errno
import gc
import io
import os
import signal
import sys
import warnings
from types import FrameType
from typing import Any

#: Objects until the collector looks at them, and its rounds until it looks at older ones. By Python's own
#: numbers it goes through all that the compiler holds several times a run, for a twentieth of a second each.
_COLLECTIONS = 10_000, 20, 100


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(130)


def listen() -> None:
    """Let every signal that asks for an end raise, unless it is ignored: what is half-written goes."""
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


class _Lasting(io.FileIO):
    """Standard output or error: what nobody reads any more, or has no room, is lost, but never the work."""

    lost: OSError | None = None

    def write(self, data: Any) -> int:
        if self.lost is None:
            try:
                return super().write(data) or 0
            except OSError as error:
                self.lost = error
        return len(data)


def _stream(descriptor: int, old: Any) -> io.TextIOWrapper:
    """A text stream that writes what its encoding lacks as escapes."""
    file = io.BufferedWriter(_Lasting(descriptor, "wb", closefd=False))
    lines = descriptor == 2 or file.isatty()
    return io.TextIOWrapper(file, getattr(old, "encoding", "utf-8"), "backslashreplace", line_buffering=lines)


def _lasting_streams() -> io.TextIOWrapper:
    """Let no command end because of its standard streams; in the place of closed ones would come files."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 (open to the end)
    output, sys.stderr = _stream(1, sys.stdout), _stream(2, sys.stderr)
    sys.stdout = output
    return output


#: Variables of which an imported library makes a number, with the least; others it takes by its default.
_NUMBERS = {"NUMBA_NUM_THREADS": 1, "SOURCE_DATE_EPOCH": 0}


def _refuse_surroundings() -> None:
    """End with one line where no command could work."""
    problem, code = "", 6
    try:
        os.getcwd()
    except OSError:
        problem = "the working directory is gone; change to another one"
    for name, least in _NUMBERS.items():
        value = os.environ.get(name, "1")
        if not value.isdecimal() or int(value) < least:
            problem, code = f"{name}={value!a}: not a whole number from {least}; unset it, or correct it", 5
    if problem:
        sys.stderr.write(f"fastadmm: error: {problem}\n")
        sys.exit(code)


def main() -> None:
    """Run the command line; the exit code is 0 only if what it printed has arrived, or nobody wanted it."""
    gc.set_threshold(*_COLLECTIONS)
    # Importing it takes some tenths of a second, in which there is nothing to clean up.
    signal.signal(signal.SIGINT, _leave)
    output = _lasting_streams()
    _refuse_surroundings()
    # numba's words on a value that it cannot read hold a traceback; it goes on with its default.
    warnings.filterwarnings("ignore", "Environment variable 'NUMBA_", RuntimeWarning)
    from fastadmm.cli.app import main as run

    listen()
    try:
        run()
    except SystemExit as end:
        output.flush()
        lost = output.buffer.raw.lost  # type: ignore[attr-defined]
        if end.code or lost is None or lost.errno == errno.EPIPE:
            raise
        reason = os.strerror(lost.errno)
        sys.stderr.write(f"fastadmm: error: standard output: cannot write: {reason}; write elsewhere\n")
        sys.exit(6)

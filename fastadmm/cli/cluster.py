"""Training whose rows several workers share: what each of their processes does on the command line."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastadmm.cli.terminal import say
from fastadmm.cluster.comm import Comm
from fastadmm.errors import ExitCode, FastadmmError

__all__ = ["train_shared"]


def train_shared(
    settings: Any, run: Path, force: bool, log_to: list[str], display: Any
) -> tuple[dict[str, Any], bool]:
    """Train in this process and those that were started with it.

    Parameters
    ----------
    settings : RunConfig
    run : Path
        Run directory.
    force : bool
    log_to : list of str
    display : Display
        As options of ``fastadmm train``: they are rank 0's.

    Returns
    -------
    result : dict
        The content of ``result.json``; elsewhere than on rank 0 the status alone.
    told : bool
        Whether rank 0 tells it.
    """
    from fastadmm.cluster.mpi import MpiComm
    from fastadmm.runs.shared import follow_run, start_shared
    from fastadmm.tracking import tracked

    comm = MpiComm()
    if comm.rank:
        return {"status": _followed(comm, lambda: follow_run(settings, comm))}, True
    with _ending_together(comm), tracked(run, log_to, display) as tracking:
        result = tracking.finish(start_shared(settings, run, comm, force=force, display=tracking))
    return result, False


def _followed(comm: Comm, work: Callable[[], str]) -> str:
    """What another rank than 0 ends with: rank 0 hears signals, and says what all of them found."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    try:
        with _ending_together(comm):
            return work()
    except FastadmmError as error:
        sys.exit(int(error.exit_code))


@contextmanager
def _ending_together(comm: Comm) -> Iterator[None]:
    """Where only this worker fails, in the middle of something, end the others too."""
    try:
        yield
    except BaseException as error:
        if not comm.apart or comm.size == 1:
            raise
        code = ExitCode.INTERRUPTED if isinstance(error, KeyboardInterrupt) else ExitCode.INTERNAL
        if isinstance(error, FastadmmError):
            say(f"fastadmm: error: rank {comm.rank}: {error}", error=True)
            code = error.exit_code
        elif not isinstance(error, KeyboardInterrupt):
            sys.excepthook(type(error), error, error.__traceback__)
        sys.stderr.flush()
        comm.abort(int(code))
        os._exit(int(code))

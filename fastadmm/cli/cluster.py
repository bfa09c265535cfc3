"""Training whose rows several workers share: what each of their processes does on the command line."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastadmm.cli.train import exit_code_of, report_result
from fastadmm.cluster.comm import Comm
from fastadmm.errors import ExitCode, FastadmmError
from fastadmm.settings.run import RunConfig

__all__ = ["train_shared"]


def train_shared(
    config: RunConfig, run: Path, force: bool, log_to: list[str], display: Any, as_json: bool
) -> int:
    """Train in this process and those that were started with it; the exit code.

    Parameters
    ----------
    config : RunConfig
    run : Path
        Run directory.
    force : bool
    log_to : list of str
    display : Display
    as_json : bool
        As options of ``fastadmm train``: they are rank 0's.
    """
    from fastadmm.cluster.mpi import MpiComm
    from fastadmm.runs.shared import follow_run, start_shared
    from fastadmm.tracking import tracked

    comm = MpiComm()
    if comm.rank:
        return _followed(comm, lambda: follow_run(config, comm))
    with _ending_together(comm), tracked(run, log_to, display) as tracking:
        result = tracking.finish(start_shared(config, run, comm, force=force, display=tracking))
    return report_result(result, run, as_json)


def _followed(comm: Comm, work: Any) -> int:
    """What another rank than 0 ends with: rank 0 hears signals, and says what all of them found."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    try:
        with _ending_together(comm):
            status = work()
    except FastadmmError as error:
        return int(error.exit_code)
    return exit_code_of(status) if status else int(ExitCode.OK)


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
            print(f"fastadmm: error: rank {comm.rank}: {error}", file=sys.stderr)
            code = error.exit_code
        elif not isinstance(error, KeyboardInterrupt):
            sys.excepthook(type(error), error, error.__traceback__)
        sys.stderr.flush()
        comm.abort(int(code))
        os._exit(int(code))

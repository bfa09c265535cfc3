"""Runs whose rows several workers share: what each of their processes does on the command line."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import typer

from fastadmm.cli.terminal import say
from fastadmm.cluster.comm import Comm, MpiComm, launched
from fastadmm.errors import ConfigError, ExitCode, FastadmmError

_T = TypeVar("_T")


@contextmanager
def workers(cluster: str | None, comm: Comm | None = None) -> Iterator[Comm | None]:
    """The processes that were started with this one; where only this one fails, it ends the others."""
    if cluster != "mpi" or comm is not None:
        yield comm
        return
    comm = MpiComm()
    with _ending_together(comm):
        yield comm


def agreed(comm: Comm | None, make: Callable[[], _T]) -> _T:
    """What a function gives in this process, once it has given something in all of them."""
    if comm is None:
        return make()
    try:
        return comm.agreed(make)
    except FastadmmError as error:
        if comm.rank == 0:
            raise
        raise typer.Exit(int(error.exit_code)) from None


def on_cluster(lead: Callable[[Comm | None], int], cluster: str, comm: Comm | None) -> int:
    """Train in this process and in those that were started with it."""
    with workers(cluster, comm) as met:
        return _followed(met) if met is not None and met.rank else lead(met)


def _followed(comm: Comm) -> int:
    """What another rank than 0 does: rank 0 hears signals, and says what all of them found."""
    from fastadmm.runs.train import exit_code_of, follow_run

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    try:
        return exit_code_of(follow_run(comm))
    except FastadmmError as error:
        if comm.apart:
            raise
        return int(error.exit_code)


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


def refuse_many(given: str | None, cluster: str) -> None:
    """Refuse processes that were started together and would each do the same; rank 0 alone says so."""
    rank, size = launched()
    if size == 1 or given is not None or cluster != "none":
        return
    if rank:
        raise typer.Exit(int(ExitCode.CONFIG))
    raise ConfigError(
        f"cluster: {size} processes were started together, and each would train by itself: add "
        "--cluster mpi, or --cluster none if that is meant"
    )

"""Runs on the workers of a Dask cluster: a task on each, which the client watches and starts again."""

from __future__ import annotations

import pickle
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fastadmm.errors import ConfigError, FastadmmError, StorageError
from fastadmm.runs.display import Display, Silent
from fastadmm.version import __version__

#: Seconds in which a scheduler has to answer.
_PATIENCE = 10.0

#: Seconds between looks at the workers.
_LOOK = 0.5

#: Errors of a task that only say that a worker is gone.
_OF_OTHERS = ("LostWorkerError", "KilledWorker", "FutureCancelledError", "NoValidWorkerError")

#: Seconds that tasks have to notice that a worker is lost.
_NOTICE = 120.0


def dask_run(
    cluster: str,
    begin: Callable[..., dict[str, Any]],
    again: Callable[..., dict[str, Any]],
    run: Path,
    retry: int,
    display: Display | None = None,
) -> dict[str, Any]:
    """Train on all workers of a Dask cluster."""
    try:
        from distributed import Client
    except ImportError:
        raise ConfigError("cluster: distributed is not installed: pip install 'fastadmm[dask]'") from None
    address = cluster.replace("dask://", "tcp://", 1)
    try:
        client = Client(address, timeout=_PATIENCE, set_as_default=False)
    except (OSError, ValueError) as error:
        raise StorageError(f"cluster: no Dask scheduler at {address}: {type(error).__name__}") from None
    display = display or Silent()
    with client:
        while True:
            try:
                return _attempt(client, begin, display)
            except _Lost as lost:
                if retry == 0:
                    raise StorageError(f"{lost}; go on with: fastadmm resume {run}") from None
                retry -= 1
                display.note(f"{lost}; starting again from the last checkpoint")
                if (run / "run.toml").exists():
                    begin = again


class _Lost(StorageError):
    """A worker is gone."""


def _attempt(client: Any, lead: Callable[..., dict[str, Any]], display: Display) -> dict[str, Any]:
    addresses = _workers(client)
    name = f"fastadmm-{secrets.token_hex(8)}"
    display.note(f"{len(addresses)} Dask worker(s)")
    client.subscribe_topic(name, lambda event: _show(display, event[1]))
    tasks = [
        client.submit(_task, name, k, addresses, lead if k == 0 else None, workers=[address], pure=False)
        for k, address in enumerate(addresses)
    ]
    try:
        found = _watched(client, tasks, addresses)
    finally:
        client.unsubscribe_topic(name)
        client.cancel(tasks)
    _raise_mistake(found)
    result: dict[str, Any] = found[0][0]
    return result


def _workers(client: Any) -> list[str]:
    """Addresses of the workers, by rank; all of them have this version of the program."""

    def version(dask_worker: Any) -> str | None:  # travels as it is: a worker may have nothing of ours
        try:
            from fastadmm.cluster.dask import letters_of
            from fastadmm.version import __version__
        except ImportError:
            return None
        letters_of(dask_worker)
        return __version__

    # A worker that was lost a moment ago may still be among them: its answer is an error.
    found_on = client.run(version, on_error="return")
    known: dict[str, str | None] = {
        address: found for address, found in found_on.items() if not isinstance(found, Exception)
    }
    if not known:
        raise StorageError(f"cluster: the Dask scheduler at {client.scheduler.address} has no worker")
    for address, found in known.items():
        if found != __version__:
            what = "no fastadmm" if found is None else f"fastadmm {found}, not {__version__}"
            raise ConfigError(f"cluster: Dask worker {address} has {what}; install it on all workers")
    return sorted(known)


def _watched(client: Any, tasks: list[Any], addresses: list[str]) -> list[Any]:
    """What the tasks return; raises for a worker that is gone, once the others have noticed."""
    from distributed import wait

    def going() -> bool:
        states = {task.status for task in tasks}
        return states <= {"pending", "finished"} and "pending" in states and not gone()

    def gone() -> list[int]:
        here = client.nthreads()
        return [rank for rank, address in enumerate(addresses) if address not in here]

    interrupted = False
    while going():
        try:
            time.sleep(_LOOK)
        except KeyboardInterrupt:
            if interrupted:
                raise
            interrupted = True
            client.run(_stop, workers=addresses[:1])
    lost = gone()
    with client.as_current(), suppress(TimeoutError):
        wait([task for rank, task in enumerate(tasks) if rank not in lost], timeout=_NOTICE)
    found = [task.result() for task in tasks if task.status == "finished"]
    _raise_mistake(found)
    if len(found) == len(tasks):
        return found
    for task in tasks:
        if task.status == "error" and type(task.exception()).__name__ not in _OF_OTHERS:
            raise task.exception()
    rank = next(iter(lost or [k for k, task in enumerate(tasks) if task.status != "finished"]))
    raise _Lost(f"cluster: rank {rank}, Dask worker {addresses[rank]}, is lost")


def _raise_mistake(found: list[Any]) -> None:
    """Raise what a task says that is not about other workers."""
    for _, mistake in found:
        if mistake is not None:
            kind, text = mistake
            raise kind(text)


def _stop() -> None:
    from fastadmm.runs.interrupt import STOP

    STOP.set()


def _task(name: str, rank: int, addresses: list[str], lead: Any) -> Any:
    """A worker's part: its result, or the type and text of the user's mistake."""
    from distributed import get_worker

    from fastadmm.cluster.dask import DaskComm, LostWorkerError
    from fastadmm.runs.shared import follow_run

    worker = get_worker()
    comm = DaskComm(worker, name, rank, addresses)
    try:
        return (lead(comm=comm, display=_Topic(worker, name)) if rank == 0 else follow_run(comm)), None
    except LostWorkerError:
        comm.abort(1)
        raise
    except FastadmmError as error:
        text = f"rank {rank}: {error}" if comm.apart and rank else str(error)
        if comm.apart:
            comm.abort(int(error.exit_code))
        return None, (type(error), text)
    except BaseException:
        comm.abort(1)
        raise


def _show(display: Display, event: bytes) -> None:
    what, given = pickle.loads(event)
    getattr(display, what)(*given)


class _Topic:
    """A display in another process."""

    def __init__(self, worker: Any, name: str) -> None:
        self._worker, self._name = worker, name

    def __getattr__(self, what: str) -> Any:
        return lambda *given: self._worker.log_event(self._name, pickle.dumps((what, given)))

"""One process at a time works on a run."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastadmm.errors import StorageError
from fastadmm.store.atomic import shown, storage_errors

__all__ = ["run_lock"]


@contextmanager
def run_lock(run: Path) -> Iterator[None]:
    """Hold a run directory while training in it.

    The operating system releases the lock when the process ends, however it
    ends, so a killed run can be resumed at once.

    Parameters
    ----------
    run : Path
        Run directory.

    Raises
    ------
    StorageError
        If another process holds it.
    """
    with storage_errors(run, "read"):
        # The directory itself: nothing to leave behind.
        descriptor = os.open(run, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StorageError(f"{shown(run)}: another process is working on this run; wait for it") from None
        yield
    finally:
        os.close(descriptor)

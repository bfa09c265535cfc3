"""One process at a time works on a run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastadmm.errors import StorageError
from fastadmm.files.atomic import shown, storage_errors
from fastadmm.files.file_lock import lock_file


class RunLock:
    """A run directory that this process holds."""

    def __init__(self, run: Path, descriptor: int) -> None:
        self.run, self._held = run, os.fstat(descriptor)

    def check(self) -> None:
        """Refuse to write by name into another directory than the one that is held."""
        try:
            same = sys.platform == "win32" or os.path.samestat(os.stat(self.run), self._held)
        except FileNotFoundError:
            same = False
        if not same:
            raise StorageError(
                f"{shown(self.run)}: was moved, removed or replaced while this run worked in it; "
                "nothing more is written"
            )


@contextmanager
def run_lock(run: Path, name: Path | None = None) -> Iterator[RunLock]:
    """Hold a run directory while training in it.

    The operating system releases the lock when the process ends, however it
    ends, so a killed run can be resumed at once.
    """
    name = run if name is None else name
    with storage_errors(name, "read"):
        # The directory itself: nothing to leave behind. Windows opens files only.
        descriptor = (
            os.open(run / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
            if sys.platform == "win32"
            else os.open(run, os.O_RDONLY)
        )
    try:
        try:
            lock_file(descriptor, wait=False)
        except BlockingIOError:
            raise StorageError(
                f"{shown(name)}: another process is working on this run; wait for it, or stop it"
            ) from None
        yield RunLock(name, descriptor)
    finally:
        os.close(descriptor)

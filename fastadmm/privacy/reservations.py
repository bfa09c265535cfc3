"""Budget that a run has set aside: a locked file beside the ledger, which counts while its process lives."""

from __future__ import annotations

import glob
import json
import os
import secrets
import weakref
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from fastadmm.errors import StorageError
from fastadmm.files.atomic import shown
from fastadmm.files.file_lock import lock_file

__all__ = ["Reservation", "reserved_by_others"]


class Reservation:
    """One run's file of charges to come. All its methods are called while the ledger is locked.

    Rules: ``docs/privacy.md#the-ledger``.
    """

    def __init__(self, ledger: Path) -> None:
        target = Path(os.path.realpath(ledger))
        self.path = target.with_name(f"{_prefix(target)}{secrets.token_hex(4)}.tmp")
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        lock_file(self._descriptor, wait=False)
        # Also when nobody frees it: the lock ends with the process, the file's name with the interpreter.
        self._finalizer = weakref.finalize(self, _free, self._descriptor, self.path, os.getpid())

    def write(self, at: int, planned: list[dict[str, Any]]) -> None:
        """Say what is to come."""
        raw = json.dumps({"at": at, "planned": planned}, allow_nan=False).encode()
        os.ftruncate(self._descriptor, 0)
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        while raw:
            raw = raw[os.write(self._descriptor, raw) :]

    def free(self) -> None:
        """Give back what was not drawn."""
        self._finalizer()


def _free(descriptor: int, path: Path, process: int) -> None:
    os.close(descriptor)
    if os.getpid() == process:  # a forked child leaves its parent's
        for _ in range(
            2
        ):  # an error of the disk may pass; what stays is nobody's, and goes with the next run
            with suppress(OSError):
                path.unlink(missing_ok=True)


def _is_free(descriptor: int) -> bool:
    try:
        lock_file(descriptor, wait=False)
    except BlockingIOError:
        return False
    return True


def _prefix(target: Path) -> str:
    """By the file itself: hard links beside each other are one ledger."""
    number = os.stat(target).st_ino if target.exists() else 0
    return f".ledger-{number}.reserved-"


def reserved_by_others(ledger: Path, own: Reservation | None) -> Iterable[tuple[int, list[dict[str, Any]]]]:
    """What living processes have set aside; files of dead ones are removed."""
    target = Path(os.path.realpath(ledger))
    for path in sorted(target.parent.glob(glob.escape(_prefix(target)) + "*.tmp")):
        if own is not None and path == own.path:
            continue
        try:
            descriptor = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            continue
        try:
            if _is_free(descriptor):
                with suppress(OSError):
                    path.unlink()  # nobody holds it: its process is gone, and what it used is charged
                continue
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                found = json.loads(file.read())
            yield int(found["at"]), list(found["planned"])
        except (ValueError, KeyError, TypeError) as error:
            raise StorageError(
                f"{shown(path)}: another run's reservation is unreadable ({error}); wait for that run"
            ) from None
        finally:
            os.close(descriptor)

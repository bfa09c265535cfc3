"""How many requests of a run a party refused: a byte for each in a file beside its state.

A refusal is an answer too, of one word: it counts towards the exchanges that were approved, and many end the
run, so nobody asks without end what is never answered.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastadmm.conversation.gate import MOST_REFUSALS
from fastadmm.errors import InputError, StorageError
from fastadmm.files.atomic import storage_errors
from fastadmm.between.approval import APPROVAL
from fastadmm.between.refused import code_of, refused

__all__ = ["REFUSALS", "check_refusals", "counted_refusals", "refusals"]

#: In the party's directory of a run.
REFUSALS = "refused"

#: Codes that do not count: nothing is left to be counted, or whoever asks waits for the owner.
_UNCOUNTED = (
    *("exchanges", "directions", "expired", "ended"),
    *("budget", "busy", "caller", "keys", "party", "run"),
)


def refusals(directory: Path) -> int:
    """Requests that were refused so far."""
    path = directory / REFUSALS
    with storage_errors(path, "read"):
        return path.stat().st_size if path.exists() else 0


def check_refusals(directory: Path, place: str) -> None:
    """End a run that has had too many requests refused: each outcome may tell something.

    Theorem: ``docs/privacy.md#outcomes-are-public``.
    """
    if (count := refusals(directory)) >= MOST_REFUSALS:
        text = f"{place}: {count} requests of this run were refused; it has ended, nothing was computed"
        raise refused("ended", InputError(text))


@contextmanager
def counted_refusals(directory: Path) -> Iterator[None]:
    """Count what is refused within the block, on disk before anybody hears of it; no fault of the disk's."""
    try:
        yield
    except Exception as error:
        path = directory / REFUSALS
        counts = code_of(error) not in _UNCOUNTED and not isinstance(error, StorageError)
        if counts and (directory / APPROVAL).exists():
            with storage_errors(path):
                file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                try:
                    os.write(file, b"-")
                    os.fsync(file)
                finally:
                    os.close(file)
        raise

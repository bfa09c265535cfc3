"""How many requests of a run a party refused: a byte for each in a file beside its state.

A refusal is an answer too, of one word: it counts towards the exchanges that were approved, so nobody asks
without end what is never answered.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fastadmm.files.atomic import storage_errors
from fastadmm.rounds.approval import APPROVAL
from fastadmm.rounds.refused import code_of

__all__ = ["REFUSALS", "counted_refusals", "refusals"]

#: In the party's directory of a run.
REFUSALS = "refused"

#: Codes that do not count: of requests beyond what an approval counts, and of those that wait for somebody.
_OVER = ("exchanges", "directions", "expired", "ended", "keys", "busy")


def refusals(directory: Path) -> int:
    """Requests that were refused so far.

    Parameters
    ----------
    directory : Path
        The party's, of the run.
    """
    path = directory / REFUSALS
    with storage_errors(path, "read"):
        return path.stat().st_size if path.exists() else 0


@contextmanager
def counted_refusals(directory: Path) -> Iterator[None]:
    """Count what is refused within the block, on disk before anybody hears of it.

    Parameters
    ----------
    directory : Path
        As above; nothing is counted before there is an approval.
    """
    try:
        yield
    except Exception as error:
        path = directory / REFUSALS
        if code_of(error) not in _OVER and (directory / APPROVAL).exists():
            with storage_errors(path):
                file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                try:
                    os.write(file, b"-")
                    os.fsync(file)
                finally:
                    os.close(file)
        raise

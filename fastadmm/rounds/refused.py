"""Why a party does not answer: one code of a fixed list, so that a refusal says nothing about its data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from fastadmm.conversation.gate import MOST_REFUSALS
from fastadmm.errors import FastadmmError, InputError, PrivacyBudgetError, StorageError
from fastadmm.files.atomic import atomic_file, storage_errors

__all__ = ["CODES", "check_refusals", "code_of", "refusals_counted", "refused"]

_E = TypeVar("_E", bound=FastadmmError)

#: Every reason that may leave a party, and what it means to who asked.
CODES = {
    "amount": "more rows, or more ids, than it approved",
    "budget": "its privacy ledger has no room for this run",
    "busy": "it is answering another run; wait until that has ended",
    "call": "it was asked what is not for this run, or not for its state",
    "caller": "it does not answer this caller: its approval names others",
    "changed": "it has answered another request under this number, or its last answer was not the one taken",
    "damaged": "the request is no message of this protocol, or was changed or cut on its way",
    "directions": "more vectors than it approved",
    "ended": "the run has ended for it",
    "exchanges": "more exchanges than it approved",
    "expired": "its approval has expired",
    "failed": "it could not answer; its own log has the reason",
    "keys": "its owner has not compared the fingerprints of the keys with the other parties yet",
    "lambda": "lambda is below what it approved",
    "order": "the request does not follow the last one that it answered",
    "party": "the request is for another party",
    "penalty": "a penalty that moves as no honest run's does",
    "privacy": "another privacy than it approved, or it has not all that a private run needs of it",
    "rows": "the run is about other rows than it has; align the rows first",
    "run": "it has not approved this run",
    "scores": "it gives no scores of these rows",
    "task": "it has not approved this alignment, or standard errors or predictions with this model",
    "terms": "another family, loss, regularizer, constraint or data than it approved",
    "values": "a value that is not what the table of calls says",
    "version": "another version of the protocol or of fastadmm than its own, or than it approved",
}


def refused(code: str, error: _E) -> _E:
    """The error that tells a party's owner why a request is not answered, with the code for who asked.

    Parameters
    ----------
    code : str
        A key of :data:`CODES`.
    error : FastadmmError

    Returns
    -------
    FastadmmError
        The same.
    """
    error.refusal = code
    return error


def code_of(error: BaseException) -> str:
    """The code that may leave a party for an error.

    Returns
    -------
    str
        A key of :data:`CODES`.
    """
    if isinstance(error, FastadmmError) and error.refusal:
        return error.refusal
    return "budget" if isinstance(error, PrivacyBudgetError) else "failed"


#: Refusals that do not count: whoever asks waits for the owner, or cannot be told to stop.
_WAITING = ("budget", "busy", "caller", "ended", "expired", "keys", "party", "run")

#: Where a session keeps how many requests it has refused.
_REFUSALS = "refusals"


def check_refusals(directory: Path, place: str) -> None:
    """End a session that has refused too many requests: each outcome may tell something.

    Parameters
    ----------
    directory : Path
        The party's directory for the run.
    place : str
        What messages call the request.

    Raises
    ------
    InputError

    Notes
    -----
    Theorem: ``docs/privacy.md#outcomes-are-public``.
    """
    if (count := _refusals(directory)) >= MOST_REFUSALS:
        text = f"{place}: {count} requests of this run were refused; it has ended, nothing was computed"
        raise refused("ended", InputError(text))


@contextmanager
def refusals_counted(directory: Path) -> Iterator[None]:
    """Count a request that is refused inside by what it asked; a disk that is full is no such reason.

    Parameters
    ----------
    directory : Path
        The party's directory for the run.
    """
    try:
        yield
    except Exception as error:
        if code_of(error) not in _WAITING and not isinstance(error, StorageError):
            with atomic_file(directory / _REFUSALS, force=True) as temporary:
                temporary.write_text(f"{_refusals(directory) + 1}\n", encoding="ascii")
        raise


def _refusals(directory: Path) -> int:
    path = directory / _REFUSALS
    with storage_errors(path, "read"):
        try:
            return int(path.read_text(encoding="ascii"))
        except FileNotFoundError:
            return 0
        except ValueError:
            return MOST_REFUSALS  # a count that cannot be read is no permission

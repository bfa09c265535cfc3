"""Why a party does not answer: one code of a fixed list, so that a refusal says nothing about its data."""

from __future__ import annotations

from typing import TypeVar

from fastadmm.errors import FastadmmError, PrivacyBudgetError

__all__ = ["CODES", "code_of", "refused"]

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
    "members": "its data were added up among other parties before, and its owner does not allow both sums",
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
    """The error that tells a party's owner why a request is not answered, with the code for who asked."""
    error.refusal = code
    return error


def code_of(error: BaseException) -> str:
    """The code that may leave a party for an error."""
    if isinstance(error, FastadmmError) and error.refusal:
        return error.refusal
    return "budget" if isinstance(error, PrivacyBudgetError) else "failed"

"""Why a party does not answer: one code of a fixed list, so that a refusal says nothing about its data."""

from __future__ import annotations

from fastadmm.errors import InputError

__all__ = ["CODES", "Refused"]

#: Every reason that may leave a party, and what it means to who asked.
CODES = {
    "budget": "its privacy ledger has no room for this run, or nothing is proved for its data",
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
    "lambda": "lambda is below what it approved",
    "order": "the request does not follow the last one that it answered",
    "party": "the request is for another party",
    "penalty": "a penalty that moves as no honest run's does",
    "privacy": "another privacy than it approved, or no ledger of its own",
    "rows": "the run is about other rows than it has; align the rows first",
    "run": "it has not approved this run",
    "scores": "it gives no scores of these rows",
    "terms": "another family, loss, regularizer, constraint or data than it approved",
    "values": "a value that is not what the table of calls says",
    "version": "another version of the protocol or of fastadmm than its own, or than it approved",
}


class Refused(InputError):
    """A request that this party does not answer; the text is for its owner, the code for who asked.

    Parameters
    ----------
    code : str
        A key of :data:`CODES`.
    text : str
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code

"""Why a party does not answer, as a code; and the words of a first request, each of a fixed list."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from fastadmm.errors import ConfigError, FastadmmError, FormatError, PrivacyBudgetError, WaitingError
from fastadmm.parties.families import FAMILIES
from fastadmm.parties.xupdate.choose import X_UPDATES
from fastadmm.problem.constraints import get_constraint
from fastadmm.problem.losses import LOSSES
from fastadmm.problem.regularizers import REGULARIZERS
from fastadmm.settings.privacy import MODES
from fastadmm.store.party_file import check_party_name

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


#: What an owner names with ``agent approve``, by the kind of request.
_NAMED = {"run": "--data FILE", "infer": "--data FILE", "worth": "--data FILE --rows FILE"}

#: The kind of request that a call belongs to; another is of an alignment.
KINDS = {"contribute": "predict", "span": "infer", "learn": "infer", "join": "worth"}


def approve_command(what: str, kind: str, state: str = "DIR") -> str:
    """What shows an owner a request; ``kind`` is ``run`` or a task's."""
    return f"fastadmm agent approve {what} --state {state} {_NAMED.get(kind, '--rows FILE --id NAME')}"


def unapproved(names: Sequence[str], what: str, kind: str) -> WaitingError:
    """What to send to the owners who have not approved a run or a task yet."""
    text = f"{', '.join(names)} {'has' if len(names) == 1 else 'have'} not approved {what}"
    text += f"; give the same command again once they have; send them: {approve_command(what, kind)}"
    return refused("run" if kind == "run" else "task", WaitingError(text))


#: A number as a regulariser or set has it behind its name: no blanks, no words.
_NUMBER = r"[+-]?(inf|[0-9.]{1,25}(e[+-]?[0-9]{1,3})?)"

_CONSTRAINT = re.compile(rf"[a-z]{{1,20}}(:{_NUMBER}(,{_NUMBER})?)?")
_REGULARIZER = re.compile(rf"([a-z0-9_]{{1,20}})(:{_NUMBER})?")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_RELEASE = re.compile(r"[0-9][0-9A-Za-z.+]{0,39}")

#: Longest text of somebody else's that a line shows.
_CUT = 40


def quoted(text: object, most: int = _CUT) -> str:
    """Somebody else's text within a line of ours: in quotes, escaped and cut."""
    words = str(text)
    return ascii(words[:most]) + ("…" if len(words) > most else "")


def check_words(terms: Mapping[str, Any], place: str) -> None:
    """Refuse a first request with a word that does not exist."""
    for key in ("family", "loss", "regularizer", "constraint", "x_update", "release"):
        if key in terms and not _exists(key, terms[key]):
            text = f"{place}: argument {key!r}: {quoted(terms[key])} is unknown here"
            raise refused("terms", FormatError(text))
    for key in ("row_digest", "test", "validation", "table"):
        if key in terms and not _DIGEST.fullmatch(terms[key]):
            raise refused("values", FormatError(f"{place}: argument {key!r} is no digest"))
    parties_of(terms, place)


def parties_of(terms: Mapping[str, Any], place: str) -> list[str]:
    """Names of all parties of a run in their order; none where an older coordinator does not say."""
    if "parties" not in terms:
        return []
    try:
        names = [check_party_name(name, place, FormatError) for name in terms["parties"].split(",")]
    except FormatError:
        names = []
    if not names or len({name.casefold() for name in names}) < len(names) or terms["position"] >= len(names):
        raise refused("values", FormatError(f"{place}: argument 'parties' does not name the parties"))
    return names


def _exists(key: str, word: str) -> bool:
    if key == "family":
        return word in FAMILIES or word in MODES[1:]
    if key == "loss":
        return word in LOSSES
    if key == "x_update":
        return word == "auto" or word in X_UPDATES
    if key == "release":
        return _RELEASE.fullmatch(word) is not None
    if key == "regularizer":
        found = _REGULARIZER.fullmatch(word)
        return found is not None and found[1] in REGULARIZERS
    try:
        return _CONSTRAINT.fullmatch(word) is not None and bool(get_constraint(word))
    except ConfigError:
        return False

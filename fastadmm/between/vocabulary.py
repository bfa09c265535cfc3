"""The words of a run's first request: each of a fixed list, a name, a number or a digest, and nothing else.

An owner reads them before approving; free text there could say anything, in the place of anything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fastadmm.errors import ConfigError, FormatError
from fastadmm.parties.families import FAMILIES
from fastadmm.parties.xupdate.choose import X_UPDATES
from fastadmm.problem.constraints import get_constraint
from fastadmm.problem.losses import LOSSES
from fastadmm.problem.regularizers import REGULARIZERS
from fastadmm.between.refused import refused
from fastadmm.settings.privacy import MODES
from fastadmm.store.party_file import check_party_name

__all__ = ["check_words", "parties_of", "quoted"]

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

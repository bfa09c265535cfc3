"""Where the constants of a transform come from, which decides whether an epsilon is proved for its columns.

Every bound on a record's influence assumes that a record changes only its own row. A mean, a deviation or a
list of categories is computed from all rows, so one record changes many: every step between a party's table
and its columns declares the origin of each of its fields.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from fastadmm.errors import ConfigError

#: Where constants may come from.
ORIGINS: dict[str, str] = {
    "public": "options, a public description of the columns, or each row by itself",
    "charged": "private rows, through a mechanism whose cost is charged",
    "private": "private rows, exactly: one record moves the rows of others",
}


@dataclass(frozen=True)
class Constants:
    """Some fields of a transform, and where they come from."""

    fields: tuple[str, ...]  # names of the fields
    what: str  # what they are, in words
    origin: str  # a key of ORIGINS
    labels: bool = False


def declared(step: Any, *known: Any) -> tuple[Constants, ...]:
    """What a step says of its constants, checked to say it of each field once."""
    name, declare = type(step).__name__, getattr(step, "constants", None)
    if declare is None:
        raise ConfigError(f"privacy: {name} does not say where its constants come from")
    found: tuple[Constants, ...] = declare(*known)
    said = [field for constants in found for field in constants.fields]
    for field in fields(step):
        if said.count(field.name) != 1:
            raise ConfigError(f"privacy: {name} does not say where its {field.name!r} comes from")
    for constants in found:
        if constants.origin not in ORIGINS:
            raise ConfigError(f"privacy: {name}: unknown origin {constants.origin!r}")
    return found


def together(field: str, parts: Iterable[Constants]) -> Constants:
    """What a field says whose parts say it each for itself: what is made of labels first."""
    parts = list(parts)
    private = sorted((part for part in parts if part.origin == "private"), key=lambda part: not part.labels)
    what = list(dict.fromkeys(part.what for part in private))
    if not what:
        charged = any(part.origin == "charged" for part in parts)
        return Constants((field,), "none", "charged" if charged else "public")
    more = f" and {len(what) - 1} more" if len(what) > 1 else ""
    return Constants((field,), what[0] + more, "private", private[0].labels)


def private_constants(steps: Iterable[Any], *, labels: bool = False) -> list[str]:
    """What comes from private rows, exactly, or of it what comes from all labels besides.

    Theorem: ``docs/privacy.md#what-a-private-run-takes-as-public``.
    """
    found = [c for step in steps for c in declared(step) if c.origin == "private"]
    return [c.what for c in found if c.labels or not labels]


#: Why nothing is proved of a party's features, or (True) of labels, and what to do.
_UNPROVED = {
    False: "computed from the private rows, so one record moves the rows of others; convert anew with "
    "--public-columns, or, if these constants are public, say --set privacy.public_scaling=true",
    True: "made from all labels, so no label_epsilon is proved: leave label_epsilon out, or train on columns "
    "without bins",
}


def why_unproved(steps: Iterable[Any], *, labels: bool = False) -> str:
    """Why no epsilon is proved for a party's columns, or of labels beside them; empty where one is."""
    what = private_constants(steps, labels=labels)
    return f"{', '.join(what)}: {_UNPROVED[labels]}" if what else ""

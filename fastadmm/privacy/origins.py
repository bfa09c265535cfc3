"""Where the constants of a transform come from, which decides whether an epsilon is proved for its columns.

Every bound on a record's influence assumes that a record changes only its own row. A mean that replaces
missing cells, a deviation that columns are divided by, a list of the categories that occur: each is
computed from all rows, so one record changes many. Every step between a party's table and its columns
therefore declares the origin of each of its fields; a step that does not is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from fastadmm.errors import ConfigError

__all__ = ["ORIGINS", "Constants", "private_constants", "why_unproved"]

#: Where constants may come from.
ORIGINS: dict[str, str] = {
    "public": "options, a public description of the columns, or each row by itself",
    "charged": "private rows, through a mechanism whose cost is charged",
    "private": "private rows, exactly: one record moves the rows of others",
}


@dataclass(frozen=True)
class Constants:
    """Some fields of a transform, and where they come from.

    Attributes
    ----------
    fields : tuple of str
        Names of the fields.
    what : str
        What they are, in words.
    origin : {"public", "charged", "private"}
        A key of :data:`ORIGINS`.
    """

    fields: tuple[str, ...]
    what: str
    origin: str


def private_constants(steps: Iterable[Any]) -> list[str]:
    """What was computed from a party's private rows and is not charged.

    Parameters
    ----------
    steps : iterable
        All steps from the party's table to its columns: dataclasses whose method ``constants()`` gives the
        :class:`Constants` of all their fields.

    Returns
    -------
    list of str
        In words; empty if every record changes only its own row.

    Raises
    ------
    ConfigError
        If a step, or a field of it, does not say where its constants come from.

    Notes
    -----
    Theorem: ``docs/privacy.md#what-a-private-run-takes-as-public``.
    """
    found = []
    for step in steps:
        name, declare = type(step).__name__, getattr(step, "constants", None)
        if declare is None:
            raise ConfigError(f"privacy: {name} does not say where its constants come from")
        declared = declare()
        said = [field for constants in declared for field in constants.fields]
        for field in fields(step):
            if said.count(field.name) != 1:
                raise ConfigError(f"privacy: {name} does not say where its {field.name!r} comes from")
        for constants in declared:
            if constants.origin not in ORIGINS:
                raise ConfigError(f"privacy: {name}: unknown origin {constants.origin!r}")
            if constants.origin == "private":
                found.append(constants.what)
    return found


def why_unproved(steps: Iterable[Any]) -> str:
    """Why no epsilon is proved for a party's columns; empty where one is.

    Parameters
    ----------
    steps : iterable
        As in :func:`private_constants`.
    """
    what = private_constants(steps)
    if not what:
        return ""
    return (
        f"{', '.join(what)}: computed from the private rows, so one record moves the rows of others; "
        "convert anew with --public-columns, or say --public-scaling if these constants are public"
    )

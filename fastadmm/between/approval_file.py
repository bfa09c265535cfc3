"""The file of an approval: limits that its owner edits, so what is not understood is refused."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from fastadmm.between.approval import Approval
from fastadmm.between.private_terms import PROTECTION, Protection
from fastadmm.errors import ConfigError, FormatError
from fastadmm.files.atomic import shown, write_whole
from fastadmm.files.reading import read_toml
from fastadmm.store.party_file import check_party_name

_FORMAT, _VERSION = "fastadmm-approval", "1.1"

#: It counted vectors in place of numbers.
_OLD = "1.0"


def write_approval(approval: Approval, *, force: bool = False) -> None:
    """Write an approval, with comments for whoever edits it."""
    write_whole(approval.path, approval_text(approval), force=force)


def approval_text(approval: Approval) -> str:
    """The file's content."""
    notes = {
        "run": 'this run; "first": whichever run begins with it',
        "data": "content digest of the features",
        "loss": "as the coordinator says; the party cannot check it",
        "least_lambda": "of a mean loss; a smaller one is refused",
        "exchanges": "requests that are answered or refused, at most",
        "numbers": "about rows, that leave in answers, at most",
        "last_day": "nothing new is answered after it",
        "callers": "who may ask",
        "protocol": "version of the messages",
        "fastadmm": "version of the coordinator's program",
        "fingerprints": "of the other parties' keys, as their owners say them",
        "parties": "all of the run",
        "terms": "digest of all that was asked",
        "other_members": "true: these data may be in another sum, though the difference shows a party's part",
        "epsilon": "of this run, at most",
        "total_epsilon": "of all runs that charge the same ledger",
        "public_scaling": "true: you say that no centre, scale, fill or category comes from private rows",
        "allow_infinite_epsilon": "true: go on where nothing is proved",
    }
    lines = [
        f"# What {approval.party} answers to a coordinator. Edit the limits: nothing beyond them is computed."
    ]
    document = _document(approval)
    table = document.pop("privacy", {})

    lines += lines_of(document, notes)
    if table:
        lines += ["", "[privacy]", *lines_of(table, notes)]
    return "\n".join(lines) + "\n"


def lines_of(values: Mapping[str, Any], notes: Mapping[str, str]) -> list[str]:
    """A line of TOML for each value, also of a list, with what is noted of it."""
    import tomli_w

    lines = []
    for key, value in values.items():
        text = tomli_w.dumps({key: value}).rstrip("\n").replace(",\n]", "]").replace("\n   ", "")
        lines.append(f"{text}  # {notes[key]}" if key in notes else text)
    return lines


def _document(approval: Approval) -> dict[str, Any]:
    keys = [key for key in Approval.__dataclass_fields__ if key not in ("path", "protection")]
    values = {key: getattr(approval, key) for key in keys}
    return {
        "format": _FORMAT,
        "version": _VERSION,
        **{key: value for key, value in values.items() if value is not None and value is not False},
        **({} if approval.protection is None else {"privacy": approval.protection.table()}),
    }


def kinds_of(
    record: type, own: tuple[str, ...] = ("path",)
) -> tuple[dict[str, tuple[type, ...]], dict[str, tuple[type, ...]]]:
    """Types of the keys that a file of such an approval needs, and of those that it may have."""
    needed: dict[str, tuple[type, ...]] = {}
    optional: dict[str, tuple[type, ...]] = {}
    for one in fields(record):
        hint = get_type_hints(record)[one.name]
        parts = get_args(hint) if isinstance(hint, UnionType) else (hint,)
        kind = get_origin(parts[0]) or parts[0]
        if one.name not in own:
            to = optional if len(parts) > 1 or one.default is not MISSING else needed
            to[one.name] = (float, int) if kind is float else (kind,)
    return needed, optional


#: Keys of a run's approval; ``numbers`` is ``directions`` in an old one.
_NEEDED, _OPTIONAL = kinds_of(Approval, ("path", "numbers", "protection"))


def check_kinds(
    values: Mapping[str, Any],
    needed: Mapping[str, tuple[type, ...]],
    optional: Mapping[str, tuple[type, ...]],
    place: str,
) -> None:
    """Refuse keys that are missing, unknown or of another type."""
    for key in values:
        if key not in needed and key not in optional:
            raise ConfigError(f"{place}: key {key!r} is unknown")
    for key, kinds in {**needed, **optional}.items():
        value = values.get(key)
        if value is None:
            if key in needed:
                raise ConfigError(f"{place}: key {key!r} is missing")
        elif (
            not isinstance(value, kinds)
            or isinstance(value, datetime.datetime)
            or (isinstance(value, bool) and kinds != (bool,))
        ):
            raise ConfigError(f"{place}: key {key!r} is not {_name(kinds)}")


def read_approved(
    path: Path, kind: str, versions: tuple[str, ...], command: str
) -> tuple[dict[str, Any], str]:
    """The keys of an approval's file without its format, and its version; the last of versions is ours."""
    try:
        values = read_toml(path)
    except FormatError as error:
        raise ConfigError(str(error)) from None
    if values.pop("format", None) != kind:
        raise ConfigError(f"{shown(path)}: key 'format' is not {kind!r}; make it with '{command}'")
    if (version := values.pop("version", None)) not in versions:
        raise ConfigError(f"{shown(path)}: key 'version' is {version!r}; known: {versions[-1]}")
    return values, version


def open_approval(path: Path) -> Approval:
    """Read an approval."""
    values, version = read_approved(path, _FORMAT, (_OLD, _VERSION), "fastadmm party approve")
    place = shown(path)
    table = values.pop("privacy", None)
    unit = "numbers" if version == _VERSION else "directions"
    check_kinds(values, {**_NEEDED, unit: (int,)}, _OPTIONAL, place)
    protection = None
    if table is not None:
        if not isinstance(table, dict):
            raise ConfigError(f"{place}: key 'privacy' is not a table")
        own = {key: value for key, value in table.items() if key in PROTECTION}
        check_kinds(own, PROTECTION, {}, f"{place}: privacy")
        check_kinds({k: table[k] for k in ("penalty",) if k in table}, {}, {"penalty": (float, int)}, place)
        protection = Protection.of_table(table, values["family"], f"{place}: privacy")
    for key in ("exchanges", unit):
        if values[key] < 1:
            raise ConfigError(f"{place}: key {key!r} is below 1")
    if not 0 < values["least_lambda"] < 1e300:
        raise ConfigError(f"{place}: key 'least_lambda' is not a positive number")
    check_party_name(values["party"], f"{place}: key 'party'", ConfigError)
    for key in ("callers", "fingerprints", "parties"):
        if not all(isinstance(name, str) for name in values.get(key, ())):
            raise ConfigError(f"{place}: key {key!r} is not {_name((list,))}")
    # An old file is kept of a run that is over; for one that goes on, its owner is asked again.
    limits = {"numbers": values.get("numbers", 0), "loss": None, "l1_ratio": None, "last_day": None}
    values.pop(unit)
    return Approval(path=path, protection=protection, **{**limits, **values})


def _name(kinds: tuple[type, ...]) -> str:
    names: dict[type, str] = {
        str: "a text",
        float: "a number",
        int: "a whole number",
        bool: "true or false",
        list: "a list of names",
        datetime.date: "a day, as 2030-12-31",
    }
    return names[kinds[0]]

"""Files of approvals: limits that their owner edits, so what is not understood is refused."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from fastadmm.between.approval import Approval
from fastadmm.between.private_terms import PROTECTION, Protection
from fastadmm.errors import ConfigError, FormatError
from fastadmm.files.atomic import shown, write_whole
from fastadmm.files.reading import read_toml
from fastadmm.store.party_file import check_party_name

#: Names of the files: in the agent's directory, and in that of the run whose model is applied.
ALIGN, PREDICT, INFER = "align.toml", "predict.toml", "infer.toml"


@dataclass(frozen=True)
class TaskApproval:
    """Limits of one party, for alignments, or for predictions or standard errors with one model."""

    path: Path  # of the approval: ALIGN, PREDICT or INFER
    party: str
    callers: list[str]  # who may ask
    file: str
    requests: int  # new ones that are answered, at most
    rows: int
    last_day: datetime.date | None
    id: str | None = None  # id column, where the file is a table
    duplicates: str = "refuse"  # what is done with ids that occur more than once in it
    separator: str | None = None  # between its cells, where it is CSV; None is recognised
    id_pattern: str | None = None  # regular expression of the part of ids that is compared
    unmasked: bool = False
    allow_infinite_epsilon: bool = False


#: Of the files: their name and version.
_RUN, _TASK = ("fastadmm-approval", "1.1"), ("fastadmm-task-approval", "1.0")

#: A run's approval that counted vectors in place of numbers.
_OLD = "1.0"

_NOTES = {
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
    "unmasked": "true: the coordinator may see this party's scores by themselves, not sums alone",
}
_OF_KIND = {
    ALIGN: {
        "file": "the table whose ids are compared",
        "requests": "alignments, at most",
        "rows": "ids of the coordinator that are compared with the table's, over all requests",
    },
    PREDICT: {
        "file": "features of the rows that are scored; it may be replaced by a newer one",
        "requests": "sets of rows that are scored, at most",
        "rows": "scores that leave, over all requests",
    },
    INFER: {
        "file": "features that the model was trained on",
        "requests": "requests, at most",
        "rows": "vectors of a number for each training row that leave, over all requests",
    },
}

_WHAT = {
    ALIGN: "compares its ids with a coordinator's",
    PREDICT: "scores rows",
    INFER: "shows what standard errors need",
}


def write_approval(approval: Approval | TaskApproval, *, force: bool = False) -> None:
    """Write an approval, with comments for whoever edits it."""
    write_whole(approval.path, approval_text(approval), force=force)


def approval_text(approval: Approval | TaskApproval) -> str:
    """The file's content: what is not said is as it would be without."""
    notes, kind, table = _NOTES, _RUN, {}
    first = f"What {approval.party} answers to a coordinator. Edit the limits"
    if isinstance(approval, TaskApproval):
        notes, kind = {**_NOTES, **_OF_KIND[approval.path.name]}, _TASK
        first = f"Within these limits {approval.party} {_WHAT[approval.path.name]}. Edit them"
    elif approval.protection is not None:
        table = approval.protection.table()
    values: dict[str, Any] = dict(zip(("format", "version"), kind))
    for one in fields(approval):
        value = getattr(approval, one.name)
        if one.name not in ("path", "protection") and value is not None and value != one.default:
            values[one.name] = value
    lines = [f"# {first}: nothing beyond them is computed.", *_lines(values, notes)]
    if table:
        lines += ["", "[privacy]", *_lines(table, notes)]
    return "\n".join(lines) + "\n"


def _lines(values: Mapping[str, Any], notes: Mapping[str, str]) -> list[str]:
    """A line of TOML for each value, also of a list, with what is noted of it."""
    import tomli_w

    lines = []
    for key, value in values.items():
        text = tomli_w.dumps({key: value}).rstrip("\n").replace(",\n]", "]").replace("\n   ", "")
        lines.append(f"{text}  # {notes[key]}" if key in notes else text)
    return lines


def _kinds_of(
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
_NEEDED, _OPTIONAL = _kinds_of(Approval, ("path", "numbers", "protection"))

_TASK_KEYS = _kinds_of(TaskApproval)


def _check_kinds(
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


def _read(
    path: Path, kind: tuple[str, str], old: tuple[str, ...], command: str
) -> tuple[dict[str, Any], str]:
    """The keys of an approval's file without its format, and its version."""
    try:
        values = read_toml(path)
    except FormatError as error:
        raise ConfigError(str(error)) from None
    if values.pop("format", None) != kind[0]:
        raise ConfigError(f"{shown(path)}: key 'format' is not {kind[0]!r}; make it with '{command}'")
    if (version := values.pop("version", None)) not in (*old, kind[1]):
        raise ConfigError(f"{shown(path)}: key 'version' is {version!r}; known: {kind[1]}")
    return values, version


def _check_values(values: Mapping[str, Any], counts: tuple[str, ...], place: str) -> None:
    """Refuse a count below 1, a party's name that is none, and lists of other things than names."""
    for key in counts:
        if values[key] < 1:
            raise ConfigError(f"{place}: key {key!r} is below 1")
    check_party_name(values["party"], f"{place}: key 'party'", ConfigError)
    for key in ("callers", "fingerprints", "parties"):
        if not all(isinstance(name, str) for name in values.get(key, ())):
            raise ConfigError(f"{place}: key {key!r} is not {_name((list,))}")


def open_task_approval(path: Path) -> TaskApproval:
    """Read the approval of a task."""
    values, _ = _read(path, _TASK, (), "fastadmm agent approve")
    _check_kinds(values, *_TASK_KEYS, shown(path))
    _check_values(values, ("requests", "rows"), shown(path))
    return TaskApproval(path=path, **{"last_day": None, **values})


def open_approval(path: Path) -> Approval:
    """Read the approval of a run."""
    values, version = _read(path, _RUN, (_OLD,), "fastadmm party approve")
    place = shown(path)
    table = values.pop("privacy", None)
    unit = "directions" if version == _OLD else "numbers"
    _check_kinds(values, {**_NEEDED, unit: (int,)}, _OPTIONAL, place)
    protection = None
    if table is not None:
        if not isinstance(table, dict):
            raise ConfigError(f"{place}: key 'privacy' is not a table")
        own = {key: value for key, value in table.items() if key in PROTECTION}
        _check_kinds(own, PROTECTION, {}, f"{place}: privacy")
        penalty = {key: table[key] for key in ("penalty",) if key in table}
        _check_kinds(penalty, {}, {"penalty": (float, int)}, place)
        protection = Protection.of_table(table, values["family"], f"{place}: privacy")
    if not 0 < values["least_lambda"] < 1e300:
        raise ConfigError(f"{place}: key 'least_lambda' is not a positive number")
    _check_values(values, ("exchanges", unit), place)
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

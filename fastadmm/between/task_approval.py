"""What a party agreed to beside training: ids compared, rows scored, what standard errors need."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastadmm.between.approval_file import check_kinds, kinds_of, lines_of, read_approved
from fastadmm.errors import ConfigError
from fastadmm.files.atomic import shown, write_whole
from fastadmm.store.party_file import check_party_name

#: Names of the files: in the agent's directory, and in that of the run whose model is applied.
ALIGN, PREDICT, INFER = "align.toml", "predict.toml", "infer.toml"

_FORMAT, _VERSION = "fastadmm-task-approval", "1.0"


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


_NEEDED, _OPTIONAL = kinds_of(TaskApproval)

_NOTES = {
    "callers": "who may ask",
    "last_day": "nothing new is answered after it",
    "unmasked": "true: the coordinator may see this party's scores by themselves, not sums alone",
    "allow_infinite_epsilon": "true: exact scores may leave where nothing is proved for them",
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


def write_task_approval(approval: TaskApproval, *, force: bool = False) -> None:
    """Write an approval, with comments for whoever edits it."""
    write_whole(approval.path, task_approval_text(approval), force=force)


def task_approval_text(approval: TaskApproval) -> str:
    """The file's content."""
    notes = {**_NOTES, **_OF_KIND[approval.path.name]}
    what = f"{approval.party} {_WHAT[approval.path.name]}"
    lines = [f"# Within these limits {what}. Edit them: nothing beyond them is computed."]
    usual = TaskApproval(approval.path, "", [], "", 0, 0, None)
    values: dict[str, Any] = {"format": _FORMAT, "version": _VERSION}
    for key in (*_NEEDED, *_OPTIONAL):
        value = getattr(approval, key)
        if key in _NEEDED or value != getattr(usual, key):
            values[key] = value
    return "\n".join([*lines, *lines_of(values, notes)]) + "\n"


def open_task_approval(path: Path) -> TaskApproval:
    """Read an approval."""
    values, _ = read_approved(path, _FORMAT, (_VERSION,), "fastadmm agent approve")
    place = shown(path)
    check_kinds(values, _NEEDED, _OPTIONAL, place)
    check_party_name(values["party"], f"{place}: key 'party'", ConfigError)
    for key in ("requests", "rows"):
        if values[key] < 1:
            raise ConfigError(f"{place}: key {key!r} is below 1")
    if not all(isinstance(name, str) for name in values["callers"]):
        raise ConfigError(f"{place}: key 'callers' is not a list of names")
    return TaskApproval(path=path, **{"last_day": None, **values})

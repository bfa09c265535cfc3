"""What was asked of a party and is not approved, kept for its owner to look at: no file has to be carried."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from fastadmm.errors import FastadmmError, InputError, StorageError
from fastadmm.files.atomic import shown, storage_errors
from fastadmm.files.reading import read_json
from fastadmm.files.writing import write_json

__all__ = ["asked_file", "asked_lines", "forget_asked", "keep_asked"]

_FOLDER = "asked"

#: So many are kept, the newest, and none that is longer.
_MOST, _LONGEST = 20, 2 << 20


def keep_asked(state: Path, identifier: str, document: dict[str, Any]) -> None:
    """Keep what was asked for.

    Parameters
    ----------
    state : Path
        The agent's directory.
    identifier : str
        Of the run or task.
    document : dict
    """
    folder = state / _FOLDER
    if len(json.dumps(document)) > _LONGEST:
        return
    with storage_errors(folder):
        folder.mkdir(mode=0o700, exist_ok=True)
        write_json(folder / f"{identifier}.json", document)
        for old in sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)[:-_MOST]:
            old.unlink()


def forget_asked(state: Path, identifier: str) -> None:
    """Drop what has been approved."""
    with storage_errors(state):
        (state / _FOLDER / f"{identifier}.json").unlink(missing_ok=True)


def asked_file(what: str, state: Path) -> Path:
    """The file that says what is to be approved.

    Parameters
    ----------
    what : str
        Identifier of what was asked for, or the path of such a file.
    state : Path
        The agent's directory.

    Returns
    -------
    Path

    Raises
    ------
    InputError
        Nothing with this identifier was asked for.
    """
    if not re.fullmatch(r"[0-9a-f]{16}", what) or Path(what).exists():
        return Path(what)
    path = state / _FOLDER / f"{what}.json"
    if not path.exists():
        raise InputError(f"{shown(state)}: nothing with identifier {what} was asked for; see 'agent status'")
    return path


def asked_lines(state: Path) -> list[str]:
    """A line for each, for the owner.

    Parameters
    ----------
    state : Path
        The agent's directory.

    Returns
    -------
    list of str
    """
    lines = []
    for path in sorted((state / _FOLDER).glob("*.json")):
        try:
            document = read_json(path)
            kind = document.get("kind", "run") if isinstance(document, dict) else "?"
        except (FastadmmError, StorageError):
            continue
        what = {
            "run": "to train",
            "align": "to compare ids",
            "predict": "for scores of rows",
            "infer": "for what standard errors need",
            "worth": "to train sets of runs",
        }.get(kind, "?")
        by = str(document.get("coordinator", ""))[:80]
        lines.append(f"{path.stem}: {by!r} asks {what}; to approve it: fastadmm agent approve {path.stem}")
    return lines

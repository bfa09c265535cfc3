"""What was asked of a party and is not approved, kept for its owner to look at: no file has to be carried.

Its identifier is a digest of all that was asked: other terms are another request, whatever run or task they
name.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from fastadmm.errors import FastadmmError, InputError, StorageError
from fastadmm.files.atomic import shown, storage_errors
from fastadmm.files.reading import read_json
from fastadmm.files.writing import write_json
from fastadmm.between.vocabulary import quoted

__all__ = ["asked_file", "asked_lines", "forget_asked", "keep_asked"]

_FOLDER = "asked"

#: So many are kept of a caller, the newest, and of so many callers; and none that is longer.
_MOST, _CALLERS, _LONGEST = 20, 10, 2 << 20


def keep_asked(state: Path, identifier: str, document: dict[str, Any]) -> None:
    """Keep what was asked for."""
    folder = state / _FOLDER
    text = json.dumps(document, sort_keys=True)
    if len(text) > _LONGEST:
        return
    digest = hashlib.sha256(text.encode()).hexdigest()[:32]
    with storage_errors(folder):
        folder.mkdir(mode=0o700, exist_ok=True)
        caller = hashlib.sha256(str(document.get("coordinator", "")).encode()).hexdigest()[:16]
        write_json(folder / f"{identifier}.{caller}.{digest}.json", document)
        # Who asks often pushes out what it asked itself, not what others did.
        kept = Counter[str]()
        for path in sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns, reverse=True):
            owner = path.name.split(".")[1]
            if kept[owner] == _MOST or (owner not in kept and len(kept) == _CALLERS):
                path.unlink()
            else:
                kept[owner] += 1


def forget_asked(state: Path, identifier: str) -> None:
    """Drop what has been approved."""
    with storage_errors(state):
        for path in (state / _FOLDER).glob(f"{identifier}.*json"):
            path.unlink(missing_ok=True)


def asked_file(what: str, state: Path) -> Path:
    """The file that says what is to be approved."""
    if not re.fullmatch(r"[0-9a-f]{16}|[0-9a-f]{32}", what) or Path(what).exists():
        return Path(what)
    paths = sorted((state / _FOLDER).glob(f"{what}.*.json" if len(what) == 16 else f"*.{what}.json"))
    if not paths:
        raise InputError(f"{shown(state)}: nothing with identifier {what} was asked for; see 'agent status'")
    if len(paths) > 1:
        names = " or ".join(_identifier(path) for path in paths[:3])
        text = f"{len(paths)} different things were asked for {what}; approve one by its own identifier"
        raise InputError(f"{shown(state)}: {text}: {names}; see 'agent status'")
    return paths[0]


def _identifier(path: Path) -> str:
    return path.name.split(".")[-2]


def asked_lines(state: Path) -> list[str]:
    """A line for each, for the owner."""
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
        name, about = _identifier(path), path.name.split(".")[0]
        by = quoted(document.get("coordinator", "") if isinstance(document, dict) else "")
        lines.append(f"{name}: {by} asks {what} ({about}); to look at it: fastadmm agent approve {name}")
    return lines

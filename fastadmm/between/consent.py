"""What an owner is shown, and the approvals that confirming it puts in force: all of it, or nothing.

A request waits; its owner looks at it; the digest of exactly what was shown, and of every approval that
would be written, confirms it. What changes meanwhile has another digest.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastadmm.between.approval import Approval
from fastadmm.between.approval_file import approval_text, write_approval
from fastadmm.between.task_approval import TaskApproval, task_approval_text, write_task_approval
from fastadmm.between.vocabulary import approve_command, quoted
from fastadmm.errors import ConfigError, FastadmmError, InputError, StorageError
from fastadmm.files.atomic import shown, storage_errors, write_json
from fastadmm.files.reading import read_json

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
    if Path(what).exists() or "." in what or "/" in what:
        return Path(what)
    if not re.fullmatch(r"[0-9a-f]{16}|[0-9a-f]{32}", what):
        raise InputError(f"{what!r}: neither a file nor an identifier of 16 or 32 digits; see 'agent status'")
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
        look = approve_command(name, kind, shown(state))
        lines.append(f"{name}: {by} asks {what} ({about}); to look at it: {look}")
    return lines


@dataclass(frozen=True)
class Consent:
    """Something that was asked for and is not approved."""

    state: Path  # the agent's directory
    identifier: str  # of the run or task
    words: Sequence[str]  # the screen, but for its end
    approvals: Sequence[Approval | TaskApproval]
    path: Path  # what messages call the approval

    @property
    def digest(self) -> str:
        """Of what is shown and of what would be in force, 32 hexadecimal digits."""
        files = [[str(one.path.relative_to(self.state)), _text(one)] for one in self.approvals]
        text = json.dumps([list(self.words), files])
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def lines(self) -> list[str]:
        """The screen."""
        return [
            *self.words,
            "NOTHING IS APPROVED YET. To approve exactly this, repeat the command with",
            f"  --confirm {self.digest}",
        ]

    def check(self, force: bool) -> None:
        """Refuse what has been approved before."""
        for one in self.approvals:
            if not force and one.path.exists():
                text = "exists already; look at it, or pass --force to ask for another in its place"
                raise StorageError(f"{shown(one.path)}: {text}")

    def confirm(self, digest: str, force: bool = False) -> None:
        """Put the approvals in force."""
        if not hmac.compare_digest(digest.encode(), self.digest.encode()):
            raise ConfigError(
                f"--confirm {shown(digest[:40])}: not what is asked now, or what is known of it has changed; "
                "nothing is approved; give the command without --confirm and look again"
            )
        self.check(force)
        for one in self.approvals:
            with storage_errors(one.path.parent):
                one.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if isinstance(one, Approval):
                write_approval(one, force=force)
            else:
                write_task_approval(one, force=force)
        forget_asked(self.state, self.identifier)


def shown_digest(lines: Sequence[str]) -> str:
    """The digest with which a screen ends; whoever confirms it has seen that screen."""
    return lines[-1].split("--confirm ")[1]


def _text(approval: Approval | TaskApproval) -> str:
    return approval_text(approval) if isinstance(approval, Approval) else task_approval_text(approval)

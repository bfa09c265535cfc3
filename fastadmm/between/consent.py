"""What an owner is shown, and the approvals that confirming it puts in force: all of it, or nothing.

A request waits; its owner looks at it; the digest of exactly what was shown, and of every approval that
would be written, confirms it. What changes meanwhile has another digest.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fastadmm.errors import ConfigError, StorageError
from fastadmm.between.asked import forget_asked
from fastadmm.between.task_approval import TaskApproval, task_approval_text, write_task_approval
from fastadmm.files.atomic import shown, storage_errors
from fastadmm.between.approval import Approval
from fastadmm.between.approval_file import approval_text, write_approval

__all__ = ["Consent", "shown_digest"]


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

"""What a party has answered beside its runs, by an agent or by files: the bytes, and what they count for."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from fastadmm.errors import InputError
from fastadmm.between.journal import Journal
from fastadmm.between.schema import digest_of
from fastadmm.between.task import Task
from fastadmm.between.task_approval import TaskApproval
from fastadmm.files.atomic import shown
from fastadmm.between.refused import code_of, refused

__all__ = ["TASKS_JOURNAL", "TaskBook", "used"]

#: Answers, in the agent's directory, or in that of a run by files.
TASKS_JOURNAL = "tasks.journal"

#: Days for which answers are kept, and bytes from which on the older ones are dropped.
_KEPT, _LONG = 30, 64 << 20

#: Codes of what is beyond an approval: there is nothing left to be counted.
_OVER = ("exchanges", "amount", "expired", "ended")


class TaskBook:
    """Every answer is on disk before it leaves, with what it counts for; what counts is kept for ever."""

    def __init__(self, folder: Path, logged: Iterable[dict[str, Any]] = ()) -> None:
        self._journal = Journal(folder / TASKS_JOURNAL)
        self._kept = [json.loads(meta) for meta, _ in self._journal.records()]
        own = {entry["request"] for entry in self._kept if "answer" in entry}
        self._lost = [one for one in logged if "counts" in one and one["request"] not in own]
        self._shorten()

    @property
    def done(self) -> list[dict[str, Any]]:
        """All that counts, of journal and audit log together."""
        return [*self._kept, *self._lost]

    def close(self) -> None:
        """Let go of the file."""
        self._journal.close()

    def keep(self, entry: dict[str, Any], message: bytes) -> None:
        """Put an answer on disk."""
        self._journal.append([json.dumps(entry).encode(), message])
        self._kept.append(dict(entry))  # the caller's own becomes a refusal's where it cannot be logged
        if self._journal.n_bytes > self._long:
            self._shorten()

    def stored(self, digest: str, place: str) -> bytes | None:
        """The answer to a request that was answered before.

        Returns: None: it was not.
        """
        for k, entry in enumerate(self.done):
            if entry["request"] == digest and "answer" in entry:
                message = b""
                if k < len(self._kept):
                    message = next(islice(self._journal.records(), k, None))[1]
                if not message:
                    text = f"{place}: answered at {entry['time']}, which is not kept any more"
                    raise refused("ended", InputError(f"{text}; begin another task"))
                return message
        return None

    def check_amount(self, asked: Task, approval: TaskApproval, place: str, remedy: str) -> dict[str, Any]:
        """What a new answer counts for; refuses more than was approved."""
        counts = self._counts(asked, approval)
        if approval.last_day is not None and datetime.date.today() > approval.last_day:
            raise refused("expired", InputError(f"{place}: the last day was {approval.last_day}"))
        if asked.call == "align":
            if not any(one["task"] == asked.task for one in self.done):
                raise refused("order", InputError(f"{place}: ends an alignment that was not begun here"))
            return counts
        counts |= {"requests": 1, "rows": _rows(asked)}
        spent = used(self.done, approval.path.name, counts["run"])
        for key, code in (("requests", "exchanges"), ("rows", "amount")):
            if spent[key] + counts[key] > getattr(approval, key):
                text = f"{place}: {spent[key]} {key} answered, {counts[key]} more asked for"
                text += f"; {shown(approval.path)} allows {getattr(approval, key)}; nothing was computed; "
                raise refused(code, InputError(text + f"to approve it as well: {remedy}"))
        return counts

    @contextmanager
    def counted_refusals(self, asked: Task, approval: TaskApproval, entry: dict[str, Any]) -> Iterator[None]:
        """Count what is refused within the block: it is an answer too, of one word."""
        try:
            yield
        except Exception as error:
            if code_of(error) not in _OVER:
                entry["counts"] = self._counts(asked, approval) | {"requests": 1}
                self.keep(entry | {"task": asked.task, "calls": [], "request": ""}, b"")
            raise

    def answered(self, entry: dict[str, Any], message: bytes, counts: dict[str, Any]) -> None:
        """Put an answer on disk, and into its line of the audit log what it counts for."""
        entry |= {"answer": digest_of(message), "repeated": False, "counts": counts}
        self.keep(entry, message)

    def _counts(self, asked: Task, approval: TaskApproval) -> dict[str, Any]:
        run = asked.arguments.get("run", "")
        return {"approval": approval.path.name, "run": run, "requests": 0, "rows": 0}

    def _shorten(self) -> None:
        """Drop the bytes of old answers, where all take much room."""
        before = (datetime.datetime.now(datetime.UTC) - datetime.timedelta(_KEPT)).isoformat()
        if self._journal.n_bytes > _LONG:
            records = zip(self._kept, self._journal.records(), strict=True)
            self._journal.rewrite(
                [meta, b"" if entry["time"] < before else message] for entry, (meta, message) in records
            )
        # Not again for every answer: what is left may be new.
        self._long = max(_LONG, 2 * self._journal.n_bytes)


def _rows(asked: Task) -> int:
    """Ids that are compared, rows that are scored, or vectors that leave."""
    if asked.call == "learn":
        return 0
    if asked.call == "span":
        return int(asked.arguments["last"] - asked.arguments["first"])
    return int(asked.arguments["n_ids" if asked.call == "intersect" else "n_samples"])


def used(entries: list[dict[str, Any]], approval: str, run: str) -> dict[str, int]:
    """What was answered or refused so far, as approvals count it."""
    counts = [one["counts"] for one in entries if "counts" in one]
    own = [one for one in counts if (one["approval"], one["run"]) == (approval, run)]
    return {key: sum(one[key] for one in own) for key in ("requests", "rows")}

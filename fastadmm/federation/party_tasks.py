"""Tasks at a party: what may be answered, what has been, and the same answer again."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any

from fastadmm.errors import InputError
from fastadmm.federation.asked import forget_asked, keep_asked
from fastadmm.federation.audit import AuditLog
from fastadmm.federation.inferring import answer_inference
from fastadmm.federation.journal import Journal
from fastadmm.federation.matching import intersect, keep_alignment
from fastadmm.federation.schema import Envelope, digest_of
from fastadmm.federation.scoring import Home, contribute
from fastadmm.federation.task import Answer, Task, encode_answer, runs_of, task_of
from fastadmm.federation.task_approval import ALIGN, INFER, PREDICT, TaskApproval, open_task_approval
from fastadmm.files.atomic import shown
from fastadmm.rounds.approval import APPROVAL
from fastadmm.rounds.refused import refused

__all__ = ["TASKS_JOURNAL", "PartyTasks", "used"]

#: Answers, in the agent's directory.
TASKS_JOURNAL = "tasks.journal"

#: Bytes of a request to compare ids: a blinded id has 35.
_SMALL, _EACH = 1 << 16, 48

#: Days for which answers are kept, and bytes from which on the older ones are dropped.
_KEPT, _LONG = 30, 64 << 20

#: What a request is about, and the approval that it needs, by its call.
_KINDS = {"contribute": ("predict", PREDICT), "span": ("infer", INFER), "learn": ("infer", INFER)}


class PartyTasks:
    """What a party answers beside its runs.

    Every answer is on disk before it leaves, with what it counts for; the same request gets the same bytes,
    for a month at least. What it counts for is kept for ever.

    Parameters
    ----------
    home : Home
    audit : AuditLog
        What a kill kept from it is made up for.
    say : callable
        Given lines for the party's own eyes.
    """

    def __init__(self, home: Home, audit: AuditLog, say: Callable[[str], None]) -> None:
        self.home, self._audit, self._say = home, audit, say
        self._journal = Journal(home.state / TASKS_JOURNAL)
        self._done: list[dict[str, Any]] = []
        for meta, _ in self._journal.records():
            entry = json.loads(meta)
            self._done.append(entry)
            if "answer" in entry and entry["request"] not in audit.answered:
                audit.add(entry)
        self._shorten()

    def close(self) -> None:
        """Let go of the file."""
        self._journal.close()

    def answer(self, envelope: Envelope, party: str, entry: dict[str, Any]) -> bytes:
        """Answer a request.

        Parameters
        ----------
        envelope : Envelope
        party : str
            Whom whoever carried it named.
        entry : dict
            Line for the audit log, with the ``caller``; what was answered is put into it, and it is added.

        Returns
        -------
        bytes

        Raises
        ------
        FastadmmError
            With the code of a refusal; then nothing was answered.
        """
        asked = task_of(envelope, "request")
        place = f"request {asked.call!r} of task {asked.task}"
        entry |= {"task": asked.task, "calls": [asked.call]}
        if asked.party != party or party != self.home.name:
            raise refused("party", InputError(f"{place}: not for {self.home.name}"))
        if asked.call == "join":
            return self._joined(asked, envelope, entry, place)
        approval = self._approval(asked, entry["caller"], place)
        if entry["caller"] not in approval.callers:
            text = f"{place}: asked by {entry['caller']!r}, but {shown(approval.path)} has callers"
            raise refused("caller", InputError(f"{text} {', '.join(approval.callers)}"))
        asked = replace(asked, digest=envelope.digest)
        entry["request"] = asked.digest
        if (message := self._stored(asked.digest, place)) is not None:
            entry |= {"answer": digest_of(message), "repeated": True}
            self._audit.add_bounded(entry)
            return message
        counts = self._check_amount(asked, approval, entry["caller"], place)
        if asked.call == "align":
            self._bind(asked, entry, place)
        answer = Answer(asked.task, asked.party, asked.digest, self._made(asked, approval, place))
        message = encode_answer(answer)
        entry |= {"answer": digest_of(message), "repeated": False, "counts": counts}
        self._keep(entry, message)
        self._audit.add(entry)
        forget_asked(self.home.state, asked.task)
        return message

    def _keep(self, entry: dict[str, Any], message: bytes) -> None:
        self._journal.append([json.dumps(entry).encode(), message])
        self._done.append(dict(entry))  # the caller's own becomes a refusal's where it cannot be logged
        if self._journal.n_bytes > self._long:
            self._shorten()

    def _shorten(self) -> None:
        """Drop the bytes of old answers, where all take much room."""
        before = (datetime.datetime.now(datetime.UTC) - datetime.timedelta(_KEPT)).isoformat()
        if self._journal.n_bytes > _LONG:
            records = zip(self._done, self._journal.records(), strict=True)
            self._journal.rewrite(
                [meta, b"" if entry["time"] < before else message] for entry, (meta, message) in records
            )
        # Not again for every answer: what is left may be new.
        self._long = max(_LONG, 2 * self._journal.n_bytes)

    def _bind(self, asked: Task, entry: dict[str, Any], place: str) -> None:
        """Let an alignment end in one way only: whether this party has other ids is nobody's to try out."""
        ends = [
            one["request"] for one in self._done if (one["task"], one["calls"]) == (asked.task, ["align"])
        ]
        if not ends:
            self._keep(entry, b"")
        elif asked.digest != ends[0]:
            raise refused("changed", InputError(f"{place}: ends with other ids than were named before"))

    def _stored(self, digest: str, place: str) -> bytes | None:
        """The answer to a request that was answered before.

        Raises
        ------
        InputError
            It is not kept any more.
        """
        numbers = [
            k for k, entry in enumerate(self._done) if entry["request"] == digest and "answer" in entry
        ]
        if not numbers:
            return None
        message = next(islice(self._journal.records(), numbers[0], None))[1]
        if not message:
            when = self._done[numbers[0]]["time"]
            text = f"{place}: answered at {when}, which is not kept any more; begin another task"
            raise refused("ended", InputError(text))
        return message

    def _joined(self, asked: Task, envelope: Envelope, entry: dict[str, Any], place: str) -> bytes:
        """Whether all runs of a set are approved; their approvals are asked for at once."""
        runs = runs_of(asked, place)
        entry["request"] = envelope.digest
        # Those alone: what is approved already is not to be approved in other terms on the way.
        missing = {run: runs[run] for run in runs if not (self.home.state / run / APPROVAL).exists()}
        if missing:
            document = {"n_samples": asked.arguments["n_samples"], "runs": missing}
            self._keep_asked(asked, entry["caller"], "worth", document)
            text = f"{place}: {len(missing)} runs; to look at them: fastadmm agent approve {asked.task}"
            raise refused("task", InputError(text))
        message = encode_answer(Answer(asked.task, asked.party, envelope.digest, {"n_runs": len(runs)}))
        entry |= {"answer": digest_of(message), "repeated": envelope.digest in self._audit.answered}
        self._audit.add_bounded(entry)
        return message

    def _keep_asked(self, asked: Task, caller: str, kind: str, about: dict[str, Any]) -> None:
        document = {"format": "fastadmm-task", "version": "1.0", "task": asked.task, "kind": kind}
        keep_asked(
            self.home.state, asked.task, document | {"coordinator": caller, "party": self.home.name} | about
        )

    def _approval(self, asked: Task, caller: str, place: str) -> TaskApproval:
        run = asked.arguments.get("run", "")
        path = self.home.state / run / _KINDS.get(asked.call, ("align", ALIGN))[1]
        if path.exists():
            return open_task_approval(path)
        if asked.call != "align":  # what ends an alignment, it has been asked for before
            self._ask_owner(asked, caller)
        text = f"{place}: no approval {shown(path)}; to look at it: fastadmm agent approve {asked.task}"
        raise refused("task", InputError(text))

    def _ask_owner(self, asked: Task, caller: str) -> None:
        simple = {k: v for k, v in asked.arguments.items() if isinstance(v, (str, int))}
        self._keep_asked(asked, caller, _KINDS.get(asked.call, ("align", ALIGN))[0], simple)

    def _check_amount(self, asked: Task, approval: TaskApproval, caller: str, place: str) -> dict[str, Any]:
        """What a new answer counts for; refuses more than was approved."""
        run = asked.arguments.get("run", "")
        counts: dict[str, Any] = {"approval": approval.path.name, "run": run, "requests": 0, "rows": 0}
        today = datetime.date.today()
        if approval.last_day is not None and today > approval.last_day:
            raise refused("expired", InputError(f"{place}: the last day was {approval.last_day}"))
        if asked.call == "align":
            if not any(one["task"] == asked.task for one in self._done):
                raise refused("order", InputError(f"{place}: ends an alignment that was not begun here"))
            return counts
        counts |= {"requests": 1, "rows": _rows(asked)}
        spent = used(self._done, approval.path.name, run)
        for key, code in (("requests", "exchanges"), ("rows", "amount")):
            if spent[key] + counts[key] > getattr(approval, key):
                text = f"{place}: {spent[key]} {key} answered, {counts[key]} more asked for"
                text += f"; {shown(approval.path)} allows {getattr(approval, key)}; nothing was computed; "
                text += f"to approve it as well: fastadmm agent approve {asked.task} --force"
                self._ask_owner(asked, caller)
                raise refused(code, InputError(text))
        if asked.call == "intersect" and len(asked.arguments["request"]) > _SMALL + _EACH * counts["rows"]:
            text = f"{place}: {len(asked.arguments['request'])} bytes are more than {counts['rows']} ids have"
            raise refused("amount", InputError(text))
        return counts

    def _made(self, asked: Task, approval: TaskApproval, place: str) -> dict[str, Any]:
        if asked.call == "contribute":
            return contribute(asked, approval, self.home, place)
        if asked.call in ("span", "learn"):
            home = self.home
            directory = home.state / asked.arguments["run"]
            answer, table = answer_inference(asked, approval, home.name, directory, home.ledger, place)
            if table is not None:
                self._say(f"{shown(table)}: standard errors of run {directory.name}")
            return answer
        if asked.call == "intersect":
            return intersect(asked, approval, self.home.state, place)
        answer, path = keep_alignment(asked, approval, self.home.state, place)
        self._say(
            f"{shown(path)}: {answer['n_samples']} rows that all parties have, for 'fastadmm convert --align'"
        )
        return answer


def _rows(asked: Task) -> int:
    """Ids that are compared, rows that are scored, or vectors that leave."""
    if asked.call == "learn":
        return 0
    if asked.call == "span":
        return int(asked.arguments["last"] - asked.arguments["first"])
    return int(asked.arguments["n_ids" if asked.call == "intersect" else "n_samples"])


def used(entries: list[dict[str, Any]], approval: str, run: str) -> dict[str, int]:
    """What answers so far count for.

    Parameters
    ----------
    entries : list of dict
        Lines of the audit log.
    approval : str
        Name of the approval's file.
    run : str
        The run whose model is applied; empty for alignments.

    Returns
    -------
    dict
        ``requests`` and ``rows``.
    """
    counts = [one["counts"] for one in entries if "counts" in one and "answer" in one]
    own = [one for one in counts if (one["approval"], one["run"]) == (approval, run)]
    return {key: sum(one[key] for one in own) for key in ("requests", "rows")}

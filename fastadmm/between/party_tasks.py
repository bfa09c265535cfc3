"""Tasks at a party: what may be answered, what has been, and the same answer again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fastadmm.between.align import intersect, keep_alignment
from fastadmm.between.approval import APPROVAL
from fastadmm.between.audit import AuditLog
from fastadmm.between.consent import forget_asked, keep_asked
from fastadmm.between.inferring import answer_inference
from fastadmm.between.schema import Envelope, digest_of
from fastadmm.between.scoring import Home, contribute
from fastadmm.between.task import Answer, Task, encode_answer, runs_of, task_of
from fastadmm.between.task_approval import ALIGN, INFER, PREDICT, TaskApproval, open_task_approval
from fastadmm.between.task_book import TaskBook
from fastadmm.between.vocabulary import KINDS, approve_command, code_of, quoted, refused
from fastadmm.errors import InputError
from fastadmm.files.atomic import shown

#: Bytes of a request to compare ids: a blinded id has 35.
_SMALL, _EACH = 1 << 16, 48

#: The approval that a request needs, by its kind.
_APPROVALS = {"predict": PREDICT, "infer": INFER, "align": ALIGN}


class PartyTasks:
    """What a party answers beside its runs.

    Every answer is on disk before it leaves, with what it counts for; the same request gets the same bytes,
    for a month at least. What it counts for is kept for ever.
    """

    def __init__(self, home: Home, audit: AuditLog, say: Callable[[str], None]) -> None:
        self.home, self._audit, self._say = home, audit, say
        self._book = TaskBook(home.state, [one for one in audit.answers if "task" in one])
        for entry in self._book.done:
            if "answer" in entry and entry["request"] not in audit.answered:
                audit.add(entry)

    def close(self) -> None:
        """Let go of the file."""
        self._book.close()

    def answer(self, envelope: Envelope, party: str, entry: dict[str, Any]) -> bytes:
        """Answer a request."""
        asked = task_of(envelope, "request")
        place = f"request {asked.call!r} of task {asked.task}"
        entry |= {"task": asked.task, "calls": [asked.call]}
        if asked.party != party or party != self.home.name:
            raise refused("party", InputError(f"{place}: not for {self.home.name}"))
        if asked.call == "join":
            return self._joined(asked, envelope, entry, place)
        approval = self._approval(asked, entry["caller"], place)
        if entry["caller"] not in approval.callers:
            text = f"{place}: asked by {quoted(entry['caller'])}, but {shown(approval.path)} has callers"
            raise refused("caller", InputError(f"{text} {', '.join(approval.callers)}"))
        asked = replace(asked, digest=envelope.digest)
        entry["request"] = asked.digest
        if (message := self._book.stored(asked.digest, place)) is not None:
            entry |= {"answer": digest_of(message), "repeated": True}
            self._audit.add_bounded(entry)
            return message
        with self._book.counted_refusals(asked, approval, entry):
            counts = self._check_amount(asked, approval, entry["caller"], place)
            if asked.call == "align":
                self._bind(asked, entry, place)
            answer = Answer(asked.task, asked.party, asked.digest, self._made(asked, approval, place))
            message = encode_answer(answer)
        self._book.answered(entry, message, counts)
        self._audit.add(entry)
        forget_asked(self.home.state, asked.task)
        return message

    def _bind(self, asked: Task, entry: dict[str, Any], place: str) -> None:
        """Let an alignment end in one way only: whether this party has other ids is nobody's to try out."""
        ends = [
            one["request"]
            for one in self._book.done
            if (one["task"], one["calls"]) == (asked.task, ["align"])
        ]
        if not ends:
            self._book.keep(entry, b"")
        elif asked.digest != ends[0]:
            raise refused("changed", InputError(f"{place}: ends with other ids than were named before"))

    def _joined(self, asked: Task, envelope: Envelope, entry: dict[str, Any], place: str) -> bytes:
        """Whether all runs of a set are approved; their approvals are asked for at once."""
        runs = runs_of(asked, place)
        entry["request"] = envelope.digest
        # Those alone: what is approved already is not to be approved in other terms on the way.
        missing = {run: runs[run] for run in runs if not (self.home.of_run(run) / APPROVAL).exists()}
        if missing:
            document = {"n_samples": asked.arguments["n_samples"], "runs": missing}
            self._keep_asked(asked, entry["caller"], "worth", document)
            text = f"{place}: {len(missing)} runs; to look at them: {self._command(asked)}"
            raise refused("task", InputError(text))
        message = encode_answer(Answer(asked.task, asked.party, envelope.digest, {"n_runs": len(runs)}))
        entry |= {"answer": digest_of(message), "repeated": envelope.digest in self._audit.answered}
        self._audit.add_bounded(entry)
        return message

    def _command(self, asked: Task) -> str:
        return approve_command(asked.task, KINDS.get(asked.call, "align"), shown(self.home.state))

    def _keep_asked(self, asked: Task, caller: str, kind: str, about: dict[str, Any]) -> None:
        document = {"format": "fastadmm-task", "version": "1.0", "task": asked.task, "kind": kind}
        keep_asked(
            self.home.state, asked.task, document | {"coordinator": caller, "party": self.home.name} | about
        )

    def _approval(self, asked: Task, caller: str, place: str) -> TaskApproval:
        run = asked.arguments.get("run", "")
        path = self.home.of_run(run) / _APPROVALS[KINDS.get(asked.call, "align")]
        if path.exists():
            return open_task_approval(path)
        if asked.call != "align":  # what ends an alignment, it has been asked for before
            self._ask_owner(asked, caller)
        text = f"{place}: no approval {shown(path)}; to look at it: {self._command(asked)}"
        raise refused("task", InputError(text))

    def _ask_owner(self, asked: Task, caller: str) -> None:
        simple = {k: v for k, v in asked.arguments.items() if isinstance(v, (str, int))}
        self._keep_asked(asked, caller, KINDS.get(asked.call, "align"), simple)

    def _check_amount(self, asked: Task, approval: TaskApproval, caller: str, place: str) -> dict[str, Any]:
        """What a new answer counts for; the owner is asked for what is more than was approved."""
        try:
            remedy = self.home.remedy or f"{self._command(asked)} --force"
            counts = self._book.check_amount(asked, approval, place, remedy)
        except InputError as error:
            if code_of(error) in ("exchanges", "amount"):
                self._ask_owner(asked, caller)
            raise
        if asked.call == "intersect" and len(asked.arguments["request"]) > _SMALL + _EACH * counts["rows"]:
            text = f"{place}: {len(asked.arguments['request'])} bytes are more than {counts['rows']} ids have"
            raise refused("amount", InputError(text))
        return counts

    def _made(self, asked: Task, approval: TaskApproval, place: str) -> dict[str, Any]:
        if asked.call == "contribute":
            return contribute(asked, approval, self.home, place)
        if asked.call in ("span", "learn"):
            home = self.home
            directory = home.of_run(asked.arguments["run"])
            answer, table = answer_inference(asked, approval, home.name, directory, home.ledger, place)
            if table is not None:
                self._say(f"{shown(table)}: standard errors of run {asked.arguments['run']}")
            return answer
        if asked.call == "intersect":
            return intersect(asked, approval, self.home.state, place)
        answer, path = keep_alignment(asked, approval, self.home.state, place)
        self._say(
            f"{shown(path)}: {answer['n_samples']} rows that all parties have, for 'fastadmm convert --align'"
        )
        return answer

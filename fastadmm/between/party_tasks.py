"""Tasks at a party: what may be answered, what has been, the same answer again, and how rows are aligned."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from fastadmm.between import schema
from fastadmm.between.approval import APPROVAL, check_caller
from fastadmm.between.approval_file import TaskApproval, open_task_approval
from fastadmm.between.audit import AuditLog, used
from fastadmm.between.consent import forget_asked, keep_asked
from fastadmm.between.host import ALIGNMENTS, Applied, Home, Made
from fastadmm.between.journal import Journal
from fastadmm.between.schema import Envelope, Message, Request, refused
from fastadmm.between.socket import Say
from fastadmm.errors import FastadmmError, FormatError, InputError
from fastadmm.files.atomic import shown, storage_errors, write_whole
from fastadmm.files.reading import json_of
from fastadmm.store.label_file import LabelWriter
from fastadmm.store.party_file import open_party

if TYPE_CHECKING:
    from fastadmm.data_tools.alignment import TableIds


#: Answers, in the agent's directory.
TASKS_JOURNAL = "tasks.journal"

#: Codes of what is beyond an approval: there is nothing left to be counted.
_OVER = ("exchanges", "amount", "expired", "ended")

#: Bytes of a request to compare ids: a blinded id has 35. Bytes that describe runs approved together.
_SMALL, _EACH, _MOST_RUNS = 1 << 16, 48, 1 << 20


class PartyTasks:
    """What a party answers beside its runs.

    Every answer is on disk before it leaves, with what it counts for; the same request gets the same bytes.
    """

    def __init__(self, home: Home, audit: AuditLog, say: Say) -> None:
        self.home, self._audit, self._say = home, audit, say
        self._journal = Journal(home.state / TASKS_JOURNAL)
        self._kept = [json.loads(meta) for meta, _ in self._journal.records()]
        own = {entry["request"] for entry in self._kept if "answer" in entry}
        logged = [one for one in audit.answers if "task" in one and "counts" in one]
        self._lost = [one for one in logged if one["request"] not in own]
        for entry in self._kept:
            if "answer" in entry and entry["request"] not in audit.answered:
                audit.add(entry)

    def close(self) -> None:
        """Let go of the file."""
        self._journal.close()

    @property
    def _done(self) -> list[dict[str, Any]]:
        """All that counts, of journal and audit log together."""
        return [*self._kept, *self._lost]

    def _keep(self, entry: dict[str, Any], message: bytes) -> None:
        """Put an answer on disk."""
        self._journal.append([json.dumps(entry).encode(), message])
        self._kept.append(dict(entry))  # the caller's own becomes a refusal's where it cannot be logged

    def _stored(self, digest: str, place: str) -> bytes | None:
        """The answer to a request that was answered before; None: it was not."""
        for k, entry in enumerate(self._done):
            if entry["request"] == digest and "answer" in entry:
                kept = islice(self._journal.records(), k, None) if k < len(self._kept) else iter(())
                if message := next(kept, [b"", b""])[1]:
                    return message
                text = f"{place}: answered at {entry['time']}, which is not kept any more; begin another task"
                raise refused("ended", text)
        return None

    def answer(self, envelope: Envelope, party: str, entry: dict[str, Any]) -> bytes:
        """Answer a request."""
        asked = schema.request_of(envelope, -1, "request")
        place = f"request {asked.call!r} of task {asked.run}"
        entry |= {"task": asked.run, "calls": [asked.call]}
        if asked.party != party or party != self.home.name:
            raise refused("party", f"{place}: not for {self.home.name}")
        if asked.call == "join":
            return self._joined(asked, envelope, entry, place)
        approval = self._approval(asked, entry["caller"], place)
        check_caller(entry["caller"], approval.callers, approval.path, place)
        asked = replace(asked, digest=envelope.digest)
        entry["request"] = asked.digest
        if (message := self._stored(asked.digest, place)) is not None:
            entry |= {"answer": schema.digest_of(message), "repeated": True}
            self._audit.add_bounded(entry)
            return message
        try:
            counts = self._check_amount(asked, approval, entry["caller"], place)
            if asked.call == "align":
                self._bind(asked, entry, place)
            values, told = _MADE[asked.call](asked, approval, self.home, place)
            if told:
                self._say(told)
            message = schema.encoded(Message(asked.run, asked.party, 0, asked.digest, values))
        except Exception as error:
            # What is refused counts: it is an answer too, of one word.
            if schema.code_of(error) not in _OVER:
                entry["counts"] = _counts(asked, approval) | {"requests": 1}
                self._keep(entry | {"task": asked.run, "calls": [], "request": ""}, b"")
            raise
        entry |= {"answer": schema.digest_of(message), "repeated": False, "counts": counts}
        self._keep(entry, message)
        self._audit.add(entry)
        forget_asked(self.home.state, asked.run)
        return message

    def _bind(self, asked: Request, entry: dict[str, Any], place: str) -> None:
        """Let an alignment end in one way only: whether this party has other ids is nobody's to try out."""
        ends = [one["request"] for one in self._done if (one["task"], one["calls"]) == (asked.run, ["align"])]
        if not ends:
            self._keep(entry, b"")
        elif asked.digest != ends[0]:
            raise refused("changed", f"{place}: ends with other ids than were named before")

    def _joined(self, asked: Request, envelope: Envelope, entry: dict[str, Any], place: str) -> bytes:
        """Whether all runs of a set are approved; their approvals are asked for at once."""
        runs, digest = _runs_of(asked, place), envelope.digest
        entry["request"] = digest
        # Those alone: what is approved already is not to be approved in other terms on the way.
        missing = {
            run: terms for run, terms in runs.items() if not (self.home.of_run(run) / APPROVAL).exists()
        }
        if missing:
            document = {"n_samples": asked.arguments["n_samples"], "runs": missing}
            self._ask_owner(asked, entry["caller"], document)
            raise refused("task", f"{place}: {len(missing)} runs; to look at them: {self._command(asked)}")
        message = schema.encoded(Message(asked.run, asked.party, 0, digest, {"n_runs": len(runs)}))
        entry |= {"answer": schema.digest_of(message), "repeated": digest in self._audit.answered}
        self._audit.add_bounded(entry)
        return message

    def _command(self, asked: Request) -> str:
        return schema.approve_command(asked.run, schema.kind_of(asked.call), shown(self.home.state))

    def _ask_owner(self, asked: Request, caller: str, about: dict[str, Any] | None = None) -> None:
        """Keep what is asked, for the owner to look at."""
        simple = {k: v for k, v in asked.arguments.items() if isinstance(v, (str, int))}
        document = {"format": "fastadmm-task", "version": "1.0", "task": asked.run}
        document |= {"kind": schema.kind_of(asked.call), "coordinator": caller, "party": self.home.name}
        keep_asked(self.home.state, asked.run, document | (simple if about is None else about))

    def _approval(self, asked: Request, caller: str, place: str) -> TaskApproval:
        run = asked.arguments.get("run", "")
        path = self.home.of_run(run) / f"{schema.kind_of(asked.call)}.toml"
        if path.exists():
            return open_task_approval(path)
        if asked.call != "align":  # what ends an alignment, it has been asked for before
            self._ask_owner(asked, caller)
        raise refused("task", f"{place}: no approval {shown(path)}; to look at it: {self._command(asked)}")

    def _check_amount(
        self, asked: Request, approval: TaskApproval, caller: str, place: str
    ) -> dict[str, Any]:
        """What a new answer counts for; the owner is asked for what is more than was approved."""
        counts = _counts(asked, approval)
        if approval.last_day is not None and datetime.date.today() > approval.last_day:
            raise refused("expired", f"{place}: the last day was {approval.last_day}")
        if asked.call == "align":
            if not any(one["task"] == asked.run for one in self._done):
                raise refused("order", f"{place}: ends an alignment that was not begun here")
            return counts
        given = asked.arguments
        rows = {"learn": 0, "span": given.get("last", 0) - given.get("first", 0)}
        # Ids that are compared, rows that are scored, or vectors that leave.
        counts |= {"requests": 1, "rows": rows.get(asked.call, given.get("n_ids", given.get("n_samples")))}
        spent = used(self._done, approval.path.name, counts["run"])
        for key, code in (("requests", "exchanges"), ("rows", "amount")):
            if spent[key] + counts[key] > (most := getattr(approval, key)):
                self._ask_owner(asked, caller)
                text = (
                    f"{place}: {spent[key]} {key} answered, {counts[key]} more asked for; "
                    f"{shown(approval.path)} allows {most}; nothing was computed; to approve it as well: "
                    f"{self._command(asked)} --force"
                )
                raise refused(code, text)
        if (size := len(given.get("request", ""))) > _SMALL + _EACH * counts["rows"]:
            raise refused("amount", f"{place}: {size} bytes are more than {counts['rows']} ids have")
        return counts


def _counts(asked: Request, approval: TaskApproval) -> dict[str, Any]:
    run = asked.arguments.get("run", "")
    return {"approval": approval.path.name, "run": run, "requests": 0, "rows": 0}


def _runs_of(task: Request, place: str) -> dict[str, dict[str, Any]]:
    """What the runs of a set are about, by identifier."""
    raw, runs = task.arguments["runs"].tobytes(), None
    if len(raw) > _MOST_RUNS:
        raise refused("values", f"{place}: 'runs' has more than {_MOST_RUNS} bytes", FormatError)
    with suppress(ValueError):
        runs = json_of(raw, foreign=True)
    if not isinstance(runs, dict) or not runs or not all(map(_is_plain, runs.values())):
        raise refused("values", f"{place}: 'runs' is no table of runs", FormatError)
    return {schema.run_identifier(run, place): terms for run, terms in runs.items()}


def _is_plain(terms: object) -> bool:
    """Whether it is a table of texts and numbers: nested ones would be kept at many times their size."""
    return isinstance(terms, dict) and all(
        isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value))
        for value in terms.values()
    )


def intersect(asked: Request, approval: TaskApproval, home: Home, place: str) -> Made:
    """Blind the coordinator's ids once more, and the table's own."""
    from fastadmm.data_tools.alignment import psi_respond

    ids, n_ids = _ids(approval), asked.arguments["n_ids"]
    with _given(asked.arguments["request"], home, place) as request:
        response = request.with_name("response")
        if (count := psi_respond(ids, request, response)) != n_ids:
            raise refused("values", f"{place}: says {n_ids} ids, but holds {count}; nothing is answered")
        return {"response": np.frombuffer(response.read_bytes(), dtype=np.uint8)}, ""


def keep_alignment(asked: Request, approval: TaskApproval, home: Home, place: str) -> Made:
    """Keep the rows that all parties have, if this one has them."""
    from fastadmm.data_tools.alignment import read_alignment, rows_of

    raw, path = asked.arguments["alignment"], _kept_in(home, ALIGNMENTS, f"{asked.run}.json")
    with _given(raw, home, place) as given:
        alignment = read_alignment(given)
    try:
        rows_of(_ids(approval), alignment)
    except InputError as error:
        raise refused("rows", f"{place}: {error}") from None
    write_whole(path, raw.tobytes())
    n = len(alignment.ids)
    told = f"{shown(path)}: {n} rows that all parties have, for 'fastadmm convert --align'"
    return {"n_samples": n}, told


def keep_labels(asked: Request, approval: TaskApproval, home: Home, place: str) -> Made:
    """Keep labels after randomised response, of the rows of the approved features."""
    data, given = open_party(Path(approval.file)), asked.arguments
    n, labels = data.n_samples, given["labels"]
    if (n, data.row_digest, n) != (given["n_samples"], given["row_digest"], len(labels)):
        text = f"{place}: about other rows than those of {shown(data.path)}; align the rows first"
        raise refused("rows", text)
    path = _kept_in(home, "labels", f"{asked.run}.h5")
    try:
        how = {"classes": json_of(given["classes"], foreign=True), "label_epsilon": given["label_epsilon"]}
        with LabelWriter(path, task="classification", force=True, **how) as writer:
            writer.append(labels.astype(np.float64), ids=data.ids())
    except (ValueError, TypeError, FastadmmError) as error:
        raise refused("values", f"{place}: no labels of two classes: {error}") from None
    return {"n_samples": n}, f"{shown(path)}: labels with noise, for 'fastadmm scorecard bins --labels'"


@contextmanager
def _given(raw: np.ndarray, home: Home, place: str) -> Iterator[Path]:
    """What was sent, as a file of its own; how it is damaged is refused."""
    with TemporaryDirectory(prefix=".", dir=home.state) as folder:
        path = Path(folder, "given")
        path.write_bytes(raw.tobytes())
        try:
            yield path
        except FormatError as error:
            raise refused("damaged", f"{place}: {error}", FormatError) from None


def _kept_in(home: Home, folder: str, name: str) -> Path:
    """A file of the agent's directory, in a folder that is there."""
    path = home.state / folder / name
    with storage_errors(path):
        path.parent.mkdir(mode=0o700, exist_ok=True)
    return path


#: What answers a call.
_MADE: dict[str, Callable[[Request, TaskApproval, Home, str], Made]] = {
    "intersect": intersect,
    "align": keep_alignment,
    "release": keep_labels,
    "contribute": lambda *about: Applied(*about).scores(),
    **dict.fromkeys(("span", "learn"), lambda *about: Applied(*about).inference()),
}


def _ids(approval: TaskApproval) -> TableIds:
    from fastadmm.data_tools.alignment import file_ids
    from fastadmm.data_tools.csv_table import Layout

    if approval.id is None:
        raise InputError(
            f"{shown(approval.path)}: key 'id' is missing: which column of the table has the ids?"
        )
    layout = Layout(approval.separator)
    return file_ids(approval.file, approval.id, layout, approval.duplicates, approval.id_pattern)

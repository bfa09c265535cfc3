"""What a party has answered beside its runs, by an agent or by files: the bytes, and what they count for."""

from __future__ import annotations

import datetime
import json
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from fastadmm.between.hub import Ask
from fastadmm.between.journal import Journal
from fastadmm.between.letters import Waiting
from fastadmm.between.schema import ProtocolError, Refusal, digest_of, open_envelope, run_identifier
from fastadmm.between.socket import LONGEST, Lost
from fastadmm.between.task import Task, answer_of_task, encode_task
from fastadmm.between.task_approval import TaskApproval
from fastadmm.between.train import PAUSES
from fastadmm.between.vocabulary import CODES, KINDS, code_of, refused, unapproved
from fastadmm.errors import ConfigError, FastadmmError, FormatError, InputError
from fastadmm.files.atomic import remove_leftovers, shown, storage_errors, write_json
from fastadmm.files.reading import read_json
from fastadmm.runs.folder import run_lock

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


_TASK = "task.json"

#: Seconds that an answer may take: a table is read, ids are blinded.
_SECONDS = 300.0

#: Takes the answer of a party.
Take = Callable[[str, dict[str, Any]], None]


@contextmanager
def task_folder(path: Path, kind: str, about: Mapping[str, Any]) -> Iterator[str]:
    """Begin a task, or go on with it; one process at a time."""
    file = path / _TASK
    if not file.exists():
        with storage_errors(path):
            path.mkdir(mode=0o700, exist_ok=True)
            if any(path.iterdir()):
                raise ConfigError(f"{shown(path)}: exists already and is no task; choose another name")
        write_json(file, {"kind": kind, "task": secrets.token_hex(8), "about": dict(about)})
    with run_lock(path):
        remove_leftovers(path)
        known = read_json(file)
        if not isinstance(known, dict) or known.keys() != {"kind", "task", "about"}:
            raise FormatError(f"{shown(file)}: not our record; choose another directory")
        if (known["kind"], known["about"]) != (kind, dict(about)):
            raise ConfigError(f"{shown(path)}: began as another task; choose another directory")
        yield run_identifier(known["task"], shown(file))


def ask_all(ask: Ask, tasks: Mapping[str, Task], take: Take, say: Callable[[str], None]) -> None:
    """Ask parties at once, those that are lost again, until all have answered."""
    waiting, pauses = dict(tasks), list(PAUSES)
    while waiting:
        with ThreadPoolExecutor(len(waiting)) as pool:
            works = {name: pool.submit(_answer, ask, task) for name, task in waiting.items()}
        lost, wrong = None, None
        absent: list[str] = []
        missing: list[Waiting] = []
        for name, work in works.items():
            try:
                take(name, work.result())
                del waiting[name]
            except Lost as error:
                lost = error
            except Waiting as error:
                missing.append(error)
            except FastadmmError as error:
                if error.refusal == "task":
                    absent.append(name)
                else:
                    wrong = wrong or error
        if wrong is not None:
            raise wrong
        if absent:
            one = tasks[absent[0]]
            raise unapproved(absent, one.task, KINDS.get(one.call, "align"))
        if missing:
            raise Waiting.of(missing, f"task {tasks[str(missing[0])].task}")
        if lost is not None:
            if not pauses:
                raise Lost(f"{lost}; the same command goes on where this task is") from None
            say(f"{lost}; next attempt in {pauses[0]:g} s")
            time.sleep(pauses.pop(0))


def _answer(ask: Ask, task: Task) -> dict[str, Any]:
    raw, place = encode_task(task), f"party {task.party}"
    said = ask(task.party, raw, _SECONDS)
    try:
        found = answer_of_task(
            open_envelope(said, LONGEST, place), replace(task, digest=digest_of(raw)), place
        )
    except ProtocolError as error:
        raise FormatError(f"{error}; nothing of it is kept") from None
    if isinstance(found, Refusal):
        text = f"{place}: refused ({found.code}): {CODES[found.code]}"
        raise refused(found.code, InputError(text))
    return found.answer

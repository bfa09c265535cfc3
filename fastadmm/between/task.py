"""Messages beside those of a run: to align rows, to apply a model, to infer; each request stands for itself.

Same bytes as in :mod:`fastadmm.between.schema`: a head of canonical JSON, and arrays. A request that is
made again gets the stored answer, so a *task*, which is one of the coordinator's directories, has an
identifier of its own: the same question in another task is another request.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from fastadmm.between.hub import PAUSES, Ask
from fastadmm.between.letters import Waiting
from fastadmm.between.schema import (
    CODES,
    KINDS,
    UNREAD,
    Body,
    Envelope,
    ProtocolError,
    Refusal,
    check_digest,
    check_head,
    digest_of,
    encoded,
    judged,
    open_envelope,
    refusal_of,
    refused,
    run_identifier,
    unapproved,
)
from fastadmm.between.socket import LONGEST, Lost
from fastadmm.conversation.calls import TASKS, check_values, fields_of
from fastadmm.errors import ConfigError, FastadmmError, FormatError, InputError
from fastadmm.files.atomic import remove_leftovers, shown, storage_errors, write_json
from fastadmm.files.reading import json_of, read_json
from fastadmm.runs.folder import run_lock

T = TypeVar("T")

#: Of the requests, as their heads name it.
KIND = "task"

_ANSWER = "task answer"

#: Bytes of the description of runs that are approved together.
_MOST_RUNS = 1 << 20


@dataclass(frozen=True)
class Task:
    """A request."""

    task: str  # identifier of the coordinator's task
    party: str
    call: str  # a key of TASKS
    arguments: dict[str, Any]
    digest: str = ""  # of its bytes; empty where it is not known yet


@dataclass(frozen=True)
class Answer:
    """What a party answers."""

    task: str
    party: str
    request: str  # digest of the request
    answer: dict[str, Any]


encode_task: Callable[[Task], bytes] = partial(encoded, KIND)
encode_answer: Callable[[Answer], bytes] = partial(encoded, _ANSWER)


def task_of(envelope: Envelope, place: str) -> Task:
    """The request in an envelope, each value checked, without its digest; it is not read as a whole."""
    head, body = envelope.head, Body(envelope.body, place)
    check_head(head, ("task", "party", "call", "arguments"), KIND, place)
    call = head["call"]
    if not isinstance(call, str) or call not in TASKS:
        raise ProtocolError(f"{place}: call {str(call)[:80]!r} is unknown here", "call")
    arguments = body.values(head["arguments"])
    body.end()
    judged(check_values, arguments, fields_of(TASKS[call].arguments), f"{place}: call {call!r}")
    if "run" in arguments:
        run_identifier(arguments["run"], place)
    if "row_digest" in arguments:
        check_digest(arguments["row_digest"], "row_digest", place)
    return Task(head["task"], head["party"], call, arguments)


def answer_of_task(envelope: Envelope, task: Task, place: str) -> Answer | Refusal:
    """What a party answered to a request; or its refusal."""
    head, body = envelope.head, Body(envelope.body, place)
    if head.get("kind") == "refusal":
        refusal = refusal_of(envelope, place)
        if refusal.request not in (task.digest, UNREAD):
            raise ProtocolError(f"{place}: refuses another request than ours")
        return refusal
    check_head(head, ("task", "party", "request", "answer"), _ANSWER, place)
    if (head["task"], head["party"], head["request"]) != (task.task, task.party, task.digest):
        raise ProtocolError(f"{place}: answers another request than ours")
    answer = body.values(head["answer"])
    body.end()
    judged(check_values, answer, fields_of(TASKS[task.call].answer), f"{place}: answer to {task.call!r}")
    if task.call == "contribute":
        if len(answer) != 1:
            raise ProtocolError(f"{place}: one of 'scores' and 'class_scores' is needed", "values")
        (scores,) = answer.values()
        if len(scores) != (n := task.arguments["n_samples"]):
            raise ProtocolError(f"{place}: scores of {len(scores)} rows instead of {n}", "values")
    return Answer(task.task, task.party, task.digest, answer)


def runs_of(task: Task, place: str) -> dict[str, dict[str, Any]]:
    """What the runs of a set are about, by identifier."""
    raw = task.arguments["runs"].tobytes()
    if len(raw) > _MOST_RUNS:
        raise ProtocolError(f"{place}: 'runs' has more than {_MOST_RUNS} bytes", "values")
    try:
        runs = json_of(raw, foreign=True)
    except ValueError:
        runs = None
    if not isinstance(runs, dict) or not runs or not all(map(_is_plain, runs.values())):
        raise ProtocolError(f"{place}: 'runs' is no table of runs", "values")
    return {run_identifier(run, place): terms for run, terms in runs.items()}


def _is_plain(terms: object) -> bool:
    """Whether it is a table of texts and numbers: nested ones would be kept at many times their size."""
    return isinstance(terms, dict) and all(
        isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value))
        for value in terms.values()
    )


# --- at the coordinator ---

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


def persistent(
    go: Callable[[], T], say: Callable[[str], None], remedy: str, pauses: list[float] | None = None
) -> T:
    """What ``go`` gives, which is tried again where a party was lost: it may come back."""
    pauses = list(PAUSES) if pauses is None else pauses
    while True:
        try:
            return go()
        except Lost as error:
            if not pauses:
                raise Lost(f"{error}; {remedy}") from None
            say(f"{error}; next attempt in {pauses[0]:g} s")
            time.sleep(pauses.pop(0))


def ask_all(ask: Ask, tasks: Mapping[str, Task], take: Take, say: Callable[[str], None]) -> None:
    """Ask parties at once, those that are lost again, until all have answered."""
    waiting = dict(tasks)
    if waiting:
        persistent(lambda: _ask_once(ask, waiting, take), say, "the same command goes on where this task is")


def _ask_once(ask: Ask, waiting: dict[str, Task], take: Take) -> None:
    """Ask all that have not answered."""
    with ThreadPoolExecutor(len(waiting)) as pool:
        works = {name: pool.submit(_answer, ask, task) for name, task in waiting.items()}
    absent: list[str] = []
    missing: list[Waiting] = []
    others: list[FastadmmError] = []
    for name, work in works.items():
        try:
            take(name, work.result())
            del waiting[name]
        except Waiting as error:
            missing.append(error)
        except FastadmmError as error:
            if error.refusal == "task":
                absent.append(name)
            else:
                others.append(error)
    others.sort(key=lambda error: isinstance(error, Lost))
    if others and not isinstance(others[0], Lost):
        raise others[0]
    if absent:
        one = waiting[absent[0]]
        raise unapproved(absent, one.task, KINDS.get(one.call, "align"))
    if missing:
        raise Waiting.of(missing, f"task {waiting[str(missing[0])].task}")
    if others:
        raise others[0]


def _answer(ask: Ask, task: Task) -> dict[str, Any]:
    return answer_values(ask(task.party, encode_task(task), _SECONDS), task, f"party {task.party}")


def answer_values(said: bytes, task: Task, place: str) -> dict[str, Any]:
    """What a message answers to this very request."""
    sent = replace(task, digest=digest_of(encode_task(task)))
    try:
        found = answer_of_task(open_envelope(said, LONGEST, place), sent, place)
    except ProtocolError as error:
        raise FormatError(str(error)) from None
    if isinstance(found, Refusal):
        text = f"{place}: refused ({found.code}): {CODES[found.code]}"
        raise refused(found.code, InputError(text))
    return found.answer

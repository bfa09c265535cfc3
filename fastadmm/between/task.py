"""Messages beside those of a run: to align rows, to apply a model, to infer; each request stands for itself.

Same bytes as in :mod:`fastadmm.between.schema`: a head of canonical JSON, and arrays. A request that is
made again gets the stored answer, so a *task*, which is one of the coordinator's directories, has an
identifier of its own: the same question in another task is another request.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from fastadmm.between.schema import (
    UNREAD,
    Body,
    Envelope,
    ProtocolError,
    Refusal,
    check_digest,
    check_head,
    encoded,
    judged,
    refusal_of,
    run_identifier,
)
from fastadmm.conversation.calls import Field, answer_fields, argument_fields, check_values
from fastadmm.files.reading import json_of

#: Of the requests, as their heads name it.
KIND = "task"

_ANSWER = "task answer"

#: Bytes of the description of runs that are approved together.
_MOST_RUNS = 1 << 20

_TEXT = Field("text", True, None)
_COUNT = Field("positive count", True, None)
_BYTES = Field("bytes", True, (-1,), "|u1")

#: Which model, and which rows.
_MODEL = {"run": _TEXT, "model_id": _TEXT, "n_samples": _COUNT, "row_digest": _TEXT}

#: What each request holds, and its answer. ``request``, ``response``: of the private set intersection.
#: ``runs``: which runs are to be approved together, with rows of their models to be scored.
#: ``alignment``: the file of the common ids. ``scores``: D x of these rows, of several classes for each.
#: ``span``, ``learn``: as in the table of calls, with what they are about.
_TASKS: dict[str, tuple[dict[str, Field], dict[str, Field]]] = {
    "intersect": ({"n_ids": _COUNT, "request": _BYTES}, {"response": _BYTES}),
    "align": ({"alignment": _BYTES}, {"n_samples": _COUNT}),
    "join": ({"runs": _BYTES, "n_samples": _COUNT}, {"n_runs": _COUNT}),
    "contribute": (
        _MODEL,
        {
            "scores": Field("vector", False, (-1,), "<f8"),
            "class_scores": Field("matrix", False, (-1, -1), "<f8"),
        },
    ),
    **{
        name: ({**_MODEL, **argument_fields(name, -1, "")}, answer_fields((name, {}), -1))
        for name in ("span", "learn")
    },
}


@dataclass(frozen=True)
class Task:
    """A request."""

    task: str  # identifier of the coordinator's task
    party: str
    call: str  # a key of the table above
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
    if not isinstance(call, str) or call not in _TASKS:
        raise ProtocolError(f"{place}: call {str(call)[:80]!r} is unknown here", "call")
    arguments = body.values(head["arguments"])
    body.end()
    judged(check_values, arguments, _TASKS[call][0], f"{place}: call {call!r}")
    if "row_digest" in arguments:
        run_identifier(arguments["run"], place)
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
    judged(check_values, answer, _TASKS[task.call][1], f"{place}: answer to {task.call!r}")
    if task.call == "contribute":
        _check_scores(answer, task.arguments["n_samples"], place)
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


def _check_scores(answer: dict[str, Any], n_samples: int, place: str) -> None:
    if len(answer) != 1:
        raise ProtocolError(f"{place}: one of 'scores' and 'class_scores' is needed", "values")
    (scores,) = answer.values()
    if len(scores) != n_samples:
        raise ProtocolError(f"{place}: scores of {len(scores)} rows instead of {n_samples}", "values")

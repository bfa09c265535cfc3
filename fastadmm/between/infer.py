"""Standard errors between parties: the coordinator's side, over the channel or by files.

The same talk as in one process (:func:`fastadmm.inference.between.inferring`), carried as tasks. Every answer
is a file of the task's directory before it is used, so the same command goes on where this one ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastadmm.between.hub import Ask
from fastadmm.between.letters import Waiting, open_letter, sealed
from fastadmm.between.predict import coordinator_of
from fastadmm.between.run_problem import problem_of, scheme_of
from fastadmm.between.schema import ProtocolError, Refusal, digest_of, open_envelope
from fastadmm.between.setup import read_setup
from fastadmm.between.socket import LONGEST
from fastadmm.between.task import Answer, Task, answer_of_task, encode_answer, encode_task
from fastadmm.between.task_book import ask_all, task_folder
from fastadmm.conversation.calls import SUMS
from fastadmm.conversation.exchange import Answers, Exchange, converse
from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, FormatError, InputError
from fastadmm.files.atomic import shown, write_json, write_whole
from fastadmm.files.reading import read_bytes
from fastadmm.inference.between import Asked, inferring
from fastadmm.inference.table import Inference, check_level
from fastadmm.runs.provenance import labels_digest
from fastadmm.store.model import open_shared_part

#: The result, in the task's directory.
INFERENCE = "inference.json"


def federate_infer(
    config: Path, run: Path, out: Path, *, covariance: str, level: float, say: Callable[[str], None] = print
) -> Inference:
    """Standard errors of a run's model whose parties have agents."""
    with read_setup(config).ways.opened(say, ends=False) as ask:
        return ask_inference(ask, run, out, covariance=covariance, level=level, say=say)


def ask_inference(
    ask: Ask, run: Path, out: Path, *, covariance: str, level: float, say: Callable[[str], None]
) -> Inference:
    """Standard errors of a run's model, with a given way to ask the parties."""
    asked, about, names = _asked(run, covariance, level)
    with (
        task_folder(out, "infer", {**about, "covariance": covariance}) as task,
        Engine(None) as engine,
        engine.limited(),
    ):
        found = converse(inferring(asked, engine), _Kept(out, task, names, about, ask, say).carry)
        assert found is not None  # every answer is there
        write_json(out / INFERENCE, found.to_dict())
    return found


def coordinator_infer(
    run: Path, out: Path, messages: Sequence[Path], *, covariance: str, level: float
) -> Inference | list[Path]:
    """Standard errors by files: take answers in, and go on as far as they allow."""
    given = {path: open_letter(path, LONGEST) for path in messages}
    found: Inference | list[Path]

    def ask(name: str, raw: bytes, seconds: float) -> bytes:
        for envelope in given.values():
            if envelope.head.get("request") == digest_of(raw):
                return envelope.raw
        number = 1 + len(list(out.glob(f"answer-*-{name}.msg")))
        request = out / f"request-{number}-{name}.msg"
        write_whole(request, sealed(raw), force=True)
        raise Waiting(name, [request])

    try:
        found = ask_inference(ask, run, out, covariance=covariance, level=level, say=print)
    except Waiting as waiting:
        found = waiting.requests
    known = {digest_of(read_bytes(path)) for path in out.glob("answer-*.msg")}
    for path, envelope in given.items():
        if envelope.digest not in known:
            raise InputError(f"{shown(path)}: answers none of the requests in {shown(out)}")
    return found


def _asked(run: Path, covariance: str, level: float) -> tuple[Asked, dict[str, Any], list[str]]:
    """What is asked, what requests say of the run, and whom."""
    check_level(level)
    coordinator = coordinator_of(run)
    config = coordinator.config
    if config.privacy.mode != "none":
        raise ConfigError(
            f"{shown(run)}: a private run: standard errors are exact functions of the private rows, and its "
            "budget does not cover them"
        )
    shared, _ = open_shared_part(run)
    problem, labels = problem_of(config, shared.names, shared.n_features)
    if scheme_of(problem, config).method(problem.traits).family in SUMS:
        raise ConfigError(
            f"{shown(run)}: the coordinator of this run saw sums over all parties only; what standard errors "
            "need comes from one party at a time"
        )
    if labels_digest(labels) != coordinator.digests["labels"]:
        raise InputError(
            f"{shown(labels.path)}: not the labels that {shown(run)} began with (digests differ)"
        )
    about = {
        "run": coordinator.run,
        "model_id": shared.model_id,
        "n_samples": labels.n_samples,
        "row_digest": labels.row_digest,
    }
    if problem.n_outputs > 1:
        raise ConfigError(f"{shown(run)}: several classes: standard errors are for one predictor")
    return Asked(problem, float(shared.intercept), covariance, level), about, shared.names


class _Kept:
    """Carries exchanges as tasks whose answers are files."""

    def __init__(
        self,
        out: Path,
        task: str,
        names: list[str],
        about: dict[str, Any],
        ask: Ask,
        say: Callable[[str], None],
    ) -> None:
        self.out, self.task, self.names, self.about = out, task, names, about
        self.ask, self.say, self.number = ask, say, 0

    def carry(self, exchange: Exchange) -> Answers:
        """The answers, each kept before it is used."""
        self.number += 1
        tasks = {}
        for call in exchange.calls:
            name = self.names[call.party]
            tasks[name] = Task(self.task, name, call.name, {**self.about, **call.made()})
        paths = {name: self.out / f"answer-{self.number}-{name}.msg" for name in tasks}
        missing = {name: task for name, task in tasks.items() if not paths[name].exists()}

        def keep(name: str, values: dict[str, Any]) -> None:
            task = missing[name]
            message = encode_answer(Answer(task.task, name, digest_of(encode_task(task)), values))
            write_whole(paths[name], message, force=True)

        ask_all(self.ask, missing, keep, self.say)
        return [_values(read_bytes(paths[name]), task, shown(paths[name])) for name, task in tasks.items()]


def _values(raw: bytes, task: Task, place: str) -> dict[str, Any]:
    """What a message answers to this very request."""
    sent = replace(task, digest=digest_of(encode_task(task)))
    try:
        found = answer_of_task(open_envelope(raw, LONGEST, place), sent, place)
    except ProtocolError as error:
        raise FormatError(str(error)) from None
    if isinstance(found, Refusal):
        raise FormatError(f"{place}: a refusal, and no answer")
    return found.answer

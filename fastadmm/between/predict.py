"""What parties are asked for beside a run: alignment, scores as ``fastadmm combine`` adds them up, inference.

Inference is the same talk as in one process (:func:`fastadmm.inference.between.inferring`), carried as tasks.
To a request that is made again a party gives the same answer, so the same command goes on where it ended.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from fastadmm.between.coordinator import Coordinator
from fastadmm.between.hub import Ask, Question, collect
from fastadmm.between.run_problem import problem_of, scheme_of
from fastadmm.between.schema import kind_of, run_identifier, task_request
from fastadmm.between.socket import LONGEST, Say
from fastadmm.between.train import Setup, read_setup
from fastadmm.conversation.calls import SUMS
from fastadmm.conversation.exchange import Answers, Exchange, converse
from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, FastadmmError, FormatError, InputError
from fastadmm.files.atomic import csv_file, remove_leftovers, shown, storage_errors, write_json, write_whole
from fastadmm.files.digest import row_digest
from fastadmm.files.reading import read_bytes, read_json
from fastadmm.inference.between import inferring
from fastadmm.inference.table import Inference, check_level
from fastadmm.runs import predict as scores
from fastadmm.runs.claim import labels_digest
from fastadmm.runs.evaluate import evaluate_predictions
from fastadmm.runs.folder import EXCHANGE, RunFolder, run_lock
from fastadmm.runs.load import seen_by_ids
from fastadmm.runs.predict import Predictions
from fastadmm.runs.scorecard import two_classes
from fastadmm.store.label_file import open_labels
from fastadmm.store.model import open_shared_part

if TYPE_CHECKING:
    from fastadmm.data_tools.alignment import Alignment, TableIds


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


def ask_all(
    ask: Ask, task: str, call: str, given: Mapping[str, dict[str, Any]], take: Take | None = None
) -> None:
    """Ask parties at once, each with arguments of its own; ``take`` is given what one answers as it comes."""

    def one(name: str, arguments: dict[str, Any]) -> None:
        question = Question(task_request(task, name, call, arguments), f"party {name}", LONGEST)
        message = question.answer(ask(name, question.raw, _SECONDS))
        if take is not None:
            take(name, message.answer)

    pool = ThreadPoolExecutor(max(1, len(given)))
    try:
        works = {name: pool.submit(one, name, arguments) for name, arguments in given.items()}
        collect(works, f"task {task}", task, kind_of(call))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # Ctrl-C does not wait for who is lost


#: The result, in the task's directory.
PREDICTIONS = "predictions.csv"


def federate_predict(
    config: Path, run: Path, rows: Path, out: Path, *, own: Path | None = None, say: Say = print
) -> Predictions:
    """Score rows whose features the parties have."""
    setup = read_setup(config)
    with setup.opened(say, ends=False) as ask:
        return ask_predictions(setup, ask, run, rows, out, own)


def federate_evaluate(config: Path, run: Path, test: Path, out: Path, **how: Any) -> dict[str, Any]:
    """Measure a model on rows whose features the parties have."""
    labels = open_labels(test)
    predictions = federate_predict(config, run, test, out, **how)
    began, looks = coordinator_of(run).config, list[str]()
    with suppress(FastadmmError):  # without the labels of training nothing is known
        looks = seen_by_ids(open_labels(Path(began.data)), labels, began.privacy.mode != "none")
    return evaluate_predictions(run, predictions, labels, test, looks=looks)


def ask_predictions(
    setup: Setup, ask: Ask, run: Path, rows: Path, out: Path, own: Path | None
) -> Predictions:
    """Predict rows whose features the parties have, with a given way to ask them."""
    identifier = coordinator_of(run).run
    shared, _ = open_shared_part(run)
    ids, digest, has_offset = _rows(rows)
    if setup.names != shared.names:
        theirs = ", ".join(shared.names)
        raise ConfigError(f"{setup.place}: parties {', '.join(setup.names)}, but the model has {theirs}")
    if (own is not None) != bool(setup.own_name):
        words = "--own: no party is the label holder's own file"
        if setup.own_name:
            words = f"{setup.own_name} is the label holder's own: give its features of these rows with --own"
        raise ConfigError(f"{setup.place}: {words}")
    arguments = {"run": identifier, "model_id": shared.model_id, "n_samples": len(ids), "row_digest": digest}
    with task_folder(out, "predict", arguments) as task:
        paths = {name: out / f"contribution-{name}.h5" for name in shared.names}

        def take(name: str, answer: dict[str, Any]) -> None:
            (values,) = answer.values()
            if values.shape[1:] != np.shape(shared.intercept):
                raise FormatError(f"party {name}: its scores are not of the model's classes; nothing is kept")
            scores.write_contribution(paths[name], scores.Contribution(name, shared.model_id, values, ids))

        asked = [name for name in setup.elsewhere if not paths[name].exists()]
        if own is not None and not paths[setup.own_name].exists():
            # It stays here: only the sum with the others is written for anybody.
            scores.partial_predict(run, own, paths[setup.own_name], allow_infinite_epsilon=True)
        ask_all(ask, task, "contribute", dict.fromkeys(asked, arguments), take)
        predictions = scores.combine_contributions(
            run, list(paths.values()), labels=rows if has_offset else None
        )
        with csv_file(out / PREDICTIONS) as file:
            scores.write_predictions(file, predictions)
    return predictions


def coordinator_of(run: Path) -> Coordinator:
    """The coordinator of a run that is over, which asks nobody."""
    folder = RunFolder(run, EXCHANGE)
    folder.require()
    return Coordinator(folder)


def _rows(path: Path) -> tuple[np.ndarray, str, bool]:
    """Ids, their digest, and whether there is an offset to be added."""
    with storage_errors(path, "read"):
        path.stat()
    if h5py.is_hdf5(path):
        labels = open_labels(path)
        return labels.ids(), labels.row_digest, labels.offset is not None
    from fastadmm.data_tools.alignment import read_alignment

    alignment = read_alignment(path)
    return alignment.ids, alignment.digest, False


def federate_labels(config: Path, labels: Path, out: Path, say: Say = print) -> tuple[int, list[str]]:
    """Give every party labels after randomised response; their number, and the parties."""
    setup, found = read_setup(config), two_classes(labels, None, labels)
    if found.label_epsilon is None:
        text = "true labels, which no party is given; make labels with noise: 'fastadmm scorecard labels'"
        raise InputError(f"{shown(labels)}: {text}")
    about = {"n_samples": found.n_samples, "row_digest": found.row_digest}
    about |= {"label_epsilon": found.label_epsilon, "classes": json.dumps(found.classes)}
    known, given = about | {"labels": labels_digest(found)}, about | {"labels": found.y.astype(np.uint8)}
    with setup.opened(say, ends=False) as ask, task_folder(out, "labels", known) as task:
        ask_all(ask, task, "release", dict.fromkeys(setup.elsewhere, given))
    return found.n_samples, setup.elsewhere


#: The result, in the task's directory.
INFERENCE = "inference.json"


def federate_infer(
    config: Path, run: Path, out: Path, *, covariance: str, level: float, say: Say = print
) -> Inference:
    """Standard errors of a run's model whose parties have agents."""
    with read_setup(config).opened(say, ends=False) as ask:
        return ask_inference(ask, run, out, covariance=covariance, level=level)


def ask_inference(ask: Ask, run: Path, out: Path, *, covariance: str, level: float) -> Inference:
    """Standard errors of a run's model, with a given way to ask the parties."""
    check_level(level)
    coordinator = coordinator_of(run)
    config, why = coordinator.config, ""
    if config.privacy.mode != "none":
        raise ConfigError(
            f"{shown(run)}: a private run: standard errors are exact functions of the private rows, and its "
            "budget does not cover them"
        )
    shared, _ = open_shared_part(run)
    problem, labels = problem_of(config, shared.names, shared.n_features)
    if scheme_of(problem, config).method(problem.traits).family in SUMS:
        why = "the coordinator of this run saw sums over all parties only; what standard errors need comes "
        why += "from one party at a time"
    elif problem.n_outputs > 1:
        why = "several classes: standard errors are for one predictor"
    if why:
        raise ConfigError(f"{shown(run)}: {why}")
    coordinator.check_began({"labels": labels})
    about: dict[str, Any] = {"run": coordinator.run, "model_id": shared.model_id}
    about |= {"n_samples": labels.n_samples, "row_digest": labels.row_digest}
    known = {**about, "covariance": covariance}
    with task_folder(out, "infer", known) as task, Engine(None) as engine, engine.limited():

        def carry(exchange: Exchange) -> Answers:
            given = {shared.names[call.party]: {**about, **call.made()} for call in exchange.calls}
            answers: dict[str, dict[str, Any]] = {}
            ask_all(ask, task, exchange.calls[0].name, given, answers.__setitem__)
            return [answers[name] for name in given]

        talk = inferring(problem, float(shared.intercept), covariance, level, engine)
        found = converse(talk, carry)
        assert found is not None  # every answer is there
        write_json(out / INFERENCE, found.to_dict())
    return found


#: The result, in the task's directory.
ROWS = "rows.json"
_REQUEST, _KEY = "request.psi", "guest.key"


def federate_align(config: Path, ids: TableIds, out: Path, say: Say = print) -> tuple[Alignment, list[str]]:
    """Find the rows that the coordinator's table and all parties' have, and tell every party."""
    from fastadmm.data_tools.alignment import library

    library()  # missing, it is missed before anybody is asked
    setup = read_setup(config)
    own = np.array(ids.texts(), dtype=object)
    about = {"parties": setup.elsewhere, "n_ids": len(own), "ids": row_digest(own)}
    with setup.opened(say, ends=False) as ask, task_folder(out, "align", about) as task:
        return _align(ask, task, setup.elsewhere, ids, out)


def _align(ask: Ask, task: str, parties: list[str], ids: TableIds, out: Path) -> tuple[Alignment, list[str]]:
    from fastadmm.data_tools.alignment import psi_finish, psi_request, read_alignment, write_alignment

    report: list[str] = []
    if not (out / ROWS).exists():
        if not (out / _REQUEST).exists():  # it is written after its key
            psi_request(ids, out / _REQUEST, out / _KEY, force=True)
        responses = {name: out / f"response-{name}.psi" for name in parties}
        request = np.frombuffer(read_bytes(out / _REQUEST, LONGEST), np.uint8)
        arguments = {"n_ids": len(ids), "request": request}

        def keep(name: str, answer: dict[str, Any]) -> None:
            write_whole(responses[name], answer["response"].tobytes())

        missing = [name for name in parties if not responses[name].exists()]
        ask_all(ask, task, "intersect", dict.fromkeys(missing, arguments), keep)
        try:
            alignment, report = psi_finish(ids, out / _KEY, list(responses.values()))
        except FastadmmError:
            # What a response is worth is seen here; asked again, a party gives the same once more.
            for path in responses.values():
                path.unlink(missing_ok=True)
            raise
        report = [line.replace(shown(path), name) for line, (name, path) in zip(report, responses.items())]
        write_alignment(out / ROWS, alignment)
    # Blinded ids are of no use any more, and the key would open them.
    for path in (out / _KEY, out / _REQUEST, *out.glob("response-*.psi")):
        with storage_errors(path):
            path.unlink(missing_ok=True)
    alignment = read_alignment(out / ROWS)
    found = {"alignment": np.frombuffer(read_bytes(out / ROWS, LONGEST), np.uint8)}
    ask_all(ask, task, "align", dict.fromkeys(parties, found))
    return alignment, report

"""A run with owners of rows on disk: charge, answer, store, step; resume without asking twice.

All T answers of an owner are charged in a privacy ledger, and the charge is on disk,
before any owner draws noise. Answers are stored before the learner uses them. A resumed run
feeds the stored answers to a new learner, which comes to the bit-identical state,
and asks only for what was never answered; noise is never drawn twice for an
answer that exists.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import shutil
import time
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fastadmm.engine import Engine
from fastadmm.errors import ConfigError, FormatError, InputError, PrivacyBudgetError, StorageError
from fastadmm.history import Status
from fastadmm.owners.collection import Owners, open_owners
from fastadmm.owners.learner import Learner
from fastadmm.owners.settings import OwnerSettings, make_settings, parse_epsilons, read_settings
from fastadmm.owners.setup import Setup, describe_setup, make_setup
from fastadmm.privacy.accounting import gdp_of
from fastadmm.privacy.accounts import record_account
from fastadmm.privacy.ledger import Charge, Ledger
from fastadmm.runs.environment import available_memory, describe_environment
from fastadmm.runs.lock import run_lock
from fastadmm.runs.train import stop_on_signal
from fastadmm.store.atomic import atomic_directory, atomic_file, shown, storage_errors
from fastadmm.store.model import Model, PartyModel, write_model
from fastadmm.store.model_id import model_id_of
from fastadmm.store.reading import read_json
from fastadmm.store.transform import Transform

__all__ = ["RUN_FILE", "OwnerDisplay", "resume_owner_run", "start_owner_run"]

RUN_FILE = "owners-run.toml"
LEDGER = "ledger.jsonl"

_OWN_FILES = (
    RUN_FILE, "environment.json", LEDGER, "rounds.jsonl", "answers", "statement.json", "result.json", "model",
    ".*.tmp",
)  # fmt: skip

#: The party that a model of rows is for: a test set is converted with ``--parties 1 --names features``.
PARTY = "features"


class OwnerDisplay(Protocol):
    """Where a run shows what it does."""

    def note(self, text: str) -> None:
        """Show one line."""

    def start(self, rounds: int) -> None:
        """Rounds begin."""

    def round(self, record: dict[str, Any]) -> None:
        """One round is done."""

    def stop(self) -> None:
        """Rounds are over."""


class _Silent:
    def note(self, text: str) -> None:
        pass

    def start(self, rounds: int) -> None:
        pass

    def round(self, record: dict[str, Any]) -> None:
        pass

    def stop(self) -> None:
        pass


def start_owner_run(
    settings: OwnerSettings,
    out: Path,
    *,
    force: bool = False,
    objective: bool = False,
    stream: bool = False,
    display: OwnerDisplay | None = None,
) -> dict[str, Any]:
    """Train with owners of rows into a new run directory.

    Parameters
    ----------
    settings : OwnerSettings
    out : Path
        Run directory to create; it appears only once data and settings are found valid.
    force : bool
        Whether an older run there may be replaced.
    objective : bool
        Log the true objective of every round, which reads the data without noise: for simulations.
    stream : bool
        Read rows from the files in every round, whatever their size.
    display : OwnerDisplay, optional

    Returns
    -------
    dict
        The content of ``result.json``.

    Raises
    ------
    FastadmmError
        Invalid data, settings or paths; nothing is left behind.
    """
    display = display or _Silent()
    with storage_errors(out):
        if out.exists() and not force and (not out.is_dir() or any(out.iterdir())):
            raise StorageError(f"{shown(out)}: exists already; choose another name or pass --force")
    data = open_owners(settings.data)
    engine = Engine(settings.threads)
    setup = _setup(settings, data, engine, stream)
    identifier = secrets.token_hex(8)
    with atomic_directory(out, force=force, marker=RUN_FILE, only=_OWN_FILES) as directory:
        _write_settings(directory / RUN_FILE, settings, out, data, identifier, objective)
        _write_json(directory / "environment.json", describe_environment(engine.n_threads))
        _write_json(directory / "statement.json", describe_setup(setup))
        (directory / "answers").mkdir()
    try:
        with run_lock(out):
            return _run(out, identifier, setup, data, objective, display)
    except PrivacyBudgetError:
        shutil.rmtree(out, ignore_errors=True)  # nobody was asked
        raise


def resume_owner_run(
    run: Path, *, stream: bool = False, display: OwnerDisplay | None = None
) -> dict[str, Any]:
    """Continue a run; the noise of stored answers is not drawn again.

    Parameters
    ----------
    run : Path
        Run directory.
    stream : bool
        As in :func:`start_owner_run`.
    display : OwnerDisplay, optional

    Returns
    -------
    dict
        The content of ``result.json``.

    Raises
    ------
    StorageError
        There is no run.
    InputError
        The data are no longer those the run began with.
    """
    display = display or _Silent()
    path = run / RUN_FILE
    with storage_errors(run, "read"):
        if not path.is_file():
            raise StorageError(f"{shown(run)}: no {RUN_FILE}: not a run with owners of rows")
    values = read_settings(path)
    identifier = str(values.pop("run", ""))
    provenance, objective = values.pop("provenance", None), bool(values.pop("objective", False))
    settings = make_settings(values, shown(path))
    data = open_owners(settings.data)
    if provenance != _provenance(data):
        raise InputError(f"{shown(data.path)}: not the data that {shown(run)} began with; train anew")
    with run_lock(run):
        finished = run / "result.json"
        if finished.is_file():
            document = _finished(finished)
            if document["status"] == Status.CONVERGED:
                display.note(f"nothing to do: {document['message']}")
                return document
        setup = _setup(settings, data, Engine(settings.threads), stream)
        return _run(run, identifier, setup, data, objective, display)


def _setup(settings: OwnerSettings, data: Owners, engine: Engine, stream: bool) -> Setup:
    free = available_memory()
    need = sum(owner.nbytes for owner in data.owners)
    in_memory = not stream and (free is None or need < free // 2)
    return make_setup(settings, data, engine, in_memory=in_memory)


def _run(
    run: Path, identifier: str, setup: Setup, data: Owners, objective: bool, display: OwnerDisplay
) -> dict[str, Any]:
    statement = describe_setup(setup)
    display.note(
        f"{setup.n_samples} records, {len(setup.owners)} owners "
        f"({', '.join(f'{o.name}: {o.n_samples}' for o in setup.owners)}), {setup.n_parameters} parameters"
    )
    display.note(f"method '{setup.method}', step {setup.step:.4g}, {setup.settings.rounds} rounds")
    display.note(statement["sentence"])
    learner = setup.learner()
    store = _Answers(run, setup)
    begin = time.monotonic()
    replayed = [_record(setup, learner, answers) for answers in store.stored(learner.queries)]
    _rewrite_log(run / "rounds.jsonl", replayed)
    if learner.k > 1:
        display.note(f"{learner.k - 1} rounds were answered already")
    if learner.k <= learner.queries:
        _charge(run, identifier, setup, data)
    interrupted = False
    with stop_on_signal() as stop_requested, open(run / "rounds.jsonl", "a", encoding="utf-8") as log:
        display.start(learner.queries)
        try:
            while learner.k <= learner.queries:
                if stop_requested():
                    interrupted = True
                    break
                record = _round(setup, learner, store)
                if objective:
                    record["objective"] = setup.objective(learner.model)
                record["seconds"] = time.monotonic() - begin
                log.write(json.dumps(record, allow_nan=False) + "\n")
                log.flush()
                display.round(record)
        finally:
            display.stop()
    document = _document(setup, learner, statement, interrupted)
    if objective:
        document["objective"] = setup.objective(learner.model)
    if not interrupted:
        write_model(run / "model", _model(setup, learner, data, identifier), force=True)
    _write_json(run / "result.json", document)
    return document


def _round(setup: Setup, learner: Learner, store: _Answers) -> dict[str, Any]:
    number = learner.k
    # Owners answer in their order; each of them uses all threads.
    answers = np.stack([owner.answer(learner.theta) for owner in setup.owners])
    store.store(number, answers)
    return _record(setup, learner, answers)


def _record(setup: Setup, learner: Learner, answers: np.ndarray) -> dict[str, Any]:
    """Let the learner take a step; what the round log says of it."""
    record: dict[str, Any] = {"round": learner.k, **learner.receive(setup.weights @ answers)}
    record["noise"] = math.sqrt(setup.noise_variance)
    return record


def _rewrite_log(path: Path, replayed: list[dict[str, Any]]) -> None:
    """Keep one whole line per replayed round: what was logged then, or what the answers say now."""
    kept: dict[int, dict[str, Any]] = {}
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                kept[json.loads(line)["round"]] = json.loads(line)
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
    with atomic_file(path) as temporary:
        lines = [json.dumps(kept.get(record["round"], record)) + "\n" for record in replayed]
        temporary.write_text("".join(lines), encoding="utf-8")


def _charge(run: Path, identifier: str, setup: Setup, data: Owners) -> None:
    """Charge every owner's answers of all rounds, once per run."""
    settings = setup.settings
    if not setup.bound.enforced:
        return  # nothing is claimed
    if settings.batch < 1 and settings.ledger is not None:
        raise ConfigError(
            "ledger: the cost of batches does not add up exactly with that of other runs; leave --ledger out"
        )
    ledger = Ledger(Path(settings.ledger) if settings.ledger is not None else run / LEDGER)
    budgets = parse_epsilons(settings.budget or settings.epsilon, data.names)
    for owner, file, budget in zip(setup.owners, data.owners, budgets, strict=True):
        if owner.answers.name == "none":
            continue
        delta = settings.delta / setup.kappa if settings.delta is not None else 0.0
        gaussian = settings.mechanism == "gaussian"
        charge = Charge.to(
            record_account(file),
            identifier,
            f"answers to {settings.rounds} gradient queries",
            gdp=gdp_of(owner.epsilon, delta) if gaussian else 0.0,
            pure=0.0 if gaussian else owner.epsilon,
        )
        ledger.charge(charge, budget / setup.kappa, delta if gaussian else 0.0)


class _Answers:
    """The answers of a run, one file per round."""

    def __init__(self, run: Path, setup: Setup) -> None:
        self.directory = run / "answers"
        self.shape = (len(setup.owners), setup.n_parameters)

    def _path(self, number: int) -> Path:
        return self.directory / f"round-{number:06d}.npy"

    def store(self, number: int, answers: np.ndarray) -> None:
        """Keep the answers of a round, before they are used."""
        with atomic_file(self._path(number)) as temporary, open(temporary, "xb") as file:
            np.save(file, answers, allow_pickle=False)

    def stored(self, queries: int) -> list[np.ndarray]:
        """The answers of all rounds from the first that are there, without a hole."""
        found = []
        for number in range(1, queries + 1):
            path = self._path(number)
            if not path.is_file():
                break
            with storage_errors(path, "read"):
                try:
                    answers = np.load(path, allow_pickle=False)
                except (ValueError, EOFError) as error:
                    raise FormatError(
                        f"{shown(path)}: damaged ({error}); it cannot be asked for again"
                    ) from None
            if answers.shape != self.shape or not np.isfinite(answers).all():
                raise FormatError(f"{shown(path)}: holds {answers.shape} instead of {self.shape} numbers")
            found.append(answers)
        return found


def _finished(path: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = read_json(path)
        _ = document["status"], document["message"], document["statement"]["sentence"] + ""
        for owner in document["statement"]["owners"]:
            _ = owner["name"], owner["n_samples"], float(owner["epsilon"] or 0.0), float(owner["noise_scale"])
    except (ValueError, TypeError, KeyError) as error:
        raise FormatError(f"{shown(path)}: damaged ({error}); delete it, and resume again") from None
    return document


def _document(setup: Setup, learner: Learner, statement: dict[str, Any], interrupted: bool) -> dict[str, Any]:
    done = learner.k - 1
    status = Status.INTERRUPTED if interrupted else Status.CONVERGED
    return {
        "status": str(status),
        "message": f"interrupted after {done} of {learner.queries} rounds"
        if interrupted
        else f"all {done} rounds answered",
        "rounds": done,
        "method": setup.method,
        "step": setup.step,
        "loss": setup.loss.name,
        "lambda": setup.settings.lambda_,
        "noise_variance": setup.noise_variance,
        "parameters": [float(v) for v in learner.model],
        "statement": statement,
    }


def _model(setup: Setup, learner: Learner, data: Owners, identifier: str) -> Model:
    theta = learner.model
    file = data.owners[0]
    weights = theta[: file.n_features]
    recipe = file.recipe
    if "components" in recipe:
        weights = recipe["components"].T @ weights
    return Model(
        loss=setup.loss.name,
        task=setup.loss.task,
        lam=setup.settings.lambda_,
        intercept=float(theta[-1]) if setup.settings.intercept else 0.0,
        classes=data.classes,
        parties=[
            PartyModel(
                PARTY,
                weights,
                file.source_names,
                Transform(center=recipe.get("center"), scale=recipe.get("scale")),
            )
        ],
        certificate={"status": "private gradients", "rounds": learner.k - 1},
        model_id=model_id_of(identifier, learner.k - 1),
    )


def _provenance(data: Owners) -> dict[str, str]:
    digest = {owner.name: owner.content_digest for owner in data.owners}
    kappa = hashlib.sha256(str(data.kappa).encode()).hexdigest()[:16]
    return {**digest, "kappa": kappa}


def _write_settings(
    path: Path, settings: OwnerSettings, run: Path, data: Owners, identifier: str, objective: bool
) -> None:
    import tomli_w

    base = os.path.realpath(run)
    paths = {
        key: os.path.relpath(os.path.realpath(value), base)
        for key, value in (("data", settings.data), ("ledger", settings.ledger))
        if value is not None
    }
    document = {**settings.to_toml(), **paths, "run": identifier, "provenance": _provenance(data)}
    if objective:
        document["objective"] = True
    with atomic_file(path) as temporary:
        temporary.write_text(tomli_w.dumps(document), encoding="utf-8")


def _write_json(path: Path, document: dict[str, Any]) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n", encoding="utf-8")

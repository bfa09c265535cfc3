"""A training run on disk: start it, interrupt it, resume it to the bit-identical result."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.coordinator.choice import SUBSPACE
from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, FormatError, InputError, StorageError
from fastadmm.files.atomic import atomic_file, shown, storage_errors
from fastadmm.files.reading import read_json
from fastadmm.files.retry import retried
from fastadmm.files.seal import seal_of
from fastadmm.privacy.fusion import FusionSolver
from fastadmm.privacy.ledger import refuse_to_forget
from fastadmm.privacy.message import MessageSolver
from fastadmm.privacy.published import certificate_of_model
from fastadmm.problem.class_weights import weigh_classes
from fastadmm.problem.losses import Loss, parse_loss
from fastadmm.problem.party_lambda import PartyLambda
from fastadmm.problem.problem import Problem, TestSet, make_problem
from fastadmm.runs.checkpoint import Subject, checkpoints, restore_checkpoint, write_checkpoint
from fastadmm.runs.config import (
    PATHS,
    SEAL,
    RunConfig,
    is_convex,
    make_config,
    own_lambdas,
    party_constraints,
    penalty_arguments,
    read_config,
    sealed_part,
)
from fastadmm.runs.environment import available_memory, describe_environment
from fastadmm.runs.lock import RunLock, begin_run, run_lock
from fastadmm.runs.memory import SHARE, parse_bytes
from fastadmm.runs.plan import Plan, check_limit, make_plan
from fastadmm.runs.private import (
    LEDGER,
    compare,
    make_solver,
    new_run_id,
    read_run_id,
    statement_of,
    unproved_parties,
    write_statement,
)
from fastadmm.runs.round_log import RoundLog
from fastadmm.solver.early_stopping import EarlyStopping, held_out_rows, measure, predictor
from fastadmm.solver.history import RoundRecord, Status
from fastadmm.solver.solver import Solver, SolveResult, run_rounds
from fastadmm.solver.warm_start import StartingPoint
from fastadmm.store.label_file import LabelData
from fastadmm.store.model import MANIFEST, Model, PartyModel, check_same_columns, open_model, write_model
from fastadmm.store.model_id import model_id_of
from fastadmm.store.partition import Partition, open_partition
from fastadmm.store.streamed import load_block

__all__ = [
    "OWN_FILES",
    "CheckedRun",
    "Display",
    "LoadedRun",
    "Silent",
    "certificate_of",
    "check_provenance",
    "check_run",
    "choose_loss",
    "finished_result",
    "labels_digest",
    "load_problem",
    "load_run",
    "mean_contribution",
    "model_of",
    "plan_run",
    "provenance_of",
    "remove_leftovers",
    "result_document",
    "resume_run",
    "start_run",
    "stop_on_signal",
    "unlink",
    "weigh_labels",
    "write_configuration",
    "write_json",
]

#: All that a run directory holds; one with anything else in it is never replaced.
OWN_FILES = (
    "run.toml",
    "environment.json",
    "rounds.jsonl",
    "result.json",
    "evaluation.json",
    "report.html",
    "privacy.json",
    "tracking.json",
    "tensorboard",
    "worth.json",
    "worth.partial",
    LEDGER,
    "messages",
    "fits",
    "path.json",
    "path.csv",
    "path.svg",
    "checkpoints",
    "model",
    ".*.tmp",
)


class Display(Protocol):
    """Where a run shows what it does."""

    def note(self, text: str) -> None:
        """Show one line."""

    def start(self, target: float, max_rounds: int) -> None:
        """Rounds begin."""

    def round(self, record: RoundRecord) -> None:
        """One round is done."""

    def stop(self) -> None:
        """Rounds are over."""


class Silent:
    """A display that shows nothing."""

    def note(self, text: str) -> None:
        """Show nothing."""

    def start(self, target: float, max_rounds: int) -> None:
        """Show nothing."""

    def round(self, record: RoundRecord) -> None:
        """Show nothing."""

    def stop(self) -> None:
        """Show nothing."""


def start_run(
    config: RunConfig, out: Path, *, force: bool = False, display: Display | None = None
) -> dict[str, Any]:
    """Train a model into a new run directory.

    Parameters
    ----------
    config : RunConfig
    out : Path
        Run directory to create; it appears only once data and settings are found valid.
    force : bool
        Whether an older run there may be replaced.
    display : Display, optional

    Returns
    -------
    dict
        The content of ``result.json``.

    Raises
    ------
    FastadmmError
        Invalid data, configuration or paths; nothing is left behind.
    """
    display = display or Silent()
    _refuse_existing(out, force)
    if config.path:
        from fastadmm.runs.path_run import start_path

        return start_path(config, out, force=force, display=display)
    checked = check_run(config, display)
    if checked.plan.reduced:
        # Written down: it decides what is computed, and a resumed run may find other memory.
        config = replace(config, history=checked.plan.history)
    loaded = load_run(config, checked)
    provenance = loaded.provenance
    run_id = new_run_id()
    solver = loaded.solver(config, out, run_id)

    if force and config.privacy.mode != "none":
        try:
            solver.check_budget()  # what is refused replaces nothing
        except BaseException:
            solver.close()
            raise

    def fill(directory: Path) -> None:
        write_configuration(directory / "run.toml", config, out, provenance)
        write_json(directory / "environment.json", describe_environment(solver.engine.n_threads))
        write_statement(directory, solver, run_id)

    try:
        with begin_run(out, fill, force=force, marker="run.toml", only=OWN_FILES) as lock:
            return _run(lock, config, loaded, solver, display, run_id)
    except InputError as error:
        # Some values show only when the parties prepare. A ledger stays: it may have been charged.
        if not (out / LEDGER).exists() and not (out / "rounds.jsonl").read_bytes():
            shutil.rmtree(out)
        place = shown(config.data)
        raise error if place in str(error) else InputError(f"{place}: {error}") from None


def resume_run(
    run: Path, *, changes: dict[str, Any] | None = None, display: Display | None = None
) -> dict[str, Any]:
    """Continue a run from its last checkpoint.

    Without changes the result is bit-identical to that of a run that was
    never interrupted.

    Parameters
    ----------
    run : Path
        Run directory.
    changes : dict, optional
        New limits for a run that stopped at one: ``gap`` or ``stationarity``,
        ``rounds``, ``time``; also ``threads`` and ``memory``.
    display : Display, optional

    Returns
    -------
    dict
        The content of ``result.json``.

    Raises
    ------
    StorageError
        If there is no run.
    InputError
        If the data are no longer those the run began with.
    FormatError
        If configuration or every checkpoint is damaged.
    ConfigError
        If the run is finished and no new limit was given.
    """
    display = display or Silent()
    path = run / "run.toml"
    with storage_errors(run, "read"):
        exists = path.exists()
    if not exists:
        raise StorageError(f"{shown(run)}: no run.toml: not a run; start one with 'fastadmm train'")
    values = read_config(path, sealed=True)
    provenance = values.pop("provenance", {})
    changes = {k: v for k, v in (changes or {}).items() if v is not None}
    config = make_config(values, shown(path), changes)
    if config.privacy.mode != "none" and changes.keys() & set(_LIMITS):
        raise ConfigError(
            f"{shown(run)}: the rounds of a private run were fixed and charged beforehand: no new limit; "
            "start a new run with a shared --ledger"
        )
    if config.path and changes.keys() & set(_LIMITS):
        raise ConfigError(f"{shown(run)}: a path ends when it is certified: no new limit; start a new run")
    finished = finished_result(run)
    if finished is not None and not changes.keys() & set(_LIMITS):
        if finished["status"] in (
            Status.CONVERGED,
            Status.STATIONARY,
            Status.COMPLETED,
            Status.EARLY_STOPPED,
        ):
            if (run / "model" / MANIFEST).exists():
                display.note(f"nothing to do: {finished['message']}")
                return finished
            display.note("the model is missing: made again from the last checkpoint")
        elif finished["status"] != Status.INTERRUPTED:
            raise ConfigError(
                f"{shown(run)}: the run is over ({finished['message']}); "
                f"give a new limit: --rounds, --time or --{'gap' if is_convex(config) else 'stationarity'}"
            )
    if config.path:
        from fastadmm.runs.path_run import resume_path

        return resume_path(run, config, provenance, changes, display)
    with run_lock(run) as lock:
        return _resume(lock, config, provenance, changes, display)


def _resume(
    lock: RunLock, config: RunConfig, provenance: dict[str, Any], changes: dict[str, Any], display: Display
) -> dict[str, Any]:
    """Restore the newest whole checkpoint and go on."""
    run = lock.run
    loaded = load_run(config, check_run(config, display))
    check_provenance(run, provenance, loaded.provenance, loaded.partition)
    remove_leftovers(run)
    run_id = read_run_id(run)
    solver = loaded.solver(config, run, run_id)
    subject = Subject(run_id, _problem_digest(config, loaded.provenance))
    damaged = []
    for candidate in reversed(checkpoints(run / "checkpoints")):
        try:
            retried(lambda: restore_checkpoint(candidate, solver, subject))  # noqa: B023 (called at once)
        except (FormatError, StorageError) as error:
            # What cannot be read now may be whole. Damaged is what was read and is wrong, or is not there.
            if isinstance(error, StorageError) and error.errno != errno.ENOENT:
                raise
            display.note(f"checkpoint skipped: {error}")
            damaged.append(candidate)
            solver = loaded.solver(config, run, run_id)
        else:
            display.note(f"resuming after round {solver.n_rounds}")
            break
    else:
        if damaged:
            raise FormatError(f"{shown(run / 'checkpoints')}: every checkpoint is damaged; train again")
        private = config.privacy.mode != "none"
        display.note(
            "stored messages are sent again; none is drawn again"
            if private
            else "no checkpoint yet: starting from round 1"
        )
    for path_of_damaged in damaged:
        shutil.rmtree(path_of_damaged, ignore_errors=True)
    if changes:
        # First, so that a kill between the two never leaves an old result beside new limits.
        unlink(run / "result.json")
        write_configuration(run / "run.toml", config, run, provenance)
    return _run(lock, config, loaded, solver, display, run_id)


def _problem_digest(config: RunConfig, provenance: dict[str, Any]) -> str:
    """Digest of what decides the result: not of limits, paths, threads and memory, which may change.

    Settings that have their default are left out, so that one which a later version adds changes nothing.
    """
    usual = RunConfig(config.data).to_toml()
    settings = {
        key: value
        for key, value in config.to_toml().items()
        if key not in (*PATHS, *_LIMITS, *_PLACES) and usual.get(key) != value
    }
    return seal_of({"settings": settings, "data": provenance})


#: What a resumed run may change, and what decides only where and when it works.
_LIMITS = ("gap", "stationarity", "rounds", "time")
_PLACES = ("threads", "memory", "checkpoint_rounds", "checkpoint_seconds")


def _refuse_existing(out: Path, force: bool) -> None:
    # Before any work: atomic_directory checks again when it renames.
    with storage_errors(out):
        if out.exists() and not force and (not out.is_dir() or any(out.iterdir())):
            is_run = (out / "run.toml").exists()
            hint = "continue it with 'fastadmm resume', or pass --force" if is_run else "choose another name"
            raise StorageError(f"{shown(out)}: exists already; {hint}")
        # A run appears by a rename, which would leave the user's shell in a deleted directory.
        if out.is_dir() and out.samefile(os.curdir):
            raise StorageError(f"{shown(out)}: is the current directory; name a new one with --out")
    refuse_to_forget(out / LEDGER)
    if not out.absolute().parent.is_dir():
        raise StorageError(
            f"{shown(out)}: the directory {shown(out.absolute().parent)} does not exist; create it first"
        )


def plan_run(config: RunConfig, *, display: Display | None = None) -> Plan:
    """What :func:`start_run` would do, with its seconds, from the files' headers and a short calibration.

    Parameters
    ----------
    config : RunConfig
    display : Display, optional
        Shows the plan.

    Returns
    -------
    Plan

    Raises
    ------
    FastadmmError
        As :func:`start_run`, for what the headers show.
    """
    return check_run(config, display or Silent(), timed=True).plan


@dataclass(frozen=True)
class CheckedRun:
    """Partitions that belong together, the loss, and the plan of the run."""

    partition: Partition
    test: Partition | None
    loss: Loss
    plan: Plan


def check_run(config: RunConfig, display: Display, *, timed: bool = False) -> CheckedRun:
    """Open the partitions of a configuration, choose the loss and plan the run.

    Parameters
    ----------
    config : RunConfig
    display : Display
    timed : bool
        Whether the plan has seconds, from a calibration.

    Returns
    -------
    CheckedRun
    """
    partition = open_partition(config.data)
    if partition.labels is None:
        raise InputError(f"{shown(config.data)}: no labels: training needs the label holder's file")
    test_partition = None
    if config.test is not None:
        test_partition = open_partition(config.test)
        check_same_columns(test_partition.parties, partition.parties, shown(config.test))
        _check_same_labels(test_partition, partition, config.test)
    loss = choose_loss(config, partition.task, partition.labels)
    # Refused before any data is read.
    own_lambdas(config, [p.name for p in partition.parties])
    party_constraints(config, [p.name for p in partition.parties])
    config.privacy.refuse_unproved(unproved_parties(config, partition))
    n_outputs = len(partition.labels.classes) if loss.vector and partition.labels.classes is not None else 1
    free = available_memory()
    if config.memory is not None:
        limit: int | None = parse_bytes(config.memory)
    else:
        limit = None if free is None else int(SHARE * free)
    n_threads = Engine(config.threads).n_threads
    plan = make_plan(
        partition.parties,
        test_partition.parties if test_partition else [],
        partition.n_samples,
        config,
        n_outputs,
        limit=limit,
        n_threads=n_threads,
    )
    if timed or any(p.streamed for p in plan.parties):
        from fastadmm.runs.calibration import calibrate

        rates = calibrate([p.path for p in partition.parties])
        plan = plan.timed(rates, partition.n_samples, n_threads)
    display.note(
        f"{partition.n_samples} samples, {len(partition.parties)} parties "
        f"({', '.join(f'{p.name}: {p.n_features}' for p in partition.parties)} features)"
    )
    for line in plan.lines() if timed or plan.limited else [plan.sentence()]:
        display.note(line)
    check_limit(plan, config.memory is not None, free, shown(config.data))
    return CheckedRun(partition, test_partition, loss, plan)


@dataclass(frozen=True)
class LoadedRun:
    """The data of a run, and what its solver is made of.

    Attributes
    ----------
    partition : Partition
    provenance : dict
        Digests of all that it is trained on.
    problem : Problem
    start : StartingPoint or None
    early : EarlyStopping or None
    """

    partition: Partition
    provenance: dict[str, Any]
    problem: Problem
    start: StartingPoint | None
    early: EarlyStopping | None

    def solver(self, config: RunConfig, run: Path, run_id: str) -> Any:
        """A new solver for the run.

        Parameters
        ----------
        config : RunConfig
        run : Path
            Its directory.
        run_id : str

        Returns
        -------
        Solver, MessageSolver or FusionSolver
        """
        return make_solver(config, self.problem, self.partition, run, run_id, self.start, self.early)


def weigh_labels(config: RunConfig, labels: LabelData) -> np.ndarray | None:
    """Sample weights of a run: those of the labels times the class weights.

    Parameters
    ----------
    config : RunConfig
    labels : LabelData

    Returns
    -------
    ndarray of shape (N,) or None
    """
    if config.class_weight is None:
        return labels.sample_weight
    if labels.classes is None:
        raise ConfigError(
            f"key 'class_weight': {shown(config.data)} is a regression data set, without classes"
        )
    try:
        return weigh_classes(config.class_weight, labels.y, list(labels.classes), labels.sample_weight)
    except ConfigError as error:
        raise ConfigError(str(error).replace("class_weight:", "key 'class_weight':", 1)) from None


def load_run(config: RunConfig, checked: CheckedRun) -> LoadedRun:
    """The data of a checked run.

    Parameters
    ----------
    config : RunConfig
    checked : CheckedRun

    Returns
    -------
    LoadedRun
    """
    partition, test_partition, loss, plan = checked.partition, checked.test, checked.loss, checked.plan
    labels = partition.labels
    assert labels is not None  # checked
    own = own_lambdas(config, [p.name for p in partition.parties])
    test = None
    if test_partition is not None and test_partition.labels is not None:
        known = test_partition.labels
        blocks = _blocks(test_partition, plan.streamed_tests, own)
        test = TestSet(blocks, known.y, *_weight_and_offset(test_partition))
    weight, held = weigh_labels(config, labels), None
    if isinstance(config.validation, float):
        classes = labels.classes is not None
        held = held_out_rows(labels.y, config.validation, config.seed, stratify=classes)
        weight = np.where(held, 0.0, np.ones(len(held)) if weight is None else weight)
    problem = make_problem(
        _blocks(partition, [p.streamed for p in plan.parties], own),
        labels.y,
        loss=loss.name,
        loss_parameters=loss.parameters,
        lam=config.lambda_ if own is None else own.lam,
        **penalty_arguments(config, [p.name for p in partition.parties]),
        fit_intercept=config.intercept,
        sample_weight=weight,
        offset=labels.offset,
        names=[p.name for p in partition.parties],
        test=test,
        n_classes=len(labels.classes) if loss.vector and labels.classes is not None else None,
    )
    problem = replace(problem, own_lambda=own)
    for party in partition.parties:
        _ = party.feature_names  # the model needs them at the end; damaged ones are refused at the beginning
    provenance = provenance_of(partition)
    if test_partition is not None:
        provenance["test"] = provenance_of(test_partition)
    early = None
    if config.validation is not None:
        rows = _validation_rows(config, partition, problem, held, provenance)
        early = EarlyStopping(rows, config.validation_metric, config.patience)
        # A metric that the loss does not have is refused before the run has a directory.
        z = predictor(
            rows,
            [np.zeros((b.shape[1], problem.n_outputs)[: 1 + loss.vector]) for b in problem.blocks],
            0.0,
            loss,
            Engine(1),
        )
        measure(config.validation_metric, rows, z, loss, Engine(1))
    start = None
    if config.warm_start is not None:
        model = open_model(config.warm_start)
        start = _start_of(model, partition, config.warm_start, config.intercept)
        if own is not None:
            start = replace(start, weights=own.scaled(start.weights))
        provenance["warm_start"] = _model_digest(model)
    return LoadedRun(partition, provenance, problem, start, early)


def _validation_rows(
    config: RunConfig,
    partition: Partition,
    problem: Problem,
    held: np.ndarray | None,
    provenance: dict[str, Any],
) -> TestSet:
    """Held-out rows of the run's own data, or another partition's."""
    if held is not None:
        rows = np.where(held, _weight_and_offset(partition)[0], 0.0)
        if not rows.any():
            raise InputError("key 'validation': all held-out rows have weight 0")
        return TestSet(problem.blocks, problem.y, rows, problem.offset)
    other = open_partition(str(config.validation))
    place = shown(str(config.validation))
    if other.labels is None:
        raise InputError(f"{place}: no labels: early stopping needs them")
    check_same_columns(other.parties, partition.parties, place)
    _check_same_labels(other, partition, str(config.validation))
    provenance["validation"] = provenance_of(other)
    blocks = _blocks(other, [False] * len(other.parties), problem.own_lambda)
    return TestSet(blocks, other.labels.y, *_weight_and_offset(other))


def _start_of(model: Model, partition: Partition, path: str, intercept: bool) -> StartingPoint:
    """A model's weights in the order of the partition's parties."""
    place = shown(path)
    known = {party.name: party for party in model.parties}
    weights = []
    for party in partition.parties:
        own = known.get(party.name)
        if own is None or len(known) != len(partition.parties):
            raise InputError(
                f"{place}: a model of the parties {', '.join(known)}, but the data have "
                f"{', '.join(p.name for p in partition.parties)}"
            )
        if own.feature_names != list(party.feature_names):
            raise InputError(
                f"{place}: other features of {party.name} than the data; warm starts need the same"
            )
        weights.append(own.scale * own.weights)
    classes = partition.labels.classes if partition.labels is not None else None
    if model.classes != classes:
        raise InputError(f"{place}: other classes than the data: {model.classes} and {classes}")
    return StartingPoint(weights, model.intercept if intercept else 0.0 * np.asarray(model.intercept))


def _model_digest(model: Model) -> str:
    """Digest of weights and intercept."""
    digest = hashlib.sha256(np.ascontiguousarray(model.intercept, dtype="<f8").tobytes())
    for party in model.parties:
        digest.update(np.ascontiguousarray(party.scale * party.weights, dtype="<f8").tobytes())
    return f"sha256:{digest.hexdigest()}"


def load_problem(config: RunConfig, display: Display) -> Problem:
    """The training problem of a configuration, checked as for a run.

    Parameters
    ----------
    config : RunConfig
    display : Display

    Returns
    -------
    Problem
    """
    return load_run(config, check_run(config, display)).problem


def choose_loss(config: RunConfig, task: str, labels: LabelData) -> Loss:
    """The loss asked for, or the one for this kind of labels; refused where they do not go together.

    Parameters
    ----------
    config : RunConfig
    task : str
    labels : LabelData

    Returns
    -------
    Loss
    """
    n_classes = len(labels.classes) if labels.classes is not None else 0
    if config.loss == "auto":
        usual = "multinomial" if n_classes > 2 else "logistic"
        return parse_loss(usual if task == "classification" else "squared")
    loss = parse_loss(config.loss)
    if loss.name in ("logistic", "multinomial") and task != "classification":
        needs = "two classes" if loss.name == "logistic" else "classes"
        raise ConfigError(
            f"key 'loss': {loss.name} needs {needs}, but {shown(config.data)} is a regression data set"
        )
    if n_classes > 2 and not loss.vector:
        raise ConfigError(
            f"key 'loss': {loss.name} is for two classes, but {shown(config.data)} has {n_classes}; "
            "choose multinomial or auto"
        )
    return loss


def _check_same_labels(test: Partition, train: Partition, place: str) -> None:
    if test.labels is None or train.labels is None:
        return
    if test.task != train.task or test.labels.classes != train.labels.classes:
        raise InputError(
            f"{shown(place)}: classes differ from training; convert with --like the training partition"
        )


def _blocks(partition: Partition, streamed: list[bool], own: PartyLambda | None) -> list[FeatureBlock]:
    factors = [1.0] * len(streamed) if own is None else own.factors
    return [
        load_block(party, away, factor)
        for party, away, factor in zip(partition.parties, streamed, factors, strict=True)
    ]


def _weight_and_offset(partition: Partition) -> tuple[np.ndarray, np.ndarray]:
    labels, n = partition.labels, partition.n_samples
    weight = labels.sample_weight if labels is not None else None
    offset = labels.offset if labels is not None else None
    return (np.ones(n) if weight is None else weight), (np.zeros(n) if offset is None else offset)


def provenance_of(partition: Partition) -> dict[str, Any]:
    """Digests of a partition's rows, features and labels, as ``run.toml`` keeps them.

    Parameters
    ----------
    partition : Partition

    Returns
    -------
    dict
    """
    provenance: dict[str, Any] = {
        "row_digest": partition.row_digest,
        "content": {p.name: p.content_digest for p in partition.parties},
    }
    if partition.labels is not None:
        provenance["labels"] = labels_digest(partition.labels)
    return provenance


def labels_digest(labels: LabelData) -> str:
    """Digest of targets, weights, offset and class names.

    Parameters
    ----------
    labels : LabelData

    Returns
    -------
    str
    """
    # No secret leaks here: the run directory belongs to the coordinator, who holds the labels.
    digest = hashlib.sha256(repr(labels.classes).encode())
    for values in (labels.y, labels.sample_weight, labels.offset):
        digest.update(b"none" if values is None else np.ascontiguousarray(values, dtype="<f8").tobytes())
    return f"sha256:{digest.hexdigest()}"


def check_provenance(run: Path, began: Any, current: dict[str, Any], partition: Partition) -> None:
    """Refuse data, or a model to start at, other than those a run began with.

    Parameters
    ----------
    run : Path
    began : dict
        The table ``provenance`` of ``run.toml``.
    current : dict
        The same of the present data.
    partition : Partition
    """
    if not isinstance(began, dict) or "content" not in began:
        raise FormatError(f"{shown(run / 'run.toml')}: table 'provenance' is missing or damaged; train anew")
    if began == current:
        return
    others = {
        "test": "the test data are",
        "validation": "the validation data are",
        "warm_start": "the model to start at is",
    }
    changed = {key for key in began.keys() | current.keys() if began.get(key) != current.get(key)}
    if changed <= others.keys():
        what = f"{others[min(changed)]} not what"
        raise InputError(f"{what} {shown(run)} began with (digests differ); train anew")
    else:
        what = f"{shown(partition.path)}: not the data"
    raise InputError(f"{what} that {shown(run)} began with (digests differ); train anew")


def remove_leftovers(run: Path) -> None:
    """Delete what a kill left half-written under a temporary name."""
    for leftover in (*run.glob(".*.tmp"), *run.glob("checkpoints/.*.tmp"), *run.glob("fits/.*.tmp")):
        if leftover.is_dir():
            shutil.rmtree(leftover, ignore_errors=True)
        else:
            leftover.unlink(missing_ok=True)


def finished_result(run: Path) -> dict[str, Any] | None:
    """Content of ``result.json``; None where there is none yet.

    Parameters
    ----------
    run : Path

    Returns
    -------
    dict or None
    """
    path = run / "result.json"
    if not path.exists():
        return None
    try:
        values = read_json(path)
    except FormatError as error:
        raise FormatError(f"{error}; delete it to resume from the checkpoint") from None
    if not isinstance(values, dict) or "status" not in values or "message" not in values:
        raise FormatError(f"{shown(path)}: keys 'status' and 'message' are missing; delete it to resume")
    return values


def _run(
    lock: RunLock, config: RunConfig, loaded: LoadedRun, solver: Any, display: Display, run_id: str
) -> dict[str, Any]:
    run, subject = lock.run, Subject(run_id, _problem_digest(config, loaded.provenance))
    private = not isinstance(solver, Solver)  # its state is its stored messages, so it needs no checkpoint
    display.note(write_statement(run, solver, run_id).one_line())
    if isinstance(solver, MessageSolver) and solver.advice():
        display.note(f"warning: {solver.advice()}")
    for name, update, why in solver.method.party_notes():
        display.note(f"{name}: x-update '{update}' ({why})")
    problem = solver.problem
    reason = (
        f"{1 if solver.method.name == 'fusion' else config.privacy.rounds} private round(s)"
        if private
        else solver.options.resolved_scheme(
            problem.loss.smooth, problem.is_ridge, problem.convex, problem.suits_proximal
        )[1]
    )
    display.note(
        f"scheme '{solver.method.name}' ({reason}), "
        f"{solver.engine.n_threads} thread(s), lambda {_lambda_text(config, problem)}"
    )
    if not private and solver.method.name == SUBSPACE and problem.convex:
        both, why = solver.options.both_directions(problem)
        display.note(f"answers of a round: {'both directions' if both else 'one direction'} ({why})")
    last_saved = time.monotonic()

    with RoundLog(run / "rounds.jsonl", solver.n_rounds) as log, stop_on_signal() as stop_requested:

        def monitor(record: RoundRecord) -> None:
            nonlocal last_saved
            log.append(record)
            display.round(record)
            every = config.checkpoint_rounds
            due = every is not None and record.round % every == 0
            if private:
                log.sync()
            elif due or time.monotonic() - last_saved >= config.checkpoint_seconds:
                log.sync()
                lock.check()
                write_checkpoint(run / "checkpoints", solver, subject)
                last_saved = time.monotonic()

        try:
            unlink(run / "result.json")
            display.start(config.gap if problem.convex else config.stationarity, config.rounds)
            try:
                result = run_rounds(solver, monitor, stop_requested)
            finally:
                display.stop()
            log.sync()
            lock.check()
            # Of a diverged run there is nothing to go on from.
            if result.status is not Status.DIVERGED and not private:
                write_checkpoint(run / "checkpoints", solver, subject)
            finished = result.status is not Status.INTERRUPTED
            comparison = compare(solver, result.weights, result.intercept) if finished else None
        finally:
            solver.close()
    if result.status is Status.DIVERGED:
        # Neither from the model of an earlier limit: its rounds already led astray.
        shutil.rmtree(run / "model", ignore_errors=True)
    elif result.status is not Status.INTERRUPTED:
        write_model(run / "model", model_of(loaded.partition, solver, result, run_id), force=True)
    document = result_document(solver, result)
    document["privacy"] = write_statement(run, solver, run_id).to_json()
    if comparison is not None:
        document["comparison"] = comparison.to_json()
    write_json(run / "result.json", document)
    return document


def _lambda_text(config: RunConfig, problem: Problem) -> str:
    """Lambda, or each party's own."""
    if problem.own_lambda is None:
        return f"{config.lambda_:g}"
    return ", ".join(f"{v:g} of {name}" for name, v in zip(problem.names, problem.own_lambda.values))


def certificate_of(result: SolveResult) -> dict[str, Any]:
    """What proves a model, as its manifest keeps it.

    Parameters
    ----------
    result : SolveResult

    Returns
    -------
    dict
    """
    last = result.record
    return {
        "status": str(result.status),
        "objective": last.objective,
        "gap": last.to_json()["gap"],
        "gap_absolute": last.to_json()["gap_absolute"],
        "stationarity": last.stationarity,
        "rounds": last.round,
    }


def model_of(partition: Partition, solver: Any, result: SolveResult, run_id: str) -> Model:
    """A result as a model to store.

    Parameters
    ----------
    partition : Partition
    solver : Solver, MessageSolver or FusionSolver
    result : SolveResult
    run_id : str
        See :func:`fastadmm.runs.private.new_run_id`.

    Returns
    -------
    Model
    """
    labels, statement = partition.labels, statement_of(solver)
    weights, scales = result.weights, [1.0] * len(result.weights)
    if isinstance(solver, FusionSolver):  # what a party holds is what it released
        weights, scales = solver.local_weights(), solver.scales
    own = solver.problem.own_lambda
    if own is not None:
        weights = own.original(weights)
    clipped = isinstance(solver, MessageSolver)
    return Model(
        loss=solver.problem.loss.name,
        # Least squares on classes predicts a real number, no probability.
        task=solver.problem.loss.task,
        lam=solver.problem.recorded_lam,
        intercept=result.intercept,
        classes=labels.classes if labels is not None else None,
        parties=[
            PartyModel(
                p.name,
                w,
                list(p.feature_names),
                p.transform,
                clipped,
                scale,
                p.encoder,
                statement.weights_line(),
            )
            for p, w, scale in zip(partition.parties, weights, scales)
        ],
        certificate=certificate_of_model(certificate_of(result), statement),
        penalty=solver.problem.describe_penalty(),
        privacy=statement,
        model_id=model_id_of(run_id, result.record.round),
        means=(
            np.array(
                [
                    mean_contribution(b, w, solver.engine)
                    for b, w in zip(solver.problem.blocks, result.weights)
                ]
            )
            if isinstance(solver, Solver)
            else None
        ),
    )


def mean_contribution(block: FeatureBlock, weights: np.ndarray, engine: Engine) -> np.ndarray:
    """Mean of a party's contribution over its rows, in one pass.

    Parameters
    ----------
    block : FeatureBlock of shape (N, d)
    weights : ndarray of shape (d,) or (d, C)
    engine : Engine

    Returns
    -------
    ndarray of shape () or (C,)
    """
    n = block.shape[0]
    with engine.limited():
        return (block.transposed_product(np.ones(n), engine) / n) @ weights


def result_document(solver: Any, result: SolveResult) -> dict[str, Any]:
    """What ``result.json`` says of the solution.

    Parameters
    ----------
    solver : Solver, MessageSolver or FusionSolver
    result : SolveResult

    Returns
    -------
    dict
    """
    last, problem = result.record.to_json(), solver.problem
    done = result.history[-1]
    return {
        "status": str(result.status),
        "message": result.message,
        "rounds": done.round,
        "seconds": done.seconds,
        **(
            {} if result.kept is None else {"kept_round": last["round"], "validation": last.get("validation")}
        ),
        "objective": last["objective"],
        "gap": last["gap"],
        "gap_absolute": last["gap_absolute"],
        "stationarity": last.get("stationarity"),
        "convex": problem.convex,
        "scheme": solver.method.name,
        "lambda": problem.recorded_lam,
        "loss": problem.loss.name,
        **problem.describe_penalty(),
        "n_samples": problem.n_samples,
        "parties": [
            {
                "name": name,
                "n_features": int(block.shape[1]),
                "weight_norm": norm,
                **({} if problem.own_lambda is None else {"lambda": problem.own_lambda.values[m]}),
                "file": f"{name}.h5",
                "x_update": update,
            }
            for m, ((name, update, _), block, norm) in enumerate(
                zip(solver.method.party_notes(), problem.blocks, last["weight_norms"])
            )
        ],
        **_intercepts(result.intercept),
        "test": last["test"],
    }


def _intercepts(intercept: Any) -> dict[str, Any]:
    if np.ndim(intercept):
        return {"intercept": None, "intercepts": [float(b) if np.isfinite(b) else None for b in intercept]}
    return {"intercept": intercept if np.isfinite(intercept) else None}


@contextmanager
def stop_on_signal() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C, SIGTERM and SIGHUP end the run after the current round; a second one ends it at once."""
    received = 0

    def handler(number: int, frame: FrameType | None) -> None:
        nonlocal received
        received += 1
        if received > 1:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False  # signals belong to the main thread
        return
    numbers = [signal.SIGINT, signal.SIGTERM]
    # Under nohup it is ignored, and stays so.
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    old = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield lambda: received > 0
    finally:
        for number, previous in old.items():
            signal.signal(number, previous)


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write a JSON document, whole or not at all.

    Parameters
    ----------
    path : Path
    document : dict
    """
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(document, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def unlink(path: Path) -> None:
    """Delete a file, if there is one.

    Parameters
    ----------
    path : Path
    """
    with storage_errors(path):
        path.unlink(missing_ok=True)


def write_configuration(path: Path, config: RunConfig, run: Path, provenance: dict[str, Any]) -> None:
    """Write ``run.toml``.

    Parameters
    ----------
    path : Path
    config : RunConfig
    run : Path
        The run directory, from which relative paths count.
    provenance : dict
    """
    import tomli_w

    # Relative to the run, so that a folder with data and run can be moved as a whole;
    # real paths, because the system resolves ".." behind symbolic links, not before them.
    base = os.path.realpath(run)
    paths = {
        key: os.path.relpath(os.path.realpath(value), base)
        for key, value in ((key, getattr(config, key)) for key in PATHS)
        if isinstance(value, str)
    }
    document = {**config.to_toml(), **paths, "provenance": provenance}
    document["provenance"] = {**provenance, SEAL: seal_of(sealed_part(document))}
    with atomic_file(path) as temporary:
        temporary.write_text(tomli_w.dumps(document), encoding="utf-8")

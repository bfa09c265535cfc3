"""The data of a run: what shows before they are read, the problem on them, and looks at their rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, FastadmmError, InputError
from fastadmm.files.atomic import shown
from fastadmm.files.digest import row_digest
from fastadmm.judging.looks import say, separation
from fastadmm.privacy.accounts import feature_account
from fastadmm.privacy.ledger import Ledger
from fastadmm.privacy.message import private_solver
from fastadmm.problem.loss import Loss
from fastadmm.problem.losses import parse_loss
from fastadmm.problem.party_lambda import SCALED, PartyLambda
from fastadmm.problem.problem import Problem, TestSet, make_problem
from fastadmm.problem.targets import weigh_classes
from fastadmm.runs.claim import model_digest, provenance_of
from fastadmm.runs.config import own_lambdas, party_constraints, penalty_arguments, recorded, solver_options
from fastadmm.runs.folder import Display
from fastadmm.runs.plan import SHARE, Plan, available_memory, check_limit, make_plan
from fastadmm.runs.result import class_rows, label_account_of, ledger_of, unproved_parties
from fastadmm.settings.checks import parse_bytes
from fastadmm.settings.privacy import DifferentialPrivacy
from fastadmm.settings.run import RunConfig
from fastadmm.solver.early_stopping import EarlyStopping, held_out_rows, measure
from fastadmm.solver.run import Run
from fastadmm.solver.solver import Solver
from fastadmm.solver.warm_start import StartingPoint
from fastadmm.store.label_file import LabelData, check_two_classes, open_labels
from fastadmm.store.model import Model, check_same_columns, open_model
from fastadmm.store.partition import Partition, open_partition
from fastadmm.store.party_file import PartyData
from fastadmm.store.streamed import column_values, load_block, table_columns

#: A partition, that of test rows, and the loss.
Opened = tuple[Partition, Partition | None, Loss]


@dataclass(frozen=True)
class CheckedRun:
    """Partitions that belong together, the loss, and the plan of the run."""

    partition: Partition
    test: Partition | None
    loss: Loss
    plan: Plan


def check_run(config: RunConfig, display: Display, *, whole: bool = False) -> CheckedRun:
    """Open the partitions of a configuration, choose the loss and plan the run."""
    partition, test, loss = open_run(config)
    plan, free = plan_of(config, (partition, test, loss), partition.parties, Engine(config.threads).n_threads)
    columns = ", ".join(f"{p.name}: {p.n_features}" for p in partition.parties)
    display.note(f"{partition.n_samples} samples, {len(partition.parties)} parties ({columns} features)")
    for line in (*plan.lines(whole=whole), *doubts(partition.task, loss)):
        display.note(line)
    check_limit(plan, config.memory is not None, free, shown(config.data))
    return CheckedRun(partition, test, loss, plan)


def plan_of(
    config: RunConfig, opened: Opened, parties: Sequence[PartyData], n_threads: int, processes: int = 1
) -> tuple[Plan, int | None]:
    """The plan for these rows of the parties, in one of several processes, and the bytes free for it."""
    (partition, test, loss), free = opened, available_memory()
    free = None if free is None else free // processes
    limit = None if free is None else int(SHARE * free)
    limit = limit if config.memory is None else parse_bytes(config.memory)
    known = replace(config, loss=loss.name) if config.loss == "auto" else config
    classes = partition.labels.classes if partition.labels is not None and loss.vector else None
    tests = test.parties if test else []
    plan = make_plan(parties, tests, parties[0].n_samples, known, len(classes or "1"), limit, n_threads)
    return plan, free


def open_run(config: RunConfig) -> Opened:
    """Open a configuration's partitions and choose the loss; what headers show to be wrong is refused."""
    partition = open_partition(config.data)
    if partition.labels is None:
        raise InputError(f"{shown(config.data)}: no labels: training needs the label holder's file")
    test = None if config.test is None else _beside(config.test, partition)
    loss = choose_loss(config, partition.task, partition.labels)
    refuse_exposures(None if test is None else test.labels, loss)
    # Refused before any data is read.
    own_lambdas(config, [p.name for p in partition.parties])
    party_constraints(config, [p.name for p in partition.parties])
    if isinstance(config.privacy, DifferentialPrivacy):
        config.privacy.refuse_unproved(unproved_parties(config.privacy, partition))
    return partition, test, loss


def choose_loss(config: RunConfig, task: str, labels: LabelData) -> Loss:
    """The loss asked for, or the one for this kind of labels; refused where they do not go together."""
    check_two_classes(labels)
    n_classes, place = len(labels.classes or ()), shown(config.data)
    usual = "squared" if task != "classification" else "multinomial" if n_classes > 2 else "logistic"
    loss = parse_loss(usual if config.loss == "auto" else config.loss)
    refuse_exposures(labels, loss)
    if config.loss == "auto":
        return loss
    wrong = ""
    if loss.name in ("logistic", "multinomial") and task != "classification":
        needs = "two classes" if loss.name == "logistic" else "classes"
        wrong = f"needs {needs}, but {place} is a regression data set"
    elif n_classes > 2 and not loss.vector:
        wrong = f"is for two classes, but {place} has {n_classes}; choose multinomial or auto"
    if wrong:
        raise ConfigError(f"key 'loss': {loss.name} {wrong}")
    weight = np.ones(labels.n_samples) if labels.sample_weight is None else labels.sample_weight
    try:
        loss.check_targets(labels.y, weight, config.intercept)
    except InputError as error:
        raise InputError(f"{shown(labels.path)}: {str(error).removeprefix('y: ')}") from None
    return loss


def refuse_exposures(labels: LabelData | None, loss: Loss) -> None:
    """Refuse exposures beside a loss whose mean they do not multiply."""
    if labels is not None and labels.exposure and not loss.log_link:
        said = f"has exposures, and loss {loss.name} no logarithmic link: train with --loss poisson"
        said += ", negative_binomial, tweedie or gamma, or convert with --offset"
        raise ConfigError(f"{shown(labels.path)}: {said}")


def doubts(task: str, loss: Loss) -> list[str]:
    """Warn of a loss that fits the labels, and is perhaps not meant."""
    numbers = task == "classification" and loss.task == "regression"
    return [say("numbers", loss=loss.name)] if numbers else []


def _beside(path: str, train: Partition) -> Partition:
    """Other rows, refused where columns, task, classes or lack of an offset are not those of training."""
    other = open_partition(path)
    check_same_columns(other.parties, train.parties, shown(path))
    labels, trained = other.labels, train.labels
    if labels is not None and trained is not None:
        if other.task != train.task or labels.classes != trained.classes:
            said = "classes differ from training; convert with --like the training partition"
            raise InputError(f"{shown(path)}: {said}")
        if trained.offset is not None and labels.offset is None:
            raise InputError(f"{shown(path)}: no offset, which training has: convert it with --offset")
    return other


@dataclass(frozen=True)
class LoadedRun:
    """The data of a run, and what its solver is made of."""

    partition: Partition
    provenance: dict[str, Any]  # digests of all that it is trained on
    problem: Problem
    start: StartingPoint | None
    early: EarlyStopping | None
    spilled: bool
    class_rows: dict[str, Any]  # training rows of each class, as result.json has them
    looks: list[str]  # what was seen and shown

    def solver(self, config: RunConfig, run: Path, run_id: str) -> Run:
        """A new solver for the run, as its configuration asks for."""
        problem, options, settings = self.problem, solver_options(config), config.privacy
        made: Run
        if isinstance(settings, DifferentialPrivacy):
            made = private_solver(
                problem,
                options,
                settings,
                run / "messages",
                [party.content_digest for party in self.partition.parties],
                ledger=Ledger(ledger_of(config, run)),
                run=run_id,
                unproved=unproved_parties(settings, self.partition),
                accounts=[feature_account(party) for party in self.partition.parties],
                label_account=label_account_of(self.partition.labels, problem.names, settings),
            )
        elif config.ledger is not None:
            raise ConfigError("key 'ledger': a run without privacy charges nothing; leave it out")
        else:
            made = Solver(problem, options, start=self.start, early=self.early)
        if self.spilled:
            made.spill(run)
        return made


def part_rows(config: RunConfig, labels: LabelData) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Sample weights of the rows to train on, times class weights, and which rows are held out.

    Shapes: weight, held (N,).
    """
    weight, classes = labels.sample_weight, labels.classes
    if config.class_weight is not None:
        if classes is None:
            said = "is a regression data set, without classes"
            raise ConfigError(f"key 'class_weight': {shown(config.data)} {said}")
        try:
            weight = weigh_classes(config.class_weight, labels.y, list(classes), weight)
        except ConfigError as error:
            raise ConfigError(str(error).replace("class_weight:", "key 'class_weight':", 1)) from None
    if not isinstance(config.validation, float):
        return weight, None
    held = held_out_rows(labels.y, config.validation, config.seed, classes is not None, classes)
    return np.where(held, 0.0, np.ones(len(held)) if weight is None else weight), held


def rows_of(labels: LabelData, blocks: Sequence[FeatureBlock]) -> TestSet:
    """Rows that are not trained on, with the weights and offsets of their labels."""
    weight, offset, n = labels.sample_weight, labels.offset, labels.n_samples
    weight = np.ones(n) if weight is None else weight
    return TestSet(list(blocks), labels.y, weight, np.zeros(n) if offset is None else offset)


def problem_on(
    labels: LabelData,
    blocks: Sequence[FeatureBlock],
    config: RunConfig,
    names: Sequence[str],
    loss: Loss,
    test: TestSet | None = None,
) -> Problem:
    """The problem that a configuration asks for on rows with these labels, whoever holds the blocks."""
    own = own_lambdas(config, names)
    problem = make_problem(
        blocks,
        labels.y,
        loss=loss.name,
        loss_parameters=loss.parameters,
        lam=config.lambda_ if own is None else own.lam,
        **penalty_arguments(config, names),
        fit_intercept=config.intercept,
        sample_weight=part_rows(config, labels)[0],
        offset=labels.offset,
        names=names,
        test=test,
        n_classes=len(labels.classes) if loss.vector and labels.classes is not None else None,
    )
    return replace(problem, own_lambda=own, entry_roundings=0.0 if own is None else SCALED)


def early_stopping_on(
    labels: LabelData, problem: Problem, config: RunConfig, others: Callable[[str], TestSet]
) -> EarlyStopping | None:
    """The rule that held-out rows end a run by: a share of its own rows, or others by their place."""
    if config.validation is None:
        return None
    if isinstance(config.validation, float):
        held, own = part_rows(config, labels)[1], rows_of(labels, problem.blocks)
        assert held is not None  # a share
        # The problem's own blocks: by them parties elsewhere are asked about the rows that they train on.
        weight = np.where(held, own.weight, 0.0)
        rows = replace(own, blocks=problem.blocks, y=problem.y, weight=weight, offset=problem.offset)
        if not rows.weight.any():
            raise InputError("key 'validation': all held-out rows have weight 0")
    else:
        rows = others(config.validation)
    # A metric that the loss does not have is refused before the run has a directory.
    z = np.zeros((len(rows.y), problem.n_outputs)) if problem.loss.vector else rows.offset.copy()
    measure(config.validation_metric, rows, z, problem.loss, Engine(1))
    return EarlyStopping(rows, config.validation_metric, config.patience)


def load_run(
    config: RunConfig, checked: CheckedRun, blocks: Sequence[FeatureBlock] | None = None
) -> LoadedRun:
    """The data of a checked run."""
    partition, test_partition, loss, plan = checked.partition, checked.test, checked.loss, checked.plan
    labels = partition.labels
    assert labels is not None  # checked
    names = [party.name for party in partition.parties]
    own, test = own_lambdas(config, names), None
    if test_partition is not None and test_partition.labels is not None:
        test = rows_of(test_partition.labels, _blocks(test_partition, plan.streamed_tests, own))
    if blocks is None:
        blocks = _blocks(partition, [party.streamed for party in plan.parties], own)
    problem = problem_on(labels, blocks, config, names, loss, test)
    for party in partition.parties:
        _ = party.feature_names  # the model needs them at the end; damaged ones are refused at the beginning
    provenance = provenance_of(partition)
    provenance |= {} if test_partition is None else {"test": provenance_of(test_partition)}

    def others(path: str) -> TestSet:
        other = _beside(path, partition)
        if other.labels is None:
            raise InputError(f"{shown(path)}: no labels: early stopping needs them")
        provenance["validation"] = provenance_of(other)
        return rows_of(other.labels, _blocks(other, [False] * len(other.parties), own))

    early = early_stopping_on(labels, problem, config, others)
    start = None
    if config.warm_start is not None:
        model = open_model(config.warm_start)
        start = _start_of(model, partition, config.warm_start, config.intercept)
        start = start if own is None else replace(start, weights=own.scaled(start.weights))
        provenance["warm_start"] = model_digest(model)
    # In a private run noise covers no such count.
    classes = class_rows(partition.labels) if config.privacy.mode == "none" else {}
    looks = doubts(partition.task, loss)
    return LoadedRun(partition, provenance, problem, start, early, plan.spilled > 0, classes, looks)


def _start_of(model: Model, partition: Partition, path: str, intercept: bool) -> StartingPoint:
    """A model's weights in the order of the partition's parties."""
    place, weights = shown(path), []
    known = {party.name: party for party in model.parties}
    names = [party.name for party in partition.parties]
    for party in partition.parties:
        own = known.get(party.name)
        if own is None or len(known) != len(names):
            there = f"a model of the parties {', '.join(known)}, but the data have {', '.join(names)}"
            raise InputError(f"{place}: {there}")
        if own.feature_names != list(party.feature_names):
            said = f"other features of {party.name} than the data; warm starts need the same"
            raise InputError(f"{place}: {said}")
        weights.append(own.scale * own.weights)
    classes = partition.labels.classes if partition.labels is not None else None
    if model.classes != classes:
        raise InputError(f"{place}: other classes than the data: {model.classes} and {classes}")
    return StartingPoint(weights, model.intercept if intercept else 0.0 * np.asarray(model.intercept))


def _blocks(partition: Partition, streamed: list[bool], own: PartyLambda | None) -> list[FeatureBlock]:
    factors = [1.0] * len(streamed) if own is None else own.factors
    return list(map(load_block, partition.parties, streamed, factors))


# --- looks --------------------------------------------------------------------------------------------------


Array = np.ndarray

#: A column that tells classes, or numbers, better than this is a leak.
_LEAK, _CORRELATED = 0.95, 0.99

#: Values that are read of a party, at most, and its widest table.
_VALUES, _WIDEST = 1_000_000, 2000


def look_at(
    checked: CheckedRun, loaded: LoadedRun, private: bool, validation: object, display: Display
) -> LoadedRun:
    """Look at the rows of a run, and show what is seen; ``validation`` is as in its configuration."""
    # Where privacy is on, or memory is short, headers are all that is looked at.
    headers = private or checked.plan.limited
    lines = [] if headers else partition_looks(loaded.partition)
    others = [checked.test] if checked.test is not None else []
    if isinstance(validation, str):
        others.append(open_partition(validation))
    for other in others:
        trained, asked = loaded.partition, other.labels
        if trained.labels is not None and asked is not None:
            alike = partial(same_content, trained, other)
            lines += seen_by_ids(trained.labels, asked, headers, alike=alike)
    for line in lines:
        display.note(line)
    return replace(loaded, looks=[*loaded.looks, *lines])


def partition_looks(partition: Partition, alignment: Path | None = None) -> list[str]:
    """What is seen in the columns of each party, by the labels where there are any.

    Rows without labels may have those that 'federate align' wrote beside their list, ``alignment``.
    """
    labels = partition.labels
    if labels is None and alignment is not None and (beside := alignment.parent / "labels.h5").exists():
        found = open_labels(beside)
        labels = found if found.row_digest == partition.row_digest else None
    return [] if labels is None else [line for party in partition.parties for line in _leaks(party, labels)]


def _leaks(party: PartyData, labels: LabelData) -> list[str]:
    if party.n_features > _WIDEST:
        return []
    table, n = table_columns(party), party.n_samples
    # A stretch of rows here and there: files may be sorted.
    count = max(1000, _VALUES // party.n_features)
    starts = [0] if n <= count else [k * n // 16 for k in range(16)]
    parts = [(start, min(n, start + 1 + count // len(starts))) for start in starts]
    y = np.concatenate([labels.y[start:stop] for start, stop in parts])
    n_classes = len(labels.classes or ())
    found = []
    for own in zip(*(column_values(party.of_rows(*part), table) for part in parts), strict=True):
        column, values = own[0][0], np.concatenate([piece for _, piece in own])
        score = separation(values, y, n_classes, column.levels is not None)
        if score > (_LEAK if n_classes else _CORRELATED):
            found.append((-score, column.name))
    if not found:
        return []
    found.sort(key=lambda pair: pair[0])
    names = found[:3]
    told = ", ".join(f"{name!r} ({-score:.3f})" for score, name in names)
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    what = f"{'AUC' if n_classes else 'rank correlation'} of {'column' if len(found) == 1 else 'columns'}"
    prefix = party.encoder.prefix if party.encoder is not None else ""
    listed = ",".join(name.removeprefix(prefix) for _, name in names)
    numbered = party.encoder is None and re.fullmatch(r"f\d+", names[0][1])
    settles = "leave it out of the source" if numbered else None
    return [
        say("leak", place=party.name, columns=f"{what} {told}{more} alone", column=listed, settles=settles)
    ]


def seen_by_ids(
    trained: LabelData,
    other: LabelData,
    headers: bool,
    ids: Array | None = None,
    alike: Callable[[], bool] = lambda: True,
) -> list[str]:
    """Whether rows are rows of training, by their ids; where these number the rows, by all labels.

    ``alike`` says whether the features are the same, too, where somebody knows. Shapes: ids (N,), of rows
    that come from a table.
    """
    same = trained.row_digest == (other.row_digest if ids is None else row_digest(ids))
    numbered = np.array_equal(trained.ids(), np.arange(trained.n_samples))
    if numbered or headers or same:
        same = same and (not numbered or (np.array_equal(trained.y, other.y) and alike()))
        count = other.n_samples if same else 0
    else:
        rows = (trained.ids(), other.ids() if ids is None else ids)
        known, asked = (np.asarray(own.tolist(), dtype=str) for own in rows)
        count = int(np.isin(asked, known).sum())
    return [say("seen", place=shown(other.path), count=count, n=other.n_samples)] if count else []


def seen_in_training(
    run: Path, other: LabelData, alike: Callable[[Partition], bool], ids: Array | None = None
) -> list[str]:
    """The same of the rows that a run was trained on, if these are still where they were."""
    try:
        found = recorded(run)
        trained = open_partition(found.config.data)
        known = found.provenance if isinstance(found.provenance, dict) else {}
        current = provenance_of(trained)
        if trained.labels is None or {key: known.get(key) for key in current} != current:
            return []
        private = found.config.privacy.mode != "none"
        return seen_by_ids(trained.labels, other, private, ids, lambda: alike(trained))
    except FastadmmError:
        return []  # of a model alone, or without its data, nothing is known


def same_content(one: Partition, other: Partition) -> bool:
    """Whether two partitions have the same features."""
    return provenance_of(one)["content"] == provenance_of(other)["content"]

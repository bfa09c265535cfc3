"""What shows before any data are read: partitions that belong together, the loss, and the plan."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, InputError
from fastadmm.files.atomic import shown
from fastadmm.judging.looks import say
from fastadmm.problem.loss import Loss
from fastadmm.problem.losses import parse_loss
from fastadmm.runs.config import own_lambdas, party_constraints
from fastadmm.runs.display import Notes
from fastadmm.runs.environment import SHARE, available_memory
from fastadmm.runs.plan import Plan, check_limit, make_plan
from fastadmm.runs.private import unproved_parties
from fastadmm.settings.checks import parse_bytes
from fastadmm.settings.privacy import DifferentialPrivacy
from fastadmm.settings.run import RunConfig
from fastadmm.store.label_file import LabelData, check_two_classes
from fastadmm.store.model import check_same_columns
from fastadmm.store.partition import Partition, open_partition


@dataclass(frozen=True)
class CheckedRun:
    """Partitions that belong together, the loss, and the plan of the run."""

    partition: Partition
    test: Partition | None
    loss: Loss
    plan: Plan


def check_run(config: RunConfig, display: Notes, *, whole: bool = False) -> CheckedRun:
    """Open the partitions of a configuration, choose the loss and plan the run."""
    partition, test_partition, loss = open_run(config)
    n_outputs = n_outputs_of(loss, partition.labels)
    limit, free = memory_limit(config)
    n_threads = Engine(config.threads).n_threads
    plan = make_plan(
        partition.parties,
        test_partition.parties if test_partition else [],
        partition.n_samples,
        replace(config, loss=loss.name) if config.loss == "auto" else config,
        n_outputs,
        limit=limit,
        n_threads=n_threads,
    )
    display.note(
        f"{partition.n_samples} samples, {len(partition.parties)} parties "
        f"({', '.join(f'{p.name}: {p.n_features}' for p in partition.parties)} features)"
    )
    for line in plan.lines() if whole or plan.limited else [plan.sentence()]:
        display.note(line)
    for line in doubts(partition.task, loss):
        display.note(line)
    check_limit(plan, config.memory is not None, free, shown(config.data))
    return CheckedRun(partition, test_partition, loss, plan)


def memory_limit(config: RunConfig, processes: int = 1) -> tuple[int | None, int | None]:
    """What a process may take, and what is free for it, in bytes; None where nobody knows."""
    free = available_memory()
    free = None if free is None else free // processes
    if config.memory is not None:
        return parse_bytes(config.memory), free
    return None if free is None else int(SHARE * free), free


def open_run(config: RunConfig) -> tuple[Partition, Partition | None, Loss]:
    """Open a configuration's partitions and choose the loss; what headers show to be wrong is refused."""
    partition = open_partition(config.data)
    if partition.labels is None:
        raise InputError(f"{shown(config.data)}: no labels: training needs the label holder's file")
    test_partition = None
    if config.test is not None:
        test_partition = open_partition(config.test)
        check_same_columns(test_partition.parties, partition.parties, shown(config.test))
        check_same_labels(test_partition, partition, config.test)
    loss = choose_loss(config, partition.task, partition.labels)
    if test_partition is not None:
        refuse_exposures(test_partition.labels, loss)
    # Refused before any data is read.
    own_lambdas(config, [p.name for p in partition.parties])
    party_constraints(config, [p.name for p in partition.parties])
    if isinstance(config.privacy, DifferentialPrivacy):
        config.privacy.refuse_unproved(unproved_parties(config.privacy, partition))
    return partition, test_partition, loss


def n_outputs_of(loss: Loss, labels: LabelData | None) -> int:
    """Linear predictors per sample."""
    return len(labels.classes) if loss.vector and labels is not None and labels.classes is not None else 1


def choose_loss(config: RunConfig, task: str, labels: LabelData) -> Loss:
    """The loss asked for, or the one for this kind of labels; refused where they do not go together."""
    check_two_classes(labels)
    n_classes = len(labels.classes) if labels.classes is not None else 0
    if config.loss == "auto":
        usual = "multinomial" if n_classes > 2 else "logistic"
        loss = parse_loss(usual if task == "classification" else "squared")
    else:
        loss = parse_loss(config.loss)
    refuse_exposures(labels, loss)
    if config.loss == "auto":
        return loss
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
    weight = np.ones(labels.n_samples) if labels.sample_weight is None else labels.sample_weight
    try:
        loss.check_targets(labels.y, weight, config.intercept)
    except InputError as error:
        raise InputError(f"{shown(labels.path)}: {str(error).removeprefix('y: ')}") from None
    return loss


def refuse_exposures(labels: LabelData | None, loss: Loss) -> None:
    """Refuse exposures beside a loss whose mean they do not multiply."""
    if labels is not None and labels.exposure and not loss.log_link:
        raise ConfigError(
            f"{shown(labels.path)}: has exposures, and loss {loss.name} no logarithmic link: train with "
            "--loss poisson, negative_binomial, tweedie or gamma, or convert with --offset"
        )


def doubts(task: str, loss: Loss) -> list[str]:
    """Warn of a loss that fits the labels, and is perhaps not meant."""
    numbers = task == "classification" and loss.task == "regression"
    return [say("numbers", loss=loss.name)] if numbers else []


def check_same_labels(test: Partition, train: Partition, place: str) -> None:
    """Refuse a test partition whose task, classes or lack of an offset are not those of training."""
    if test.labels is None or train.labels is None:
        return
    if test.task != train.task or test.labels.classes != train.labels.classes:
        raise InputError(
            f"{shown(place)}: classes differ from training; convert with --like the training partition"
        )
    if train.labels.offset is not None and test.labels.offset is None:
        raise InputError(f"{shown(place)}: no offset, which training has: convert it with --offset")

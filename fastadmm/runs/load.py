"""The data of a run, and the problem that it solves on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, InputError
from fastadmm.files.atomic import shown
from fastadmm.problem.loss import Loss
from fastadmm.problem.party_lambda import SCALED, PartyLambda
from fastadmm.problem.problem import Problem, TestSet, make_problem
from fastadmm.problem.targets import weigh_classes
from fastadmm.runs.check import CheckedRun, check_run, check_same_labels, doubts
from fastadmm.runs.config import own_lambdas, penalty_arguments
from fastadmm.runs.display import Notes
from fastadmm.runs.private import make_solver
from fastadmm.runs.provenance import model_digest, provenance_of
from fastadmm.runs.result import class_rows
from fastadmm.settings.run import RunConfig
from fastadmm.solver.early_stopping import EarlyStopping, held_out_rows, measure
from fastadmm.solver.run import Run
from fastadmm.solver.warm_start import StartingPoint
from fastadmm.store.label_file import LabelData
from fastadmm.store.model import Model, check_same_columns, open_model
from fastadmm.store.partition import Partition, open_partition
from fastadmm.store.streamed import load_block


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
    looks: tuple[str, ...]  # what was seen and shown

    def solver(self, config: RunConfig, run: Path, run_id: str) -> Run:
        """A new solver for the run."""
        made = make_solver(config, self.problem, self.partition, run, run_id, self.start, self.early)
        if self.spilled:
            made.spill(run)
        return made


def weigh_labels(config: RunConfig, labels: LabelData) -> np.ndarray | None:
    """Sample weights of a run: those of the labels times the class weights. Shapes: the result (N,)."""
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


def part_rows(config: RunConfig, labels: LabelData) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Sample weights of the rows to train on, where a share of them is held out, and which these are.

    Shapes: weight, held (N,).
    """
    weight = weigh_labels(config, labels)
    if not isinstance(config.validation, float):
        return weight, None
    classes = labels.classes
    held = held_out_rows(labels.y, config.validation, config.seed, classes is not None, classes)
    return np.where(held, 0.0, np.ones(len(held)) if weight is None else weight), held


def rows_of(labels: LabelData, blocks: Sequence[FeatureBlock]) -> TestSet:
    """Rows that are not trained on, with the weights and offsets of their labels."""
    weight, offset, n = labels.sample_weight, labels.offset, labels.n_samples
    return TestSet(
        list(blocks),
        labels.y,
        np.ones(n) if weight is None else weight,
        np.zeros(n) if offset is None else offset,
    )


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
    if test_partition is not None:
        provenance["test"] = provenance_of(test_partition)

    def others(path: str) -> TestSet:
        other = open_partition(path)
        if other.labels is None:
            raise InputError(f"{shown(path)}: no labels: early stopping needs them")
        check_same_columns(other.parties, partition.parties, shown(path))
        check_same_labels(other, partition, path)
        provenance["validation"] = provenance_of(other)
        return rows_of(other.labels, _blocks(other, [False] * len(other.parties), own))

    early = early_stopping_on(labels, problem, config, others)
    start = None
    if config.warm_start is not None:
        model = open_model(config.warm_start)
        start = _start_of(model, partition, config.warm_start, config.intercept)
        if own is not None:
            start = replace(start, weights=own.scaled(start.weights))
        provenance["warm_start"] = model_digest(model)
    # In a private run noise covers no such count.
    classes = class_rows(partition.labels) if config.privacy.mode == "none" else {}
    looks = tuple(doubts(partition.task, loss))
    return LoadedRun(partition, provenance, problem, start, early, plan.spilled > 0, classes, looks)


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


def load_problem(config: RunConfig, display: Notes) -> Problem:
    """The training problem of a configuration, checked as for a run."""
    return load_run(config, check_run(config, display)).problem


def _blocks(partition: Partition, streamed: list[bool], own: PartyLambda | None) -> list[FeatureBlock]:
    factors = [1.0] * len(streamed) if own is None else own.factors
    return [
        load_block(party, away, factor)
        for party, away, factor in zip(partition.parties, streamed, factors, strict=True)
    ]

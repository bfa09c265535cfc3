"""The problem of a run whose parties are elsewhere: of their features it has the shapes alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.engine.engine import Engine
from fastadmm.errors import InputError
from fastadmm.files.atomic import shown
from fastadmm.method.scheme import Scheme
from fastadmm.problem.problem import Problem, TestSet, make_problem
from fastadmm.runs.check import choose_loss
from fastadmm.runs.config import penalty_arguments, solver_options
from fastadmm.runs.load import held_out_share, part_rows, weight_and_offset
from fastadmm.schemes.registry import choose_scheme
from fastadmm.settings.run import RunConfig
from fastadmm.solver.early_stopping import EarlyStopping, measure
from fastadmm.store.label_file import LabelData, open_labels
from fastadmm.store.party_file import PartyData
from fastadmm.store.streamed import load_block


class RemoteBlock(FeatureBlock):
    """The shape of a block that is elsewhere; it has no products."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape, self.nbytes, self.density = shape, 0, 1.0

    def _elsewhere(self, *arguments: Any, **options: Any) -> Any:
        """Not here: the coordinator holds no features."""
        raise AssertionError("the coordinator holds no features")

    product = product_into = transposed_products = matrix_product = _elsewhere
    gram = upper_gram = kernel_gram = column_squares = _elsewhere


def other_labels(config: RunConfig) -> dict[str, str]:
    """Label files of rows that are not trained on."""
    found = {"test": config.test, "validation": config.validation}
    return {key: path for key, path in found.items() if isinstance(path, str)}


def problem_of(
    config: RunConfig, names: list[str], widths: list[int] | None, own: PartyData | None = None
) -> tuple[Problem, LabelData]:
    """The problem over blocks that are elsewhere."""
    labels = open_labels(Path(config.data))
    loss = choose_loss(config, labels.task, labels)
    widths = widths or [1] * len(names)
    blocks = _blocks(labels, widths)
    if own is not None:
        blocks[names.index(own.name)] = load_block(own)
    test = None if config.test is None else _other_rows(config.test, labels, widths)
    problem = make_problem(
        blocks,
        labels.y,
        loss=loss.name,
        loss_parameters=loss.parameters,
        lam=config.lambda_,
        **penalty_arguments(config, names),
        fit_intercept=config.intercept,
        sample_weight=part_rows(config, labels)[0],
        offset=labels.offset,
        names=names,
        test=test,
        n_classes=len(labels.classes) if loss.vector and labels.classes is not None else None,
    )
    return problem, labels


def _blocks(labels: LabelData, widths: list[int]) -> list[FeatureBlock]:
    return [RemoteBlock((labels.n_samples, d)) for d in widths]


def _other_rows(path: str, labels: LabelData, widths: list[int]) -> TestSet:
    """Rows that are not trained on, from a label file; the parties have the features."""
    other = open_labels(Path(path))
    if (other.task, other.classes) != (labels.task, labels.classes):
        raise InputError(
            f"{shown(path)}: classes differ from training; convert with --like the training partition"
        )
    return TestSet(_blocks(other, widths), other.y, *weight_and_offset(other))


def early_stopping_of(config: RunConfig, problem: Problem, labels: LabelData) -> EarlyStopping | None:
    """The rule that held-out rows end the run by."""
    if config.validation is None:
        return None
    if isinstance(config.validation, float):
        held = part_rows(config, labels)[1]
        assert held is not None  # a share
        rows = held_out_share(problem, labels, held)
    else:
        rows = _other_rows(config.validation, labels, [block.shape[1] for block in problem.blocks])
    # A metric that the loss does not have is refused before the run has a directory.
    z = np.zeros((len(rows.y), problem.n_outputs)) if problem.loss.vector else rows.offset.copy()
    measure(config.validation_metric, rows, z, problem.loss, Engine(1))
    return EarlyStopping(rows, config.validation_metric, config.patience)


def scheme_of(problem: Problem, config: RunConfig) -> Scheme:
    """The scheme that the options choose."""
    return choose_scheme(solver_options(config), problem.traits, apart=True)[0]


def answers_of(problem: Problem, config: RunConfig) -> list[str]:
    """What a round's answers hold, where there is a choice."""
    scheme = scheme_of(problem, config)
    scheme.method(problem.traits)  # refuses what the scheme is not for
    return scheme.notes(problem.traits, solver_options(config))

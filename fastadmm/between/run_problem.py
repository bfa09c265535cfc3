"""The problem of a run whose parties are elsewhere: of their features it has the shapes alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastadmm.blocks.block import FeatureBlock
from fastadmm.errors import InputError
from fastadmm.files.atomic import shown
from fastadmm.method.scheme import Scheme
from fastadmm.problem.problem import Problem, TestSet
from fastadmm.runs.check import choose_loss
from fastadmm.runs.config import solver_options
from fastadmm.runs.load import early_stopping_on, problem_on, rows_of
from fastadmm.schemes.registry import choose_scheme
from fastadmm.settings.run import RunConfig
from fastadmm.solver.early_stopping import EarlyStopping
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
    problem = problem_on(labels, blocks, config, names, loss, test)
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
    return rows_of(other, _blocks(other, widths))


def early_stopping_of(config: RunConfig, problem: Problem, labels: LabelData) -> EarlyStopping | None:
    """The rule that held-out rows end the run by."""
    widths = [block.shape[1] for block in problem.blocks]
    return early_stopping_on(labels, problem, config, lambda path: _other_rows(path, labels, widths))


def scheme_of(problem: Problem, config: RunConfig) -> Scheme:
    """The scheme that the options choose."""
    return choose_scheme(solver_options(config), problem.traits, apart=True)[0]


def answers_of(problem: Problem, config: RunConfig) -> list[str]:
    """What a round's answers hold, where there is a choice."""
    scheme = scheme_of(problem, config)
    scheme.method(problem.traits)  # refuses what the scheme is not for
    return scheme.notes(problem.traits, solver_options(config))

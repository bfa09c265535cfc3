"""The problem of a run whose parties are elsewhere: of their features it has shapes alone; private runs."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.conversation.exchange import Driver
from fastadmm.errors import ConfigError, InputError
from fastadmm.files.atomic import shown
from fastadmm.method.scheme import Scheme
from fastadmm.privacy.fusion import FusionSolver
from fastadmm.privacy.ledger import Ledger
from fastadmm.privacy.message import MessageSolver, private_solver
from fastadmm.problem.problem import Problem, TestSet
from fastadmm.runs.config import solver_options
from fastadmm.runs.folder import RunFolder
from fastadmm.runs.load import choose_loss, early_stopping_on, problem_on, rows_of
from fastadmm.runs.plan import Plan, check_limit, make_plan
from fastadmm.runs.result import common_of, label_account_of, statement_of
from fastadmm.schemes.registry import choose_scheme
from fastadmm.settings.checks import parse_bytes
from fastadmm.settings.privacy import DifferentialPrivacy
from fastadmm.settings.run import RunConfig
from fastadmm.solver.early_stopping import EarlyStopping
from fastadmm.solver.loop import SolveResult
from fastadmm.solver.run import Run
from fastadmm.store.label_file import LabelData, open_labels
from fastadmm.store.model import PartyModel, SharedPart, write_party_model
from fastadmm.store.party_file import PartyData, open_party
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


def plan_of(config: RunConfig, problem: Problem) -> Plan:
    """What the coordinator holds within its limit, which is the same wherever the run goes on."""
    # Nothing of the parties' features is in this process.
    nothing: Any = {"n_samples": 0, "nnz": None, "kind": "elsewhere", "dtype": np.dtype(np.float64)}
    parties: list[Any] = [
        SimpleNamespace(name=name, n_features=block.shape[1], **nothing)
        for name, block in zip(problem.names, problem.blocks, strict=True)
    ]
    known = replace(config, loss=problem.loss.name) if config.loss == "auto" else config
    limit = parse_bytes(str(config.memory))
    plan = make_plan(parties, [], problem.n_samples, known, problem.n_outputs, limit, apart=True)
    check_limit(plan, True, None, shown(config.data))
    return plan


def scheme_of(problem: Problem, config: RunConfig) -> Scheme:
    """The scheme that the options choose."""
    return choose_scheme(solver_options(config), problem.traits, apart=True)[0]


def open_own(config: RunConfig, own: Path | None, names: list[str], labels: LabelData) -> PartyData | None:
    """The label holder's own features.

    Returns: None where the coordinator has none.
    """
    holder = config.privacy.label_holder(names)
    if own is None:
        if holder is not None:
            raise ConfigError(
                "privacy: mode 'fusion': the label holder takes part with columns of its own; give them with "
                "--own PARTY.h5, and name it with --party, too"
            )
        return None
    if holder is None:
        raise ConfigError("--own: only the label holder of privacy mode 'fusion' has columns of its own")
    party = open_party(own)
    if party.name != holder:
        raise InputError(f"{shown(own)}: of {party.name}, but the label holder is {holder} (label_party)")
    if (party.n_samples, party.row_digest) != (labels.n_samples, labels.row_digest):
        raise InputError(
            f"{shown(own)}: other rows than the labels, or in another order; align the rows first"
        )
    return party


def solver_of_private(
    config: RunConfig, problem: Problem, labels: LabelData, folder: RunFolder, run: str, driver: Driver
) -> FusionSolver | MessageSolver:
    """The label holder's, or the coordinator's, part of a private run."""
    settings = config.privacy
    assert isinstance(settings, DifferentialPrivacy)
    ledger = Ledger(folder.ledger if config.ledger is None else Path(config.ledger))
    account = label_account_of(labels, problem.names, settings)
    how: Any = {"ledger": ledger, "run": run, "unproved": {}, "label_account": account, "driver": driver}
    return private_solver(problem, solver_options(config), settings, folder.messages, **how)


def shared_part(solver: Run, result: SolveResult, labels: LabelData, model_id: str) -> SharedPart:
    """What the coordinator has of a model."""
    names = solver.problem.names
    return SharedPart(
        names=names,
        n_features=[int(block.shape[1]) for block in solver.problem.blocks],
        scales=solver.held_weights(result.weights)[1] or [1.0] * len(names),
        **common_of(solver, result, labels, model_id),
    )


def write_own_part(directory: Path, solver: Run, result: SolveResult, own: PartyData, model_id: str) -> None:
    """The label holder's own part of a model."""
    m, (weights, scales) = solver.problem.names.index(own.name), solver.held_weights(result.weights)
    line = statement_of(solver).weights_line(own.name)
    how: Any = own.transform, solver.clips_rows, scales[m], own.encoder, line
    part = PartyModel(own.name, weights[m], list(own.feature_names), *how)
    write_party_model(directory / f"{own.name}.h5", part, model_id=model_id)

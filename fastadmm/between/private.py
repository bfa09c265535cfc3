"""The coordinator's side of a private run by files: it asks for noised releases, and sees nothing else.

A private run has few rounds, so it is begun again from the first whenever messages have come in;
what parties sent is kept until the end. The label holder of mode "fusion" takes part with columns of its
own, which stay in its process.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fastadmm.between.private_terms import chooses_slack
from fastadmm.conversation.exchange import Call, Driver, Exchange, Talk
from fastadmm.errors import ConfigError, InputError
from fastadmm.files.atomic import shown
from fastadmm.privacy.fusion import FusionSolver
from fastadmm.privacy.ledger import Ledger
from fastadmm.privacy.message import MessageSolver, private_solver
from fastadmm.privacy.published import certificate_of_model
from fastadmm.privacy.statement import PrivacyStatement
from fastadmm.problem.problem import Problem
from fastadmm.runs.config import solver_options
from fastadmm.runs.folder import RoundLog, RunFolder
from fastadmm.runs.private import label_account_of
from fastadmm.runs.result import certificate_of
from fastadmm.settings.privacy import DifferentialPrivacy
from fastadmm.settings.run import RunConfig
from fastadmm.solver.loop import SolveResult
from fastadmm.solver.run import Run
from fastadmm.store.label_file import LabelData
from fastadmm.store.model import PartyModel, SharedPart, write_party_model, write_shared_part
from fastadmm.store.model_id import model_id_of
from fastadmm.store.party_file import PartyData, open_party


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
    if chooses_slack(settings):
        raise ConfigError("privacy.slack: between parties it follows from public numbers; leave it out")
    ledger = Ledger(folder.ledger if config.ledger is None else Path(config.ledger))
    return private_solver(
        problem,
        solver_options(config),
        settings,
        folder.messages,
        ledger=ledger,
        run=run,
        unproved={},
        label_account=label_account_of(labels, problem.names, settings),
        driver=driver,
    )


def shared_part(
    solver: Run,
    result: SolveResult,
    labels: LabelData,
    model_id: str,
    statement: PrivacyStatement,
    scales: list[float],
) -> SharedPart:
    """What the coordinator has of a model."""
    problem = solver.problem
    return SharedPart(
        loss=problem.loss.text,
        task=problem.loss.task,
        lam=problem.recorded_lam,
        intercept=result.intercept,
        classes=labels.classes,
        names=problem.names,
        n_features=[int(block.shape[1]) for block in problem.blocks],
        scales=scales,
        certificate=certificate_of_model(certificate_of(result), statement),
        penalty=problem.describe_penalty(),
        privacy=statement,
        model_id=model_id,
    )


@dataclass(frozen=True)
class Ended:
    """A private run that is over: its result, and the identifier of its model."""

    result: SolveResult
    model_id: str


def private_run(solver: Run, elsewhere: list[int], run: str, log: RoundLog) -> Talk[Ended]:
    """All rounds, and the end: parties write their parts of the model."""
    history, status = [], None
    while status is None:
        record = yield from solver.next_round()
        log.append(record)
        log.sync()
        history.append(record)
        status = solver.stop_reason(record)
    message = solver.describe(status, record)
    result = SolveResult(solver.party_weights(), solver.intercept, status, message, history)
    model_id = model_id_of(run, result.record.round)
    yield Exchange([Call(m, "keep", {"model_id": model_id}) for m in elsewhere])
    return Ended(result, model_id)


def write_private_model(
    directory: Path, solver: Run, ended: Ended, labels: LabelData, own: PartyData | None
) -> None:
    """The shared part of the model, and the label holder's own."""
    problem, result, statement = solver.problem, ended.result, solver.statement()
    weights, scales = solver.held_weights(result.weights)
    shared = shared_part(solver, result, labels, ended.model_id, statement, scales)
    write_shared_part(directory, shared)
    if own is not None:
        m = problem.names.index(own.name)
        part = PartyModel(
            own.name,
            weights[m],
            list(own.feature_names),
            own.transform,
            solver.clips_rows,
            scales[m],
            own.encoder,
            statement.weights_line(own.name),
        )
        write_party_model(directory / f"{own.name}.h5", part, model_id=ended.model_id)

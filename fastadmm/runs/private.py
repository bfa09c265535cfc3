"""The private side of a run on disk: its solver, its ledger, its stored messages and its statement."""

from __future__ import annotations

import math
import secrets
from pathlib import Path

from fastadmm.errors import ConfigError, FormatError
from fastadmm.files.atomic import shown, storage_errors, write_json
from fastadmm.files.reading import read_json
from fastadmm.privacy.accounts import Account, feature_account, label_account
from fastadmm.privacy.ledger import Ledger
from fastadmm.privacy.message import private_solver
from fastadmm.privacy.origins import why_no_labels, why_unproved
from fastadmm.privacy.statement import PrivacyStatement, no_privacy, rounded_up
from fastadmm.problem.problem import Problem
from fastadmm.runs.config import recorded, solver_options
from fastadmm.settings.privacy import DifferentialPrivacy
from fastadmm.settings.run import RunConfig
from fastadmm.solver.early_stopping import EarlyStopping
from fastadmm.solver.run import Run
from fastadmm.solver.solver import Solver
from fastadmm.solver.warm_start import StartingPoint
from fastadmm.store.label_file import LabelData
from fastadmm.store.partition import Partition

#: The statement and the run's identifier in ledgers.
STATEMENT = "privacy.json"

#: The run's own ledger, where none is shared.
LEDGER = "privacy-ledger.jsonl"

_MESSAGES = "messages"


def new_run_id() -> str:
    """An identifier that no other run has."""
    return secrets.token_hex(8)


def make_solver(
    config: RunConfig,
    problem: Problem,
    partition: Partition,
    run: Path,
    run_id: str,
    start: StartingPoint | None = None,
    early: EarlyStopping | None = None,
) -> Run:
    """The solver that a configuration asks for."""
    options, settings = solver_options(config), config.privacy
    if not isinstance(settings, DifferentialPrivacy):
        if config.ledger is not None:
            raise ConfigError("key 'ledger': a run without privacy charges nothing; leave it out")
        return Solver(problem, options, start=start, early=early)
    ledger = Ledger(Path(config.ledger) if config.ledger is not None else run / LEDGER)
    return private_solver(
        problem,
        options,
        settings,
        run / _MESSAGES,
        [party.content_digest for party in partition.parties],
        ledger=ledger,
        run=run_id,
        unproved=unproved_parties(settings, partition),
        accounts=[feature_account(party) for party in partition.parties],
        label_account=label_account_of(partition.labels, problem.names, settings),
    )


def label_account_of(
    labels: LabelData | None, names: list[str], settings: DifferentialPrivacy
) -> Account | None:
    """The account of labels, if they are to be randomised."""
    if settings.label_epsilon is None or labels is None:
        return None
    return label_account(labels.ids(), settings.label_holder(names) or "the label holder")


def unproved_parties(settings: DifferentialPrivacy, partition: Partition) -> dict[str, str]:
    """Parties that would send what was prepared by constants of their private rows: no theorem covers it."""
    if settings.public_scaling:
        return {}
    # The label holder sends nothing about its columns.
    holder = settings.label_holder([party.name for party in partition.parties])
    sending = [party for party in partition.parties if party.name != holder]
    settings.refuse_told_labels({party.name: why_no_labels(party.steps) for party in sending})
    found = {party.name: why_unproved(party.steps) for party in sending}
    return {name: why for name, why in found.items() if why}


def statement_of(solver: Run) -> PrivacyStatement:
    """The statement of any solver, private or not."""
    return solver.statement() or no_privacy(solver.problem.names)


def write_statement(directory: Path, solver: Run, run_id: str) -> PrivacyStatement:
    """Write ``privacy.json``; return the statement."""
    statement = statement_of(solver)
    mechanism = {"mechanism": solver.mechanism()} if solver.private else {}
    document = {
        "run": run_id,
        **mechanism,
        "one_line": statement.one_line(),
        "statement": statement.to_json(),
    }
    write_json(directory / STATEMENT, document)
    return statement


def read_run_id(run: Path) -> str:
    """The identifier under which a run charged its ledger; a new one for a run older than statements."""
    path = run / STATEMENT
    with storage_errors(path, "read"):
        if not path.exists():
            return new_run_id()
        try:
            found = read_json(path)["run"]
        except (KeyError, TypeError) as error:
            raise FormatError(f"{shown(path)}: not a privacy record: {error}; train anew") from None
    if not isinstance(found, str):
        raise FormatError(f"{shown(path)}: key 'run' must be a text; train anew")
    return found


def ledger_rows(run: Path) -> list[tuple[str, str]]:
    """Rows for a statement's table: what all runs have spent, to this day, on the data of this one."""
    path = run / "run.toml"
    with storage_errors(run, "read"):
        if not path.exists():
            return []
    found = recorded(run)
    config = found.config
    if not isinstance(config.privacy, DifferentialPrivacy):
        return []
    if found.by_files:
        own = "each party's own, which it charges: the party's STATE/privacy.json says what was spent"
        return [("ledger", own)]
    file = Path(config.ledger) if config.ledger is not None else run / LEDGER
    with storage_errors(file, "read"):
        if not file.exists():
            return [("ledger", f"{shown(file)} is not there: what else was spent on these data is not known")]
    ledger, identifier = Ledger(file), read_run_id(run)
    delta = ledger.delta(config.privacy.delta)
    rows = []
    for charges in ledger.accounts():
        if any(charge.run == identifier for charge in charges):
            account = charges[-1].account
            spent = ledger.spent(account)
            pure = spent.gdp == spent.rho == 0.0
            epsilon = math.fsum(spent.pure) if pure else spent.epsilon(delta)
            text = f"epsilon {rounded_up(epsilon)}" + ("" if pure else f" at delta {delta!r}")
            rows.append((f"ledger now: {account.party}, {account.role}", f"{text}, {spent.runs} run(s)"))
    return rows or [("ledger", f"{shown(file)} holds no charge of this run: what was spent is not known")]

"""What a run is solved with and what it leaves: solver, ledger, statement, model and result."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.errors import FormatError
from fastadmm.files.atomic import shown, storage_errors, write_json
from fastadmm.files.seal import damaged
from fastadmm.privacy.accounts import Account, label_account
from fastadmm.privacy.ledger import Ledger, spent_words
from fastadmm.privacy.origins import why_unproved
from fastadmm.privacy.published import certificate_of_model
from fastadmm.privacy.statement import PrivacyStatement, no_privacy
from fastadmm.runs.config import recorded
from fastadmm.runs.folder import document_in
from fastadmm.settings.privacy import DifferentialPrivacy
from fastadmm.settings.run import RunConfig
from fastadmm.solver.history import RoundRecord
from fastadmm.solver.loop import SolveResult
from fastadmm.solver.run import Run
from fastadmm.store.label_file import LabelData
from fastadmm.store.model import Model, PartyModel, model_id_of
from fastadmm.store.partition import Partition

#: The statement and the run's identifier in ledgers.
STATEMENT = "privacy.json"

#: The run's own ledger, where none is shared.
LEDGER = "privacy-ledger.jsonl"


def new_run_id() -> str:
    """An identifier that no other run has."""
    return secrets.token_hex(8)


def ledger_of(config: RunConfig, run: Path) -> Path:
    """The ledger that a run charges."""
    return run / LEDGER if config.ledger is None else Path(config.ledger)


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
    told = {party.name: why_unproved(party.steps, labels=True) for party in sending}
    settings.refuse_unproved(told, labels=True)
    found = {party.name: why_unproved(party.steps) for party in sending}
    return {name: why for name, why in found.items() if why}


def statement_of(solver: Run) -> PrivacyStatement:
    """The statement of any solver, private or not."""
    return solver.statement() or no_privacy(solver.problem.names)


def write_statement(directory: Path, solver: Run, run_id: str) -> PrivacyStatement:
    """Write ``privacy.json``; return the statement."""
    statement = statement_of(solver)
    document = {
        "run": run_id,
        **({"mechanism": solver.mechanism()} if solver.private else {}),
        "one_line": statement.one_line(),
        "statement": statement.to_json(),
    }
    write_json(directory / STATEMENT, document)
    return statement


def read_run_id(run: Path) -> str:
    """The identifier under which a run charged its ledger; a new one for a run older than statements."""
    path = run / STATEMENT
    document = document_in(path)
    if document is None:
        return new_run_id()
    with damaged(path, "train anew", "not a privacy record"):
        found = document["run"]
    if not isinstance(found, str):
        raise FormatError(f"{shown(path)}: key 'run' must be a text; train anew")
    return found


def ledger_rows(run: Path) -> list[tuple[str, str]]:
    """Rows for a statement's table: what all runs have spent, to this day, on the data of this one."""
    with storage_errors(run, "read"):
        found = recorded(run) if (run / "run.toml").exists() else None
    if found is None or not isinstance(found.config.privacy, DifferentialPrivacy):
        return []
    if found.by_files:
        own = "each party's own, which it charges: the party's STATE/privacy.json says what was spent"
        return [("ledger", own)]
    file = ledger_of(found.config, run)
    with storage_errors(file, "read"):
        if not file.exists():
            return [("ledger", f"{shown(file)} is not there: what else was spent on these data is not known")]
    ledger, identifier = Ledger(file), read_run_id(run)
    delta = ledger.delta(found.config.privacy.delta)
    rows = []
    for charges in ledger.accounts():
        if any(charge.run == identifier for charge in charges):
            account = charges[-1].account
            spent = ledger.spent(account)
            text = spent_words(spent, delta if spent.total_gdp else 0.0)
            rows.append((f"ledger now: {account.party}, {account.role}", text))
    return rows or [("ledger", f"{shown(file)} holds no charge of this run: what was spent is not known")]


# --- model and result ---------------------------------------------------------------------------------------


def certificate_of(result: SolveResult) -> dict[str, Any]:
    """What proves a model, as its manifest keeps it."""
    numbers = _numbers(result.record)
    last = {"stationarity": result.record.stationarity, "rounds": result.record.round}
    return {"status": str(result.status), **numbers, "objective": result.record.objective, **last}


def _numbers(record: RoundRecord) -> dict[str, Any]:
    """Objective and gaps of a round."""
    told = {key: record.to_json()[key] for key in ("objective", "gap", "gap_absolute")}
    return told if record.gap_within is None else told | {"gap_within": record.gap_within}


def model_of(partition: Partition, solver: Run, result: SolveResult, run_id: str) -> Model:
    """A result as a model to store."""
    statement, problem = statement_of(solver), solver.problem
    weights, scales = solver.held_weights(result.weights)
    if problem.own_lambda is not None:
        weights = problem.own_lambda.original(weights)
    parties = []
    for p, w, scale in zip(partition.parties, weights, scales):
        about = p.transform, solver.clips_rows, scale, p.encoder, statement.weights_line(p.name)
        parties.append(PartyModel(p.name, w, list(p.feature_names), *about))
    model_id = model_id_of(run_id, result.record.round)
    return Model(parties=parties, **common_of(solver, result, partition.labels, model_id))


def common_of(solver: Run, result: SolveResult, labels: LabelData | None, model_id: str) -> dict[str, Any]:
    """What a model and its shared part both say of a result."""
    problem, statement = solver.problem, statement_of(solver)
    return {
        "loss": problem.loss.text,
        # Least squares on classes predicts a real number, no probability.
        "task": problem.loss.task,
        "lam": problem.recorded_lam,
        "intercept": result.intercept,
        "classes": None if labels is None else labels.classes,
        "certificate": certificate_of_model(certificate_of(result), statement),
        "penalty": problem.describe_penalty(),
        "privacy": statement,
        "model_id": model_id,
    }


def result_document(
    solver: Run, result: SolveResult, statement: dict[str, Any] | None = None
) -> dict[str, Any]:
    """What ``result.json`` says of the solution."""
    last, problem, traffic = result.record.to_json(), solver.problem, solver.traffic
    done, n = result.history[-1], solver.engine.all_rows(problem.n_samples)
    sent = None if traffic is None else traffic.bytes_by_party(n)
    parties = []
    for m, (name, update, _) in enumerate(solver.party_notes()):
        own = problem.own_lambda
        about = {"n_features": int(problem.blocks[m].shape[1]), "weight_norm": last["weight_norms"][m]}
        about |= {} if own is None else {"lambda": own.values[m]}
        moved = {} if sent is None else {"bytes": sent[m]}
        parties.append({"name": name, **about, "file": f"{name}.h5", **moved, "x_update": update})
    kept = {} if result.kept is None else {"kept_round": last["round"]}
    if kept and "validation" in last:
        kept["validation"] = last["validation"]
    return {
        "status": str(result.status),
        "message": result.message,
        "rounds": done.round,
        "seconds": done.seconds,
        **kept,
        **_numbers(result.record),
        **({} if statement is None else {"certificate": statement}),
        "stationarity": last.get("stationarity"),
        "convex": problem.convex,
        "scheme": solver.name,
        "program": solver.program(),
        "lambda": problem.recorded_lam,
        "loss": problem.loss.text,
        **problem.describe_penalty(),
        "n_samples": n,
        **({} if traffic is None else {"exchanges": traffic.exchanges}),
        "parties": parties,
        **_intercepts(result.intercept),
        "test": last["test"],
    }


def class_rows(labels: LabelData | None) -> dict[str, Any]:
    """Training rows of each class, where labels are classes."""
    if labels is None or labels.classes is None:
        return {}
    counts = np.bincount(labels.y.astype(np.intp), minlength=len(labels.classes))
    return {"class_rows": dict(zip(labels.classes, counts.tolist()))}


def _intercepts(intercept: Any) -> dict[str, Any]:
    if np.ndim(intercept):
        return {"intercept": None, "intercepts": [float(b) if np.isfinite(b) else None for b in intercept]}
    return {"intercept": intercept if np.isfinite(intercept) else None}

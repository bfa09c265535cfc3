"""An alignment or predictions in words for the owner of the data, and the approval that is written of it."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import h5py

from fastadmm.between.approval import APPROVAL, DAYS, terms_digest
from fastadmm.between.approval_words import listed, screen
from fastadmm.between.approve import consent_to_run, known_of, remembered, run_description, settled
from fastadmm.between.audit import AUDIT, read_audit
from fastadmm.between.consent import Consent
from fastadmm.between.inferring import draft_inference, inference_words
from fastadmm.between.schema import run_identifier
from fastadmm.between.task_approval import ALIGN, INFER, PREDICT, TaskApproval
from fastadmm.between.task_book import used
from fastadmm.between.vocabulary import parties_of, quoted
from fastadmm.data_tools.psi import library
from fastadmm.errors import ConfigError, FormatError, InputError
from fastadmm.files.atomic import shown
from fastadmm.files.reading import read_json
from fastadmm.store.model import open_party_model
from fastadmm.store.party_file import open_party


def is_task(path: Path) -> bool:
    """Whether a file says what a task is about, and not a run."""
    document = read_json(path)
    return isinstance(document, dict) and document.get("format") == "fastadmm-task"


def approve_task(
    path: Path,
    state: Path,
    file: Path | None,
    *,
    data: Path | None = None,
    id: str | None = None,
    duplicates: str = "refuse",
    separator: str | None = None,
    id_pattern: str | None = None,
    force: bool = False,
    confirm: str | None = None,
) -> tuple[list[str], Path]:
    """Show what was asked, or approve what was shown."""
    document, place = read_json(path), shown(path)
    run_identifier(document.get("task"), place)
    if document.get("kind") == "infer":
        consent = _inference(document, place, state, data)
    elif document.get("kind") == "worth":
        consent = _runs(document, place, state, data, file)
    else:
        consent = _rows(document, place, state, file, id, duplicates, separator, id_pattern)
    return settled(consent, force, confirm)


def _rows(
    document: dict[str, Any],
    place: str,
    state: Path,
    file: Path | None,
    id: str | None,
    duplicates: str,
    separator: str | None,
    id_pattern: str | None,
) -> Consent:
    """An alignment, or predictions."""
    kind = document.get("kind")
    count = document.get("n_ids" if kind == "align" else "n_samples")
    texts = [document.get(key) for key in ("task", "coordinator", "party")]
    if (
        kind not in ("align", "predict")
        or type(count) is not int
        or not all(isinstance(t, str) for t in texts)
    ):
        raise FormatError(f"{place}: damaged; ask the coordinator to ask again")
    if kind == "align":
        library()
    if kind == "align" and file is None:
        file, id = remembered(state, "rows"), id or known_of(state).get("id")
    if file is None:
        what = "the table whose ids are compared" if kind == "align" else "features of the rows to be scored"
        raise ConfigError(f"--rows: name {what}")
    if not file.is_file():
        raise InputError(f"{shown(file)}: there is no such file")
    if id is None and (kind == "align" or not h5py.is_hdf5(file)):
        raise ConfigError("--id: which column of the table holds the ids?")
    run = run_identifier(document.get("run"), place) if kind == "predict" else ""
    approval_file = state / run / PREDICT if run else state / ALIGN
    if run and not (state / run / APPROVAL).exists():
        raise InputError(f"{place}: about run {run}, which is not approved in {shown(state)}")
    entries = read_audit(state / AUDIT)[0] if (state / AUDIT).exists() else []
    spent = used(entries, approval_file.name, run)
    approval = TaskApproval(
        approval_file,
        document["party"],
        [document["coordinator"]],
        str(file.absolute()),
        spent["requests"] + 2,  # refused ones count
        spent["rows"] + count,
        datetime.date.today() + datetime.timedelta(days=DAYS),
        id,
        duplicates,
        separator,
        id_pattern,
    )
    return Consent(state, document["task"], _words(approval, document, spent), [approval], approval_file)


def _inference(document: dict[str, Any], place: str, state: Path, data: Path | None) -> Consent:
    run = run_identifier(document.get("run"), place)
    party, caller = document.get("party"), document.get("coordinator")
    if not isinstance(party, str) or not isinstance(caller, str):
        raise FormatError(f"{place}: damaged; ask the coordinator to ask again")
    if data is None:
        raise ConfigError("--data: name the features that the model was trained on")
    if not (state / run / APPROVAL).exists():
        raise InputError(f"{place}: about run {run}, which is not approved in {shown(state)}")
    features = open_party(data)
    entries = read_audit(state / AUDIT)[0] if (state / AUDIT).exists() else []
    approval = draft_inference(state / run / INFER, party, caller, features, used(entries, INFER, run))
    words = inference_words(approval, caller, run, features.n_features)
    return Consent(state, document["task"], words, [approval], approval.path)


def _runs(document: dict[str, Any], place: str, state: Path, data: Path | None, file: Path | None) -> Consent:
    """One approval for a set of runs, and for the scores of one set of rows by each of their models."""
    runs, count, caller = document.get("runs"), document.get("n_samples"), document.get("coordinator")
    if not isinstance(runs, dict) or not runs or type(count) is not int or not isinstance(caller, str):
        raise FormatError(f"{place}: damaged; ask the coordinator to ask again")
    if data is None or file is None or not h5py.is_hdf5(file):
        raise ConfigError(
            "--data and --rows: name the features that the runs are trained on, and those of the test rows"
        )
    words: dict[str, list[str]] = {}
    approvals: list[Any] = []
    party, members = open_party(data).name, set[str]()
    for run, terms in runs.items():
        own = run_description(run_identifier(run, place), caller, {party: terms})
        consent = consent_to_run(own, place, data, state)
        # Beside who takes part, all are alike: one screen is about all of them.
        members |= set(parties_of(terms, place))
        alike = {**terms, "position": 0, "parties": ""}
        words.setdefault(terms_digest(alike), list(consent.words))
        until = datetime.date.today() + datetime.timedelta(days=DAYS)
        limits = (str(file.absolute()), 2, count, until)  # refused ones count
        scores = TaskApproval(consent.path.with_name(PREDICT), party, [caller], *limits)
        approvals += [*consent.approvals, scores]
    if len(words) > 1:
        text = "runs of different kinds in one request; ask for each kind by itself"
        raise FormatError(f"{place}: {text}")
    first = (
        f"{quoted(caller)} asks {listed([party])} for {len(runs)} runs, with different sets of the others of "
        f"{listed(sorted(members))}, and for scores of {count:,} test rows with each model. What leaves adds "
        "up. Each run is like this one:"
    )
    (one,) = words.values()
    return Consent(state, document["task"], [*screen([first]), *one], approvals, state)


def _words(approval: TaskApproval, asked: dict[str, Any], spent: dict[str, int]) -> list[str]:
    who = f"{quoted(asked['coordinator'])} asks {listed([approval.party])}"
    limits = (
        f"Limits: {approval.requests:,} questions, refused ones counted, and {approval.rows:,} rows, of "
        f"which {spent['requests']:,} and {spent['rows']:,} are used; until {approval.last_day}."
    )
    if approval.path.name == ALIGN:
        return screen(
            [
                f"{who} which of its {asked['n_ids']:,} ids are in {quoted(approval.file, 200)} too.",
                "It learns these, and how many ids the table has; you learn those that all parties have.",
                "It may have put guessed ids among its own: each is answered, up to the limit.",
                limits,
            ]
        )
    part = approval.path.with_name(f"{approval.party}.h5")
    exact = "A score is exact: the row's features times your weights"
    if part.exists() and len(open_party_model(part)[0].feature_names) == 1:
        exact = "You have ONE column: the scores are that column, up to a factor"
    return screen(
        [
            f"{who} for the scores of {asked['n_samples']:,} rows of {quoted(approval.file, 200)} with the "
            f"model of run {asked['run']}.",
            f"{exact}, without noise (epsilon is infinite).",
            "Whoever knows the features of some rows works out weights from their scores, as many as rows, "
            "and with all weights a number on the features of every other row.",
            limits,
        ]
    )

"""An alignment or predictions in words for the owner of the data, and the approval that is written of it."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py

from fastadmm.errors import ConfigError, FormatError, InputError
from fastadmm.federation.agent import AUDIT
from fastadmm.federation.approve import approve_run, run_description
from fastadmm.federation.asked import forget_asked
from fastadmm.federation.audit import read_audit
from fastadmm.federation.inferring import draft_inference, inference_words
from fastadmm.federation.party_tasks import used
from fastadmm.federation.schema import run_identifier
from fastadmm.federation.task_approval import ALIGN, INFER, PREDICT, TaskApproval, write_task_approval
from fastadmm.files.atomic import shown
from fastadmm.files.reading import read_json
from fastadmm.rounds.approval import APPROVAL, DAYS
from fastadmm.store.party_file import open_party

__all__ = ["approve_task", "is_task"]


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
    force: bool = False,
) -> tuple[list[str], Path]:
    """Write the approval of what was asked, for the owner of the data to edit.

    Parameters
    ----------
    path : Path
        What the agent kept of the request.
    state : Path
        The agent's directory.
    file : Path or None
        The table whose ids are compared; features of the rows that are scored.
    data : Path or None
        Of a set of runs, or of standard errors: the features that the models are trained on.
    id : str or None
        Id column, where the file is a table.
    duplicates : {"refuse", "first", "drop"}
        What is done with ids that occur more than once in it.
    separator : str or None
        Between its cells; None is recognised.
    force : bool
        Whether an older approval may be replaced; what was answered so far stays counted.

    Returns
    -------
    list of str
        What is asked, in plain words.
    Path
        The approval.

    Raises
    ------
    FastadmmError
        The file is none, or options do not go together.
    """
    document = read_json(path)
    place = shown(path)
    kind = document.get("kind")
    if kind == "infer":
        return _approve_inference(document, place, state, data, force)
    if kind == "worth":
        return _approve_runs(document, place, state, data, file, force)
    count = document.get("n_ids" if kind == "align" else "n_samples")
    texts = [document.get(key) for key in ("task", "coordinator", "party")]
    if (
        kind not in ("align", "predict")
        or type(count) is not int
        or not all(isinstance(t, str) for t in texts)
    ):
        raise FormatError(f"{place}: damaged; ask the coordinator to ask again")
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
        spent["requests"] + 1,
        spent["rows"] + count,
        datetime.date.today() + datetime.timedelta(days=DAYS),
        id,
        duplicates,
        separator,
    )
    write_task_approval(approval, force=force)
    forget_asked(state, document["task"])
    return _words(approval, document), approval_file


def _approve_inference(
    document: dict[str, Any], place: str, state: Path, data: Path | None, force: bool
) -> tuple[list[str], Path]:
    run = run_identifier(document.get("run"), place)
    party, caller = document.get("party"), document.get("coordinator")
    if not isinstance(party, str) or not isinstance(caller, str):
        raise FormatError(f"{place}: damaged; ask the coordinator to ask again")
    if data is None:
        raise ConfigError("--data: name the features that the model was trained on")
    if not (state / run / APPROVAL).exists():
        raise InputError(f"{place}: about run {run}, which is not approved in {shown(state)}")
    drafted = draft_inference(state / run / INFER, party, caller, open_party(data))
    entries = read_audit(state / AUDIT)[0] if (state / AUDIT).exists() else []
    spent = used(entries, INFER, run)
    more = {key: spent[key] + getattr(drafted, key) for key in ("requests", "rows")}
    write_task_approval(replace(drafted, **more), force=force)
    forget_asked(state, document["task"])
    return inference_words(drafted, caller, run), drafted.path


def _approve_runs(
    document: dict[str, Any], place: str, state: Path, data: Path | None, file: Path | None, force: bool
) -> tuple[list[str], Path]:
    """One approval for a set of runs, and for the scores of one set of rows by each of their models."""
    runs, count, caller = document.get("runs"), document.get("n_samples"), document.get("coordinator")
    if not isinstance(runs, dict) or not runs or type(count) is not int or not isinstance(caller, str):
        raise FormatError(f"{place}: damaged; ask the coordinator to ask again")
    if data is None or file is None or not h5py.is_hdf5(file):
        raise ConfigError(
            "--data and --rows: name the features that the runs are trained on, and those of the test rows"
        )
    words: dict[tuple[str, ...], list[str]] = {}
    party = open_party(data).name
    for run, terms in runs.items():
        own = run_description(run_identifier(run, place), caller, {party: terms})
        lines, path = approve_run(own, place, data, state, force)
        words.setdefault(tuple(lines[1:]), lines)  # the first line names the run
        until = datetime.date.today() + datetime.timedelta(days=DAYS)
        limits = (str(file.absolute()), 1, count, until)
        write_task_approval(TaskApproval(path.with_name(PREDICT), party, [caller], *limits), force=force)
    forget_asked(state, document["task"])
    first = f"{len(runs)} runs, of {party} with each set of the others, are approved; "
    first += "all like this one:" if len(words) == 1 else f"in {len(words)} different ways:"
    last = (
        f"and {count} test rows are scored with each run's model. What leaves adds up: exact answers of "
        f"{len(runs)} runs on the same features"
    )
    return [first, *(line for lines in words.values() for line in lines), last], state


def _words(approval: TaskApproval, asked: dict[str, Any]) -> list[str]:
    who = f"{asked['coordinator']} asks {approval.party}"
    limits = f"limits: {approval.requests} requests, {approval.rows} rows in all, until {approval.last_day}"
    if approval.path.name == ALIGN:
        return [
            f"{who} which of its {asked['n_ids']} ids are in {shown(Path(approval.file))} too",
            "it learns these, and how many ids the table has; you learn those that all parties have",
            "it may have put guessed ids among its own: each is answered, up to the limit",
            limits,
        ]
    return [
        f"{who} for the scores of {asked['n_samples']} rows with the model of run {asked['run']}",
        "a score is exact: the row's features times your weights, without noise (epsilon is infinite)",
        "whoever knows the features of some rows works out weights from their scores, as many as rows, and "
        "with all weights a number on the features of every other row",
        limits,
    ]

"""The party's side of training by files: a request comes in, the answer goes out, state stays at home."""

from __future__ import annotations

import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from fastadmm.between.approval import (
    APPROVAL,
    Approval,
    approve,
    counted_refusals,
    draft_approval,
    first_terms,
    sees_columns,
)
from fastadmm.between.approval_file import INFER, ledger_words, open_approval, write_approval
from fastadmm.between.audit import AUDIT, AuditLog, moment, used
from fastadmm.between.consent import run_words
from fastadmm.between.host import KEYS, Site
from fastadmm.between.letters import open_letter, sealed
from fastadmm.between.party_tasks import PartyTasks, TaskBook
from fastadmm.between.schema import Request, code_of, most_bytes, request_of
from fastadmm.between.scoring import Home, draft_inference, inference_words
from fastadmm.between.session import STATE, Session, classes_of
from fastadmm.between.socket import LONGEST
from fastadmm.between.task import task_of
from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, FastadmmError, InputError, StorageError
from fastadmm.files.atomic import remove_leftovers, shown, storage_errors, write_whole
from fastadmm.files.reading import read_bytes
from fastadmm.runs.folder import run_lock
from fastadmm.store.party_file import PartyData, open_party

#: Who asks by files, as approvals and the audit log name it.
ASKER = "the coordinator"


def party_step(
    data: Path,
    state: Path,
    request: Path,
    out: Path,
    *,
    approval: Path | None = None,
    ledger: Path | None = None,
    force: bool = False,
    threads: int | None = None,
    test: Path | None = None,
    validation: Path | None = None,
) -> list[str]:
    """Answer one request; what its owner is told."""
    party, place = open_party(data), shown(request)
    with Engine(threads) as engine:
        site = Site(party, engine, ledger, {"test": test, "validation": validation})
        if not (state / STATE).exists():
            site.check()
        with counted_refusals(state):
            envelope = open_letter(request, most_bytes(party.n_samples, classes_of(state / STATE)))
            asked = request_of(envelope, party.n_samples, place)
        if asked.party != party.name:
            raise InputError(f"{place}: for {asked.party}, but {shown(data)} is of {party.name}")
        with storage_errors(out):
            if out.is_dir() or not out.absolute().parent.is_dir():
                raise StorageError(f"{shown(out)}: cannot write: not a file name in an existing directory")
        with storage_errors(state):
            is_new = not state.exists() and asked.number == 0
            if is_new:
                state.mkdir(mode=0o700, exist_ok=True)
            elif not state.is_dir():
                raise StorageError(f"{shown(state)}: no state of a run; begin with the run's first request")
        try:
            with run_lock(state):
                remove_leftovers(state)
                agreed = _agreed(asked, party, state, place, approval)
                with (
                    closing(AuditLog(state / AUDIT)) as audit,
                    counted_refusals(state),
                    closing(Session(site, state, asked.run, audit, agreed, by_files=True)) as session,
                ):
                    raw, repeated = _answered(session, asked, envelope.raw, place)
                    if agreed is not None:
                        write_approval(replace(agreed, path=state / APPROVAL), force=True)
        except FastadmmError:
            if is_new and not (state / APPROVAL).exists():
                shutil.rmtree(state, ignore_errors=True)  # nothing was answered
            raise
    _give(raw, out, force)
    said = [f"request {asked.number} answered{' before: the same message' if repeated else ''} in {out}"]
    if approval is None and agreed is not None:
        how = "without --approval this is what was agreed to; edit approval.toml in the state to narrow it:"
        said += [how, *run_words(agreed, party, asked.calls[0][1], [ledger_words(ledger, party)])]
    statement = None if repeated or session.host is None else session.host.statement
    said += [] if statement is None else [statement.one_line()]
    if not repeated and any(name == "introduce" for name, _ in asked.calls):
        said.append(
            "the coordinator sees only sums if these are the parties' keys: compare them by telephone"
        )
        said += (state / KEYS).read_text(encoding="utf-8").splitlines()
    model = state / f"{party.name}.h5"
    return [*said, *([f"the run is over; own part of the model in {model}"] if model.exists() else [])]


def _answered(session: Session, asked: Request, raw: bytes, place: str) -> tuple[bytes, bool]:
    """The answer, and whether it had been given before; it or the refusal is in the audit log."""
    entry = {"time": moment(), "caller": ASKER, "run": asked.run, "number": asked.number}
    entry |= {"calls": [name for name, _ in asked.calls], "request": asked.digest}
    try:
        message = session.answer(asked, raw, entry, place)
    except Exception as error:
        session.audit.add_bounded(entry | {"code": code_of(error)})
        raise
    session.keep()
    return message, bool(entry["repeated"])


def _agreed(asked: Request, party: PartyData, state: Path, place: str, given: Path | None) -> Approval | None:
    """What the owner agrees to with this step; None where that was said before."""
    if given is not None:
        return open_approval(given)
    path = state / APPROVAL
    if path.exists():
        return None
    if asked.number:
        raise InputError(f"{shown(state)}: no state; answer the run's first request before {place}")
    terms = first_terms(asked, party, place)
    if sees_columns(terms):
        what = f"regularizer {terms['regularizer']!r} with constraint {terms['constraint']!r}"
        raise InputError(
            f"{place}: {what} lets a coordinator that deviates read single columns; it needs the owner's "
            f"approval: 'fastadmm party approve {place} --data {shown(party.path)} -o approval.toml', then "
            "'party step --approval approval.toml'"
        )
    draft = draft_approval(terms, asked.run, party, path, None)
    if draft.protection is not None and draft.protection.sampler == "insecure_test":
        raise InputError(
            f"{place}: its noise is seeded, for tests, and protects nothing; it needs the owner's approval "
            "('fastadmm party approve')"
        )
    return draft


def party_approve(
    request: Path, data: Path, out: Path, force: bool = False, ledger: Path | None = None
) -> list[str]:
    """Write the approval of a run's first request, for the owner of the data to edit."""
    party = open_party(data)
    place, n = shown(request), party.n_samples
    asked = request_of(open_letter(request, most_bytes(n)), n, place)
    approval = approve(asked, party, place, out)
    write_approval(approval, force=force)
    return run_words(approval, party, asked.calls[0][1], [ledger_words(ledger, party)])


def _give(raw: bytes, out: Path, force: bool) -> None:
    content = sealed(raw)
    with storage_errors(out):
        if out.exists() and not force:
            if read_bytes(out) != content:
                raise StorageError(
                    f"{shown(out)}: exists already and is another file; pass --force to replace it"
                )
            return
    write_whole(out, content, shared=True)


def party_infer(
    request: Path, data: Path, state: Path, out: Path | None, *, approve: bool = False, force: bool = False
) -> list[str]:
    """Answer a request of an inference, or approve it first."""
    place, party = shown(request), open_party(data)
    envelope = open_letter(request, LONGEST)
    asked = task_of(envelope, place)
    if asked.party != party.name or asked.call not in ("span", "learn"):
        raise InputError(f"{place}: for {asked.party}, but {shown(data)} is of {party.name}")
    with storage_errors(state, "read"):
        if not state.is_dir():
            raise InputError(f"{shown(state)}: no state of a run; name the --state of 'fastadmm party step'")
    agreed, run = state / INFER, asked.arguments["run"]
    with run_lock(state):
        if approve:
            with closing(TaskBook(state)) as book:
                approval = draft_inference(agreed, party.name, ASKER, party, used(book.done, INFER, run))
            write_approval(approval, force=force)
            return [
                *inference_words(approval, ASKER, run, party.n_features),
                f"approved in {agreed}; edit the limits there, or delete it to answer nothing",
            ]
        if not agreed.exists():
            raise ConfigError(f"{shown(agreed)}: not approved; look at the request with --approve first")
        if out is None:
            raise ConfigError("--out: name the file to write the answer to")
        told: list[str] = []
        where = f"--data {shown(party.path)} --state {shown(state)}"
        remedy = f"fastadmm party infer {place} {where} --approve --force"
        with closing(AuditLog(state / AUDIT)) as audit:
            with closing(
                PartyTasks(Home(party.name, state, party, None, remedy), audit, told.append)
            ) as tasks:
                entry = {"time": moment(), "caller": ASKER, "run": "", "number": -1}
                message = tasks.answer(envelope, party.name, entry)
            write_whole(out, sealed(message), force=force)
    return [f"request answered in {shown(out)}", *told]

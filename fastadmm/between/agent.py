"""A party's own process, or a step of it by files: it decides what it answers, and remembers what it has."""

from __future__ import annotations

import shutil
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from fastadmm.between.approval import (
    APPROVAL,
    Approval,
    approve,
    counted_refusals,
    draft_approval,
    first_terms,
    sees_columns,
)
from fastadmm.between.approval_file import (
    ALIGN,
    INFER,
    LABELS,
    PREDICT,
    ledger_words,
    open_approval,
    open_task_approval,
    write_approval,
)
from fastadmm.between.audit import AUDIT, AuditLog, moment, read_audit, used
from fastadmm.between.consent import asked_lines, keep_asked, remember, run_description, run_words
from fastadmm.between.host import KEYS, Site
from fastadmm.between.letters import open_letter, sealed
from fastadmm.between.party_tasks import PartyTasks
from fastadmm.between.schema import (
    CODES,
    UNREAD,
    Envelope,
    ProtocolError,
    Refusal,
    Request,
    code_of,
    digest_of,
    encode_refusal,
    most_bytes,
    open_envelope,
    quoted,
    refused,
    request_of,
    run_identifier,
)
from fastadmm.between.scoring import ALIGNMENTS, Home
from fastadmm.between.session import STATE, Session
from fastadmm.between.socket import LONGEST
from fastadmm.engine.engine import Engine
from fastadmm.errors import FastadmmError, InputError, StorageError
from fastadmm.files.atomic import refuse_parent, remove_leftovers, shown, storage_errors, write_whole
from fastadmm.files.reading import read_bytes, read_json
from fastadmm.runs.folder import run_lock
from fastadmm.store.party_file import PartyData, check_party_name, open_party

#: A request of so many bytes is read whoever asks: the first of a run is no longer.
_SHORT = 2 << 20

#: Seconds after its last request for which a run that has not ended keeps other runs away.
_HELD = 600.0


class Agent:
    """Answers requests of approved runs; :meth:`handle` is what a socket is served with."""

    def __init__(
        self,
        data: Path | None,
        state: Path,
        *,
        name: str = "",
        ledger: Path | None = None,
        threads: int | None = None,
        test: Path | None = None,
        validation: Path | None = None,
        streamed: bool = False,
        say: Callable[[str], None] = print,
    ) -> None:
        self.data = None if data is None else open_party(data)
        self.name = check_party_name(name, "--party") if self.data is None else self.data.name
        self.state, self.ledger, self.say = state, ledger, say
        self._others = {"test": test, "validation": validation}
        self._streamed = streamed
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._used, self._said = 0.0, ""
        with storage_errors(state), ExitStack() as stack:
            refuse_parent(state)
            state.mkdir(mode=0o700, exist_ok=True)
            stack.enter_context(run_lock(state))
            self._audit = AuditLog(state / AUDIT)
            remember(state, data=data, ledger=ledger)
            stack.callback(self._audit.close)
            self._tasks = PartyTasks(Home(self.name, state, self.data, ledger), self._audit, say)
            stack.callback(self._tasks.close)
            self._engine = stack.enter_context(Engine(threads))
            if self.data is not None:
                self._site(self.data).check()
            self._open = stack.pop_all()

    def _site(self, data: PartyData) -> Site:
        return Site(data, self._engine, self.ledger, self._others, self._streamed)

    def handle(self, caller: str, party: str, raw: bytes) -> bytes:
        """Answer a request, or refuse it; both are in the audit log before this returns.

        Of refusals a day has room for some.
        """
        with self._lock:
            entry = _entry(caller)
            try:
                return self._answer(party, raw, entry)
            except Exception as error:
                if "answer" in entry:  # which it could not be logged with
                    entry.pop("counts", None)
                for key in ("answer", "repeated", "spent"):
                    entry.pop(key, None)
                # What nobody may ask is not read, however long it is.
                read = "request" in entry or len(raw) <= _SHORT
                entry |= {"request": digest_of(raw) if read else UNREAD, "code": code_of(error)}
                if self._audit.add_bounded(entry):
                    self._audit.sync()
                    text = str(error) if isinstance(error, FastadmmError) else traceback.format_exc()
                    if text != self._said:  # who waits asks the same again and again
                        self.say(text)
                    self._said = text
                refusal = Refusal(self.name, entry["number"], entry["request"], entry["code"])
                return encode_refusal(refusal)

    def known(self, caller: str, size: int) -> bool:
        """Whether an approval names a caller, and questions of this size belong to it."""
        return any(
            self._allows(path, caller, size)
            for path in [*self.state.glob("*.toml"), *self.state.glob("*/*.toml")]
        )

    def _allows(self, path: Path, caller: str, size: int) -> bool:
        try:
            if path.name != APPROVAL:
                return caller in open_task_approval(path).callers
            approval = open_approval(path)
        except FastadmmError:
            return False
        n = 0 if self.data is None else self.data.n_samples
        return caller in (approval.callers or [caller]) and size <= most_bytes(n, approval.n_classes or 1)

    def close(self) -> None:
        """Let go of everything; whoever asks meanwhile is answered first."""
        with self._lock:
            if self._session is not None:
                self._session.close()
            self._open.close()

    def _answer(self, party: str, raw: bytes, entry: dict[str, Any]) -> bytes:
        envelope = open_envelope(raw, len(raw), "request")
        if envelope.head.get("kind") == "task":
            return self._tasks.answer(envelope, party, entry)
        place = _name(envelope, entry)
        if envelope.head.get("party") != party or party != self.name:
            raise refused("party", InputError(f"{place}: not for {self.name}, whose agent this is"))
        if self.data is None:
            text = f"{place}: this agent has no features yet; start it with --data"
            raise refused("rows", InputError(text))
        self._keep_asked(self.data, envelope, entry, place)
        session = self._of_run(self.data, entry["run"], place)
        session.check_caller(entry["caller"], len(raw), place)
        with counted_refusals(session.directory):
            asked = request_of(envelope, self.data.n_samples, place)
            entry |= {"calls": [name for name, _ in asked.calls], "request": asked.digest}
            message = session.answer(asked, raw, entry, place)
        self._used = time.monotonic()
        return message

    def _keep_asked(self, data: PartyData, envelope: Envelope, entry: dict[str, Any], place: str) -> None:
        """Keep what a run that is not approved is about, for the owner to look at."""
        if envelope.body or (self.state / entry["run"] / APPROVAL).exists():
            return
        with suppress(ProtocolError):  # the refusal is another's
            asked = request_of(envelope, data.n_samples, place)
            if asked.number == 0 and asked.calls[0][0] == "start":
                terms = {data.name: asked.calls[0][1]}
                keep_asked(self.state, asked.run, run_description(asked.run, entry["caller"], terms))

    def _of_run(self, data: PartyData, run: str, place: str) -> Session:
        """The session of an approved run; one run at a time."""
        current = self._session
        if current is not None and current.run == run:
            return current
        session = Session(self._site(data), self.state / run, run, self._audit)
        if current is not None:
            # A run that was refused from the start holds nobody up.
            if current.terms and not current.finished and time.monotonic() - self._used < _HELD:
                session.close()
                text = f"{place}: run {current.run} has not ended; another is answered {_HELD:g} s after it"
                raise refused("busy", InputError(text))
            current.close()
        self._session = session
        return session


def _entry(caller: str, run: str = "", number: int = -1) -> dict[str, Any]:
    """What the audit log says of a request, as far as it is known when one comes."""
    return {"time": moment(), "caller": caller[:200], "run": run, "number": number, "calls": []}


def _name(envelope: Envelope, entry: dict[str, Any]) -> str:
    """Put to the audit which request it is, as far as that can be read; what messages call it."""
    head = envelope.head
    if type(head.get("number")) is int and abs(head["number"]) < 10**9:
        entry["number"] = head["number"]
    entry["run"] = run_identifier(head.get("run"), "request")
    return f"request {entry['number']} of run {entry['run']}"


def agent_status(state: Path) -> list[str]:
    """Approved runs, what was answered and refused, and what was spent."""
    with storage_errors(state, "read"):
        if not state.is_dir():
            raise StorageError(
                f"{shown(state)}: no directory of an agent: give that of 'fastadmm agent run --state'"
            )
        runs = sorted(path.parent for path in state.glob(f"*/{APPROVAL}"))
    entries, digest = read_audit(state / AUDIT) if (state / AUDIT).exists() else ([], "")
    entries = [entry for entry in entries if "more" not in entry]  # an older release counted some
    tasks = [entry for entry in entries if "task" in entry]
    lines = []
    for name, what in ((ALIGN, "alignments"), (LABELS, "labels")):
        if (state / name).exists():
            lines.append(_of_task(state / name, what, tasks, ""))
    lines += [
        f"    rows that all parties have: {shown(path)}"
        for path in sorted((state / ALIGNMENTS).glob("*.json"))
    ]
    for directory in runs:
        of_run = [entry for entry in entries if entry["run"] == directory.name]
        lines += _of_run(directory, of_run)
        for name, what in ((PREDICT, "predictions"), (INFER, "standard errors")):
            if (directory / name).exists():
                lines.append("    " + _of_task(directory / name, what, tasks, directory.name))
    known = {directory.name for directory in runs}
    strange = [entry for entry in entries if entry["run"] not in known and "task" not in entry]
    if strange:
        lines.append(f"{len(strange)} request(s) of no approved run; last: {_said(strange[-1])}")
    if refused := [entry for entry in tasks if "code" in entry]:
        lines.append(f"{len(refused)} alignment(s) or prediction(s) refused; last: {_said(refused[-1])}")
    lines += asked_lines(state)
    if not lines:
        lines.append("nothing approved, nothing asked")
    if digest:
        lines.append(f"audit log: {len(entries)} lines, the last with digest {digest}")
    return lines


def _of_task(path: Path, what: str, entries: list[dict[str, Any]], run: str) -> str:
    approval, spent = open_task_approval(path), used(entries, path.name, run)
    rows = "vectors" if path.name == INFER else "rows"
    return (
        f"{what}: {spent['requests']} of at most {approval.requests} answered or refused, {spent['rows']} of "
        f"{approval.rows} {rows}, approved until {approval.last_day or 'no last day'}"
    )


def _of_run(directory: Path, entries: list[dict[str, Any]]) -> list[str]:
    approval = open_approval(directory / APPROVAL)
    answered = [entry for entry in entries if "answer" in entry and not entry["repeated"]]
    refused = [entry for entry in entries if "code" in entry]
    ended = any({"finish", "keep"} & set(entry["calls"]) for entry in answered)
    lines = [
        f"run {directory.name}: {len(answered)} of at most {approval.exchanges} exchanges answered"
        + (", ended" if ended else f", approved until {approval.last_day or 'no last day'}")
    ]
    if (directory / "privacy.json").exists():
        lines.append(f"    {read_json(directory / 'privacy.json')['one_line']}")
    elif answered:
        lines.append("    without noise: answers are exact (epsilon is infinite)")
    if entries:
        lines.append(f"    last asked by {quoted(entries[-1]['caller'])} at {entries[-1]['time']}")
    if refused:
        lines.append(f"    {len(refused)} refused; last: {_said(refused[-1])}")
    if (directory / KEYS).exists():
        keys = read_bytes(directory / KEYS).decode(errors="replace").splitlines()
        lines += ["    fingerprints of keys, to be compared by telephone:", *(f"      {key}" for key in keys)]
    return lines


def _said(entry: dict[str, Any]) -> str:
    code = entry.get("code", "answered")
    meaning = f" ({CODES[code]})" if code in CODES else ""
    what = f"task {entry['task']}" if "task" in entry else f"exchange {entry['number']}"
    return f"{what} of {quoted(entry['caller'])} at {entry['time']}: {code}{meaning}"


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
    with storage_errors(out):
        if out.is_dir() or not out.absolute().parent.is_dir():
            raise StorageError(f"{shown(out)}: cannot write: not a file name in an existing directory")
    with ExitStack() as stack:
        site = Site(
            party, stack.enter_context(Engine(threads)), ledger, {"test": test, "validation": validation}
        )
        if not (state / STATE).exists():
            site.check()
        with counted_refusals(state):
            envelope = open_letter(request, LONGEST)
            asked = request_of(envelope, party.n_samples, place)
        if asked.party != party.name:
            raise InputError(f"{place}: for {asked.party}, but {shown(data)} is of {party.name}")
        with storage_errors(state):
            if asked.number == 0 and not state.exists():
                state.mkdir(mode=0o700)
                stack.push(partial(_drop_new, state))
            elif not state.is_dir():
                raise StorageError(f"{shown(state)}: no state of a run; begin with the run's first request")
        stack.enter_context(run_lock(state))
        remove_leftovers(state)
        if (agreed := _agreed(asked, party, state, place, approval)) is not None:
            write_approval(replace(agreed, path=state / APPROVAL), force=True)
        stack.enter_context(counted_refusals(state))
        audit = stack.enter_context(closing(AuditLog(state / AUDIT)))
        session = stack.enter_context(closing(Session(site, state, asked.run, audit, by_files=True)))
        raw, repeated = _answered(session, asked, envelope.raw, place)
    _give(raw, out, force)
    said = [f"request {asked.number} answered{' before: the same message' if repeated else ''} in {out}"]
    if approval is None and asked.number == 0 and not repeated:
        how = "without --approval this is what was agreed to; edit approval.toml in the state to narrow it:"
        said += [how, *run_words(session.approval(), party, asked.calls[0][1], [ledger_words(ledger, party)])]
    statement = None if repeated or session.host is None else session.host.statement
    said += [] if statement is None else [statement.one_line()]
    if not repeated and any(name == "introduce" for name, _ in asked.calls):
        said.append(
            "the coordinator sees only sums if these are the parties' keys: compare them by telephone"
        )
        said += (state / KEYS).read_text(encoding="utf-8").splitlines()
    model = state / f"{party.name}.h5"
    return [*said, *([f"the run is over; own part of the model in {model}"] if model.exists() else [])]


def _drop_new(state: Path, kind: type[BaseException] | None, *_: object) -> None:
    """Remove a state in which nothing was answered."""
    if kind is not None and issubclass(kind, FastadmmError):
        shutil.rmtree(state, ignore_errors=True)


def _answered(session: Session, asked: Request, raw: bytes, place: str) -> tuple[bytes, bool]:
    """The answer, and whether it had been given before; it or the refusal is in the audit log."""
    entry = _entry(ASKER, asked.run, asked.number)
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
    draft = draft_approval(terms, asked.run, party, path, None)
    why = ""
    if sees_columns(terms):
        what = f"regularizer {terms['regularizer']!r} with constraint {terms['constraint']!r}"
        why = f"{what} lets a coordinator that deviates read single columns"
    elif draft.protection is not None and draft.protection.sampler == "insecure_test":
        why = "its noise is seeded, for tests, and protects nothing"
    if why:
        raise InputError(
            f"{place}: {why}; it needs the owner's approval: 'fastadmm party approve {place} --data "
            f"{shown(party.path)} -o approval.toml', then 'party step --approval approval.toml'"
        )
    return draft


def party_approve(
    request: Path, data: Path, out: Path, force: bool = False, ledger: Path | None = None
) -> list[str]:
    """Write the approval of a run's first request, for the owner of the data to edit."""
    party = open_party(data)
    place, n = shown(request), party.n_samples
    asked = request_of(open_letter(request, LONGEST), n, place)
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

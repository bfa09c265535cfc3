"""A party's own process, or a step of it by files: it decides what it answers, and remembers what it has."""

import shutil
import threading
import time
import traceback
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastadmm.between import approval_file, consent, schema
from fastadmm.between.approval import APPROVAL, Approval, counted_refusals, sees_columns, some_weeks
from fastadmm.between.approval_file import approve, open_approval, open_task_approval, write_approval
from fastadmm.between.audit import AUDIT, AuditLog, moment, read_audit, used
from fastadmm.between.host import KEYS, Home, Site
from fastadmm.between.hub import open_letter, sealed
from fastadmm.between.party_tasks import PartyTasks
from fastadmm.between.schema import Envelope, Request, code_of, digest_of, quoted, refused, request_of
from fastadmm.between.session import STATE, Session
from fastadmm.between.socket import LONGEST, Say
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
    """Answers requests of approved runs; :meth:`handle` is what a socket is served with.

    ``test`` and ``validation`` are features of rows that are scored.
    """

    def __init__(
        self,
        data: Path | None,
        state: Path,
        *,
        name: str = "",
        ledger: Path | None = None,
        threads: int | None = None,
        streamed: bool = False,
        say: Say = print,
        test: Path | None = None,
        validation: Path | None = None,
    ) -> None:
        self.data = None if data is None else open_party(data)
        self.name = check_party_name(name, "--party") if self.data is None else self.data.name
        self.state, self.say = state, say
        self._lock = threading.Lock()
        self._site: Site | None = None
        self._session: Session | None = None
        self._used, self._said = 0.0, ""
        with storage_errors(state), ExitStack() as stack:
            refuse_parent(state)
            state.mkdir(mode=0o700, exist_ok=True)
            stack.enter_context(run_lock(state))
            self._audit = stack.enter_context(closing(AuditLog(state / AUDIT)))
            consent.remember(state, data=data, ledger=ledger)
            tasks = PartyTasks(Home(self.name, state, self.data, ledger), self._audit, say)
            self._tasks = stack.enter_context(closing(tasks))
            engine = stack.enter_context(Engine(threads))
            if self.data is not None:
                others = {"test": test, "validation": validation}
                self._site = Site(self.data, engine, ledger, others, streamed)
                self._site.check()
            self._open = stack.pop_all()

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
                entry |= {"request": digest_of(raw) if read else schema.UNREAD, "code": code_of(error)}
                if self._audit.add_bounded(entry):
                    self._audit.sync()
                    text = str(error) if isinstance(error, FastadmmError) else traceback.format_exc()
                    if text != self._said:  # who waits asks the same again and again
                        self.say(text)
                    self._said = text
                told = schema.Refusal(self.name, entry["number"], entry["request"], entry["code"])
                return schema.encoded(told)

    def known(self, caller: str, size: int) -> bool:
        """Whether an approval names a caller, and questions of this size belong to it."""
        n = 0 if self.data is None else self.data.n_samples
        for path in [*self.state.glob("*.toml"), *self.state.glob("*/*.toml")]:
            with suppress(FastadmmError):
                is_run = path.name == APPROVAL
                agreed: Any = open_approval(path) if is_run else open_task_approval(path)
                most = schema.most_bytes(n, agreed.n_classes or 1) if is_run else size
                if size <= most and caller in (agreed.callers or [caller] * is_run):
                    return True
        return False

    def close(self) -> None:
        """Let go of everything; whoever asks meanwhile is answered first."""
        with self._lock:
            if self._session is not None:
                self._session.close()
            self._open.close()

    def _answer(self, party: str, raw: bytes, entry: dict[str, Any]) -> bytes:
        envelope = schema.open_envelope(raw, len(raw), "request")
        head = envelope.head
        if head.get("kind") == "task":
            return self._tasks.answer(envelope, party, entry)
        # The audit says which request it is, as far as that can be read.
        if type(head.get("number")) is int and abs(head["number"]) < 10**9:
            entry["number"] = head["number"]
        entry["run"] = schema.run_identifier(head.get("run"), "request")
        place = f"request {entry['number']} of run {entry['run']}"
        if head.get("party") != party or party != self.name:
            raise refused("party", f"{place}: not for {self.name}, whose agent this is")
        if self._site is None:
            raise refused("rows", f"{place}: this agent has no features yet; start it with --data")
        self._keep_asked(self._site.data, envelope, entry, place)
        session = self._of_run(self._site, entry["run"], place)
        session.check_caller(entry["caller"], len(raw), place)
        with counted_refusals(session.directory):
            asked = request_of(envelope, session.data.n_samples, place)
            entry |= {"calls": [name for name, _ in asked.calls], "request": asked.digest}
            message = session.answer(asked, raw, entry, place)
        self._used = time.monotonic()
        return message

    def _keep_asked(self, data: PartyData, envelope: Envelope, entry: dict[str, Any], place: str) -> None:
        """Keep what a run that is not approved is about, for the owner to look at."""
        if envelope.body or (self.state / entry["run"] / APPROVAL).exists():
            return
        with suppress(schema.ProtocolError):  # the refusal is another's
            asked = request_of(envelope, data.n_samples, place)
            if asked.number == 0 and asked.calls[0][0] == "start":
                terms = {data.name: asked.calls[0][1]}
                about = consent.run_description(asked.run, entry["caller"], terms)
                consent.keep_asked(self.state, asked.run, about)

    def _of_run(self, site: Site, run: str, place: str) -> Session:
        """The session of an approved run; one run at a time."""
        current = self._session
        if current is not None and current.run == run:
            return current
        session = Session(site, self.state / run, run, self._audit)
        if current is not None:
            # A run that was refused from the start holds nobody up.
            goes_on = current.last.number >= 0 and not current.last.answered.finished
            if goes_on and time.monotonic() - self._used < _HELD:
                session.close()
                text = f"{place}: run {current.run} has not ended; another is answered {_HELD:g} s after it"
                raise refused("busy", text)
            current.close()
        self._session = session
        return session


def _entry(caller: str, run: str = "", number: int = -1) -> dict[str, Any]:
    """What the audit log says of a request, as far as it is known when one comes."""
    return {"time": moment(), "caller": caller[:200], "run": run, "number": number, "calls": []}


def agent_status(state: Path) -> list[str]:
    """Approved runs, what was answered and refused, and what was spent."""
    with storage_errors(state, "read"):
        if not state.is_dir():
            raise StorageError(
                f"{shown(state)}: no directory of an agent: give that of 'fastadmm agent run --state'"
            )
        runs = sorted(path.parent for path in state.glob(f"*/{APPROVAL}"))
    entries, digest = read_audit(state / AUDIT) if (state / AUDIT).exists() else ([], "")
    tasks = [entry for entry in entries if "task" in entry]
    lines = _of_tasks(state, tasks)
    for directory in runs:
        lines += _of_run(directory, [entry for entry in entries if entry["run"] == directory.name])
        lines += [f"    {line}" for line in _of_tasks(directory, tasks, directory.name)]
    lines += consent.asked_lines(state)
    lines = lines or ["nothing approved, nothing asked"]
    return lines + [f"audit log: {len(entries)} lines, the last with digest {digest}"] * bool(digest)


def _of_tasks(folder: Path, entries: list[dict[str, Any]], run: str = "") -> list[str]:
    """Of what is approved beside runs, or with a run's model."""
    lines = []
    for kind, what in (approval_file.OF_MODEL if run else approval_file.BESIDE).items():
        if (path := folder / f"{kind}.toml").exists():
            approval, spent = open_task_approval(path), used(entries, path.name, run)
            rows = "vectors" if kind == "infer" else "rows"
            lines.append(
                f"{what}: {spent['requests']} of at most {approval.requests} answered or refused, "
                f"{spent['rows']} of {approval.rows} {rows}, approved until "
                f"{approval.last_day or 'no last day'}"
            )
    return lines


def _of_run(directory: Path, entries: list[dict[str, Any]]) -> list[str]:
    approval = open_approval(directory / APPROVAL)
    answered = [entry for entry in entries if "answer" in entry and not entry["repeated"]]
    refused = [entry for entry in entries if "code" in entry]
    ended = any({"finish", "keep"} & set(entry["calls"]) for entry in answered)
    until = "ended" if ended else f"approved until {approval.last_day or 'no last day'}"
    most = approval.exchanges
    lines = [f"run {directory.name}: {len(answered)} of at most {most} exchanges answered, {until}"]
    if (directory / "privacy.json").exists():
        lines.append(f"    {read_json(directory / 'privacy.json')['one_line']}")
    elif answered:
        lines.append("    without noise: answers are exact (epsilon is infinite)")
    if refused:
        code, who = refused[-1]["code"], quoted(refused[-1]["caller"])
        lines.append(f"    {len(refused)} refused; last, of {who}: {code} ({schema.CODES.get(code, '')})")
    if (directory / KEYS).exists():
        keys = read_bytes(directory / KEYS).decode(errors="replace").splitlines()
        lines += ["    fingerprints of keys, to be compared by telephone:", *(f"      {key}" for key in keys)]
    return lines


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
    """Answer one request; what its owner is told. ``test``, ``validation``: features of rows to be scored."""
    party, place = open_party(data), shown(request)
    with storage_errors(out):
        if out.is_dir() or not out.absolute().parent.is_dir():
            raise StorageError(f"{shown(out)}: cannot write: not a file name in an existing directory")
    with ExitStack() as stack:
        others = {"test": test, "validation": validation}
        site = Site(party, stack.enter_context(Engine(threads)), ledger, others)
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
                stack.push(lambda kind, *_: _drop_new(state, kind))
            elif not state.is_dir():
                raise StorageError(f"{shown(state)}: no state of a run; begin with the run's first request")
        stack.enter_context(run_lock(state))
        remove_leftovers(state)
        if (agreed := _agreed(asked, party, state, place, approval)) is not None:
            write_approval(replace(agreed, path=state / APPROVAL), force=True)
        stack.enter_context(counted_refusals(state))
        audit = stack.enter_context(closing(AuditLog(state / AUDIT)))
        session = stack.enter_context(closing(Session(site, state, asked.run, audit, by_files=True)))
        # The answer, or the refusal, is in the audit log.
        entry = _entry(ASKER, asked.run, asked.number)
        entry |= {"calls": [name for name, _ in asked.calls], "request": asked.digest}
        try:
            content = sealed(session.answer(asked, envelope.raw, entry, place))
        except Exception as error:
            audit.add_bounded(entry | {"code": code_of(error)})
            raise
        session.keep()
    with storage_errors(out):
        if not out.exists() or force:
            write_whole(out, content, shared=True)
        elif read_bytes(out) != content:
            raise StorageError(
                f"{shown(out)}: exists already and is another file; pass --force to replace it"
            )
    if entry["repeated"]:
        said = [f"request {asked.number} answered before: the same message in {out}"]
    else:
        said = [f"request {asked.number} answered in {out}"]
        if approval is None and asked.number == 0:
            said.append(
                "without --approval this is what was agreed to; edit approval.toml in the state to narrow it:"
            )
            said += _run_words(session.approval(), party, asked, ledger)
        if session.host is not None and (statement := session.host.statement) is not None:
            said.append(statement.one_line())
        if any(name == "introduce" for name, _ in asked.calls):
            said.append(
                "the coordinator sees only sums if these are the parties' keys: compare them by telephone"
            )
            said += (state / KEYS).read_text(encoding="utf-8").splitlines()
    model = state / f"{party.name}.h5"
    return said + [f"the run is over; own part of the model in {model}"] * model.exists()


def _drop_new(state: Path, kind: type[BaseException] | None) -> None:
    """Remove a state in which nothing was answered."""
    if kind is not None and issubclass(kind, FastadmmError):
        shutil.rmtree(state, ignore_errors=True)


def _agreed(asked: Request, party: PartyData, state: Path, place: str, given: Path | None) -> Approval | None:
    """What the owner agrees to with this step; None where that was said before."""
    path = state / APPROVAL
    if given is not None or path.exists():
        return None if given is None else open_approval(given)
    if asked.number:
        raise InputError(f"{shown(state)}: no state; answer the run's first request before {place}")
    draft, why = approve(asked, party, place, path), ""
    if sees_columns(draft):
        what = f"regularizer {draft.regularizer!r} with constraint {draft.constraint!r}"
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
    party, place = open_party(data), shown(request)
    asked = request_of(open_letter(request, LONGEST), party.n_samples, place)
    approval = approve(asked, party, place, out, some_weeks())
    write_approval(approval, force=force)
    return _run_words(approval, party, asked, ledger)


def _run_words(approval: Approval, party: PartyData, asked: Request, ledger: Path | None) -> list[str]:
    spent = [approval_file.ledger_words(ledger, party)]
    return consent.run_words(approval, party, asked.calls[0][1], spent)

"""A party's own process: it decides what it answers, and remembers what it has."""

from __future__ import annotations

import itertools
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from fastadmm.between.approval import APPROVAL, counted_refusals
from fastadmm.between.approval_file import ALIGN, INFER, PREDICT, open_approval, open_task_approval
from fastadmm.between.audit import AUDIT, AuditLog, moment, read_audit, used
from fastadmm.between.consent import asked_lines, keep_asked, remember, run_description
from fastadmm.between.host import KEYS, Site
from fastadmm.between.party_tasks import FEATURES, PartyTasks, convert_aligned
from fastadmm.between.schema import (
    CODES,
    UNREAD,
    Envelope,
    ProtocolError,
    Refusal,
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
from fastadmm.between.session import Session
from fastadmm.between.task import KIND
from fastadmm.engine.engine import Engine
from fastadmm.errors import FastadmmError, InputError, StorageError
from fastadmm.files.atomic import refuse_parent, shown, storage_errors
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
        rows: Path | None = None,
        id: str | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        if data is None and rows is not None and (state / FEATURES).exists():
            data = state / FEATURES / f"{check_party_name(name, '--party')}.h5"
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
            self._known = {"ledger": ledger, "rows": rows, "id": id}
            remember(state, data=data, **self._known)
            stack.callback(self._audit.close)
            self._tasks = PartyTasks(Home(self.name, state, self.data, ledger), self._audit, say)
            stack.callback(self._tasks.close)
            self._engine = stack.enter_context(Engine(threads))
            if self.data is not None:
                self._site(self.data).check()
            self._open = stack.pop_all()

    def _site(self, data: PartyData) -> Site:
        return Site(data, self._engine, self.ledger, self._others, self._streamed)

    def _convert(self) -> None:
        """Features of the rows that all parties have, once an alignment has told them."""
        for alignment in (self.state / ALIGNMENTS).glob("*.json"):
            try:
                path = convert_aligned(
                    open_task_approval(self.state / ALIGN), alignment, self.state / FEATURES
                )
                data = open_party(path)
                self._site(data).check()
            except FastadmmError as error:  # the owner converts by hand
                self.say(f"{error}; convert the table, and start the agent with --data")
                self._known["rows"] = None
                return
            self.data = self._tasks.home.data = data
            remember(self.state, data=path, **self._known)
            self.say(f"{shown(path)}: features of {data.n_samples} rows; this agent now answers runs on them")
            return

    def handle(self, caller: str, party: str, raw: bytes) -> bytes:
        """Answer a request, or refuse it; both are in the audit log before this returns.

        Of more than some refusals in a minute only the number is kept.
        """
        with self._lock:
            entry: dict[str, Any] = {
                "time": moment(),
                "caller": caller[:200],
                "run": "",
                "number": -1,
                "calls": [],
            }
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
        current = [] if self._session is None else [self._session.directory / APPROVAL]  # the quickest first
        others = itertools.chain(self.state.glob("*.toml"), self.state.glob("*/*.toml"))
        return any(self._allows(path, caller, size) for path in itertools.chain(current, others))

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
        if envelope.head.get("kind") == KIND:
            answer = self._tasks.answer(envelope, party, entry)
            if self.data is None and self._known["rows"] is not None:
                self._convert()
            return answer
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
    more = sum((Counter(entry["more"]) for entry in entries if "more" in entry), Counter[str]())
    entries = [entry for entry in entries if "more" not in entry]
    tasks = [entry for entry in entries if "task" in entry]
    lines = []
    if (state / ALIGN).exists():
        lines.append(_of_task(state / ALIGN, "alignments", tasks, ""))
    lines += [
        f"    rows that all parties have: {shown(path)}"
        for path in sorted((state / ALIGNMENTS).glob("*.json"))
    ]
    for directory in runs:
        of_run = [entry for entry in entries if entry["run"] == directory.name]
        lines += _of_run(directory, of_run)
        if (directory / PREDICT).exists():
            lines.append("    " + _of_task(directory / PREDICT, "predictions", tasks, directory.name))
        if (directory / INFER).exists():
            lines.append("    " + _of_task(directory / INFER, "standard errors", tasks, directory.name))
    known = {directory.name for directory in runs}
    strange = [entry for entry in entries if entry["run"] not in known and "task" not in entry]
    if strange:
        lines.append(f"{len(strange)} request(s) of no approved run; last: {_said(strange[-1])}")
    if more:
        said = ", ".join(f"{count} {code}" for code, count in sorted(more.items()))
        lines.append(f"more in a minute than have lines of their own: {said}")
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

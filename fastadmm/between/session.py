"""One run at a party's own process: what it has answered, and the party as its last answer left it.

Every request, its answer and its line of the audit log are on disk before the answer leaves. From time to
time a snapshot takes their place; after a kill the party is opened from it and asked again what came later,
to the same bits. What was drawn at random is not drawn again: a private party stored it before it answered.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.between import approval as limits
from fastadmm.between import schema
from fastadmm.between.approval import Answered, Approval
from fastadmm.between.approval_file import open_approval
from fastadmm.between.audit import AuditLog
from fastadmm.between.host import Host, Site, write_fingerprints
from fastadmm.between.hub import KEPT_BYTES
from fastadmm.between.journal import Journal
from fastadmm.between.memory import answer_once, join_sum
from fastadmm.between.schema import Message, Request, refused
from fastadmm.conversation.calls import check_answer
from fastadmm.errors import FormatError
from fastadmm.files.atomic import shown, storage_errors
from fastadmm.files.seal import damaged, get_key
from fastadmm.runs.checkpoint import read_tree, write_tree
from fastadmm.secrecy.keys import fingerprint, keys_of, plain
from fastadmm.store.h5file import create_h5, read_h5

#: Name of the file in the party's directory of a run.
STATE = "state.h5"

_STATE = "fastadmm-party-state"


@dataclass(frozen=True)
class PartyState:
    """A party after its last answer; number -1 before the first."""

    run: str  # identifier of the run
    number: int  # of the exchange
    request: str  # digest of the request
    content: str  # content digest of the party's features
    settings: dict[str, Any]  # arguments of the call ``start``
    tree: dict[str, Any]  # what the party exported; empty where that is not known yet
    message: bytes  # the answer as it was given
    answered: Answered

    @cached_property
    def digest(self) -> str:
        """Of the answer."""
        return schema.digest_of(self.message)

    def write(self, path: Path) -> None:
        """Write it, whole or not at all."""
        tree = {"run": self.run, "number": self.number, "request": self.request}
        tree |= {"content-digest": self.content, "settings": self.settings, "party": self.tree}
        message = np.frombuffer(self.message, dtype=np.uint8)
        with create_h5(path, _STATE) as file:
            write_tree(file, {**tree, "answered": vars(self.answered), "message": message})

    @classmethod
    def read(cls, path: Path) -> PartyState:
        """Inverse of :meth:`write`."""
        with read_h5(path, _STATE) as file:
            tree = read_tree(file)
        with damaged(path, "restore a backup", "not what a step left"):
            told = [get_key(tree, key, kind, shown(path)) for key, kind in _TYPES.items()]
            if tree["message"].dtype != np.uint8:
                raise TypeError("message")
            answered = Answered(**tree["answered"])
            told += [tree["settings"], tree["party"], tree["message"].tobytes(), answered]
            return cls(*told)


#: Of what a state says of itself.
_TYPES = {"run": str, "number": int, "request": str, "content-digest": str}

#: Requests and answers since the snapshot, in the party's directory of the run.
JOURNAL = "requests.journal"

#: A snapshot is made after so many exchanges, or bytes of them: it takes as long as some exchanges do.
_EXCHANGES, _BYTES = 50, 512 << 20


class Session:
    """One run."""

    def __init__(
        self, site: Site, directory: Path, run: str, audit: AuditLog, by_files: bool = False
    ) -> None:
        self.site, self.data, self.directory, self.run, self.audit = site, site.data, directory, run, audit
        self._approval_path = directory / limits.APPROVAL
        self._by_files = by_files
        self._agreed: tuple[tuple[int, int, int], Approval] | None = None
        self.approval()
        self.host: Host | None = None
        self.last = self._known_state()
        # Exchange of the snapshot; what it holds is read anew, since a party changes what it is given.
        self._snapshot = self.last.number
        self.journal = Journal(directory / JOURNAL)
        try:
            self._take_up()
        except BaseException:
            self.journal.close()
            raise

    def _known_state(self) -> PartyState:
        """The snapshot, of this run and of these features; the beginning where there is none."""
        path, content = self.directory / STATE, self.data.content_digest
        if not path.exists():
            return PartyState(self.run, -1, "", content, {}, {}, b"", Answered())
        known = PartyState.read(path)
        about = {"run": (known.run, self.run), "features with digest": (known.content, content)}
        for what, (theirs, ours) in about.items():
            if theirs != ours:
                text = (
                    f"{shown(path)}: of {what} {theirs}, not {ours}; give it back what it began with, and "
                    "another run a directory of its own"
                )
                raise refused("terms", text)
        return known

    def _take_up(self) -> None:
        """The last answer, as snapshot and journal say; and the audit log what a kill kept from it."""
        for said, asked, message in self._later():
            terms = self.last.settings or asked.calls[0][1]
            self.last = self._state(asked, terms, message, Answered(**said["answered"]))
            if asked.digest not in self.audit.answered:
                self.audit.add(said["entry"])
        last = max((one["number"] for one in self.audit.answers if one["run"] == self.run), default=-1)
        if last > self.last.number:
            # What was answered counts, whichever file says it.
            text = (
                f"{shown(self.journal.path)} has lost the answer to request {last}, that "
                f"{shown(self.audit.path)} has; restore it, or begin another run"
            )
            raise refused("changed", text)

    def _state(self, asked: Request, terms: dict[str, Any], message: bytes, answered: Answered) -> PartyState:
        content = self.data.content_digest
        return PartyState(self.run, asked.number, asked.digest, content, terms, {}, message, answered)

    def approval(self) -> Approval:
        """What the owner agreed to, as the file says now."""
        path = self._approval_path
        with storage_errors(path, "read"):
            try:
                status = os.stat(path)
            except FileNotFoundError:
                look = schema.approve_command(self.run, "run", shown(path.parents[1]))
                text = f"run {self.run}: no approval {shown(path)}; to look at it: {look}"
                raise refused("run", text) from None
        seen = (status.st_mtime_ns, status.st_ino, status.st_size)
        if self._agreed is None or self._agreed[0] != seen:
            self._agreed = seen, open_approval(path)
        return self._agreed[1]

    def check_caller(self, caller: str, n_bytes: int, place: str) -> None:
        """Refuse, before it is read, what this caller may not ask, or what is too long."""
        approval = self.approval()
        limits.check_caller(caller, approval.callers, approval.path, place)
        most = schema.most_bytes(self.data.n_samples, approval.n_classes or 1)
        if n_bytes > most:
            raise schema.ProtocolError(f"{place}: {n_bytes} bytes, but it has at most {most}")

    def answer(self, asked: Request, raw: bytes, entry: dict[str, Any], place: str) -> bytes:
        """Answer a request."""
        approval = self.approval()
        if (old := self._given_before(asked)) is not None:
            entry |= {"answer": schema.digest_of(old), "repeated": True}
            self.audit.add_bounded(entry)
            return old
        refused_so_far = limits.check_refusals(self.directory, place)
        self._check_order(asked, place)
        before, is_first = self.last.answered, self.last.number < 0
        terms = limits.first_terms(asked, self.data, place) if is_first else self.last.settings
        if is_first:
            self._check_versions(terms, approval, place)
        after = limits.check_request(approval, asked, terms, before, self.data, place, refused_so_far)
        self._check_keys(asked, approval, place)
        if is_first:
            join_sum(self.data, self.run, terms, approval, place)
        try:
            with self.site.engine.limited():
                host = self._awake(approval, place)
                answer = host.answer(asked, place)
                after = limits.with_answer(approval, before, after, answer, place)
                answer_once(asked, host.transcript, answer, place)
                message = self._message(asked, answer, place)
            now = self._state(asked, host.terms, message, after)
            entry |= {"answer": now.digest, "repeated": False}
            if (books := getattr(host.party, "books", None)) is not None:
                found = books.ledger.spent(books.account, books.run)
                entry["spent"] = {"gdp": found.gdp, "pure": sum(found.pure), "rho": found.rho}
            # Before the answer counts as given: a kill later would leave neither.
            host.write_statement()
            if any(name == "introduce" for name, _ in asked.calls):
                write_fingerprints(self.directory, host.party.fingerprints(), host.terms)
            meta = {"answered": vars(after), "entry": entry}
            self.journal.append([json.dumps(meta).encode(), raw, message])
        except BaseException:
            self.host = None  # it may have heard half of the request
            entry.pop("answer", None)
            raise
        self.last = now
        self.audit.add(entry)
        if not self._by_files and (len(self.journal) >= _EXCHANGES or self.journal.n_bytes >= _BYTES):
            self.keep()
        return message

    def _given_before(self, asked: Request) -> bytes | None:
        """The answer to this very request; also to those before, as far as they are kept."""
        last = self.last
        if asked.number > last.number:
            return None
        if (asked.number, asked.digest) == (last.number, last.request):
            return last.message
        records = ((json.loads(meta), message) for meta, _, message in self.journal.records())
        return next((old for said, old in records if said["entry"]["request"] == asked.digest), None)

    def close(self) -> None:
        """Let go of the files."""
        self.journal.close()

    def _check_order(self, asked: Request, place: str) -> None:
        last, number = self.last, self.last.number
        if asked.number == number:
            text = f"{place}: another request {number} than the one answered before"
            raise refused("changed", text)
        if asked.previous != number or asked.number <= number or (number < 0 and asked.number != 0):
            raise refused("order", f"{place}: does not follow request {number}, the last one answered")
        if number >= 0 and asked.answered != last.digest:
            text = f"{place}: the coordinator took another answer to request {number} than the one given"
            raise refused("changed", text)

    def _check_keys(self, asked: Request, approval: Approval, place: str) -> None:
        """Refuse keys that came through the coordinator until the owner has compared them.

        By files owners compare them when they are shown, with the answer.
        """
        keys = [arguments["keys"] for name, arguments in asked.calls if name == "introduce"]
        for words in [] if self._by_files else keys:
            found = [fingerprint(key) for key in keys_of(words)]
            write_fingerprints(self.directory, found, self.last.settings)
            compared = {plain(text) for text in approval.fingerprints or ()}
            own = self.last.settings["position"]
            missing = [m for m, text in enumerate(found) if m != own and plain(text) not in compared]
            if missing:
                whose = ", ".join(f"party {m + 1}" for m in missing)
                text = (
                    f"{place}: no fingerprint of the key of {whose} in {shown(approval.path)}; ask its owner "
                    "for it, and see 'fastadmm agent approve --fingerprint'"
                )
                raise refused("keys", text)

    def _check_versions(self, terms: dict[str, Any], approval: Approval, place: str) -> None:
        known, now = approval.protocol, schema.VERSION
        if known not in (None, now):
            text = f"{shown(approval.path)}: key 'protocol' is {known}, but messages are {now}"
            raise refused("version", text)
        if terms["table"] != schema.table_digest():
            text = "the coordinator's table of calls is another: install the same version of fastadmm"
            raise refused("version", f"{place}: {text}")

    def _awake(self, approval: Approval, place: str) -> Host:
        """The party as its last answer left it."""
        # Another protection opens the party anew: its books are of the one that was agreed to.
        if self.host is not None and self.host.approval.protection == approval.protection:
            self.host.approval = approval
            return self.host
        way = "by files" if self._by_files else "over a network"
        host = Host(self.site, self.directory, self.run, approval, way)
        if (known := self._known_state()).number >= 0:
            host.resume(known.settings, known.tree, place)
        for _, asked, message in self._later():
            if self._message(asked, host.answer(asked, place), place) != message:
                raise FormatError(
                    f"{shown(self.journal.path)}: asked again, the party answers otherwise: continue with "
                    "the version of fastadmm and on the kind of machine that the run began with"
                )
        self.host = host
        return host

    def _message(self, asked: Request, answer: dict[str, Any], place: str) -> bytes:
        check_answer(asked.calls[-1], answer, self.data.n_samples, place)
        return schema.encoded(Message(asked.run, asked.party, asked.number, asked.digest, answer))

    def _later(self) -> Iterator[tuple[dict[str, Any], Request, bytes]]:
        """What the journal says, the request and its answer, of each exchange after the snapshot."""
        place, snapshot = shown(self.journal.path), self._snapshot
        for meta, raw, message in self.journal.records():
            if (said := json.loads(meta))["entry"]["number"] > snapshot:
                envelope = schema.open_envelope(raw, len(raw), place)
                yield said, schema.request_of(envelope, self.data.n_samples, place), message

    def keep(self) -> None:
        """A snapshot in place of the journal; by files that stays, for answers that are asked for again."""
        last = self.last
        if self._snapshot == last.number:
            return
        # A kill may have come between an answer and its snapshot: then the journal is replayed.
        host = self.host or self._awake(self.approval(), shown(self.directory))
        self.audit.sync()  # first: what a snapshot covers is not made up for
        replace(last, tree=host.export()).write(self.directory / STATE)
        self._snapshot = last.number
        if not self._by_files or self.journal.n_bytes > KEPT_BYTES:
            self.journal.restart()

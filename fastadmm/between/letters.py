"""Questions to parties as files: a request waits in a folder until its answer has been given.

A file is a message of :mod:`fastadmm.between.schema` and its digest: one that changed on its way is never
answered, nor believed.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from fastadmm.between.schema import Envelope, digest_of, message_of, open_envelope
from fastadmm.between.socket import LONGEST, Handler, Say
from fastadmm.errors import FastadmmError, FormatError, InputError, WaitingError
from fastadmm.files.atomic import shown, storage_errors, write_whole
from fastadmm.files.modes import make_private
from fastadmm.files.reading import read_bytes

#: What each side keeps of past exchanges, at most.
KEPT_BYTES = 1 << 30

#: Bytes of the digest that follows a message in a file.
_DIGEST = 32


class Waiting(WaitingError):
    """Answers that come as files are not there yet."""

    def __init__(self, text: str, requests: Sequence[Path]) -> None:
        super().__init__(text)
        self.requests = list(requests)  # the files that wait for an answer

    @classmethod
    def of(cls, missing: Sequence[Waiting], what: str) -> Waiting:
        """All that an exchange or a task waits for; each is of one party, whose name is its text."""
        paths = [path for error in missing for path in error.requests]
        names = ", ".join(map(str, missing))
        return cls(f"{what}: waiting for {names}: requests in {shown(paths[0].parent)}", paths)


class Letters:
    """Requests and messages of one run, as files that somebody carries; asks its parties by them."""

    def __init__(self, path: Path, run: str, names: Sequence[str], messages: Iterable[Path] = ()) -> None:
        self.path = path
        #: What came, by party and exchange: its place and its bytes.
        self._given: dict[tuple[str, int], tuple[str, bytes]] = {}
        self._used, self._number = set[tuple[str, int]](), -1
        for each in messages:
            place, envelope = shown(each), open_letter(each, LONGEST)
            message = message_of(envelope, place)
            if message.run != run:
                raise InputError(f"{place}: a message of another run than {shown(path)}")
            if message.party not in names:
                raise InputError(f"{place}: of {message.party}, but the parties are {', '.join(names)}")
            key = message.party, message.number
            if self._given.setdefault(key, (place, envelope.raw))[1] != envelope.raw:
                raise InputError(f"{place}: a second message of {message.party}, and another one")

    def ask(self, name: str, raw: bytes, seconds: float) -> bytes:
        """The answer that came, now or before; where there is none, the request waits."""
        self._number = number = open_envelope(raw, len(raw), name).head["number"]
        if (name, number) in self._given:
            self._used.add((name, number))
            return self._given[name, number][1]
        return _ask_in(self.path, name, f"{number:06d}", raw)

    def settle(self, waiting: Sequence[Path]) -> list[str]:
        """Keep what came for the exchange that waits, and drop those before; what is to be said."""
        notes, number = [], f"{self._number:06d}"
        for (name, asked), (place, raw) in self._given.items():
            if (name, asked) not in self._used:
                if asked > self._number >= 0:
                    raise InputError(f"{place}: answers request {asked}, but the last one was {self._number}")
                notes.append(f"{place}: taken already")
            elif waiting and asked == self._number:
                answer = self.path / "answers" / f"{name}-{number}.msg"
                with storage_errors(answer):
                    make_private(answer.parent)
                write_whole(answer, sealed(raw), force=True)
        for old in (*self.path.glob("requests/*.msg"), *self.path.glob("answers/*.msg")):
            answers = waiting and old.parent.name == "answers" and old.stem.endswith(f"-{number}")
            if old not in waiting and not answers:
                old.unlink(missing_ok=True)
        return notes


#: Who asks, in a folder of a run or task: whoever may write there is believed, as at a socket.
_CALLER = "caller.txt"

#: Seconds between two looks into a folder.
_EVERY = 0.2


def ask_by_file(folder: Path, name: str, raw: bytes, seconds: float, caller: str = "coordinator") -> bytes:
    """The answer to a request, in a folder that an agent looks into."""
    head = open_envelope(raw, len(raw), name).head
    label = digest_of(raw)[-12:] if head["kind"] == "task" else f"{head['number']:06d}"
    return _ask_in(folder / head["run"], name, label, raw, caller)


def _ask_in(place: Path, name: str, label: str, raw: bytes, caller: str | None = None) -> bytes:
    """The answer to a request, which waits in a folder of its run or task until the answer is beside it."""
    request, answer = (place / kind / f"{name}-{label}.msg" for kind in ("requests", "answers"))
    found = open_letter(answer, LONGEST) if answer.exists() else None
    if found is not None and found.head.get("kind") != "refusal":
        return found.raw
    with storage_errors(place):
        for path in (request, answer):
            path.parent.mkdir(parents=True, exist_ok=True)
        answer.unlink(missing_ok=True)  # a refusal is told once; the owner may approve meanwhile
    if caller is not None:
        write_whole(place / _CALLER, caller.encode(), force=True, shared=True)
    write_whole(request, sealed(raw), force=True, shared=caller is not None)
    if found is not None:
        return found.raw
    raise Waiting(name, [request])


class Folder:
    """Answers the requests to one party that come into a folder, as a socket's server does its questions."""

    def __init__(self, path: Path, party: str, handler: Handler, state: Path) -> None:
        self.path, self.party, self._handler = path, party, handler
        self._state = state  # of the agent: approvals are there
        self._seen: dict[Path, list[int]] = {}

    def wait(self, say: Say) -> None:
        """Until the process is interrupted."""
        while True:
            self.answer(say)
            time.sleep(_EVERY)

    def answer(self, say: Say) -> None:
        """Answer what has come, and what was refused before its owner approved something more."""
        paths = sorted([*self._state.glob("*.toml"), *self._state.glob("*/*.toml")])
        approvals = [path.stat().st_mtime_ns for path in paths]
        for request in sorted(self.path.glob("*/requests/*.msg")):
            with suppress(FileNotFoundError):  # another process answered it just now
                now = [request.stat().st_mtime_ns, *approvals]
                if request.name.rpartition("-")[0] == self.party and self._seen.get(request) != now:
                    self._seen[request] = now
                    try:
                        self._answer(request)
                    except FastadmmError as error:  # it may come once more
                        say(str(error))

    def _answer(self, request: Path) -> None:
        answer = request.parent.with_name("answers") / request.name
        if answer.exists() and open_letter(answer, LONGEST).head.get("kind") != "refusal":
            return
        who = request.parent.with_name(_CALLER)
        caller = read_bytes(who, 1 << 10).decode(errors="replace") if who.exists() else ""
        raw = self._handler(caller, self.party, open_letter(request, LONGEST).raw)
        write_whole(answer, sealed(raw), force=True, shared=True)
        if open_envelope(raw, LONGEST, self.party).head.get("kind") != "refusal":
            request.unlink(missing_ok=True)  # what is still there waits for an answer


def sealed(raw: bytes) -> bytes:
    """A message as a file holds it."""
    return raw + hashlib.sha256(raw).digest()


def open_letter(path: Path, most: int) -> Envelope:
    """The message that a file holds; its values have not been looked at."""
    content, place = read_bytes(path, most + _DIGEST), shown(path)
    envelope = open_envelope(content[:-_DIGEST], most, place)
    if sealed(envelope.raw) != content:
        raise FormatError(f"{place}: changed since it was written (its digest differs); ask for it again")
    return envelope

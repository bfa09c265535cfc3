"""Questions to parties as files: a request waits in a folder until its answer has been given.

A file is a message of :mod:`fastadmm.between.schema` and its digest: one that changed on its way is never
answered, nor believed.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from fastadmm.between.schema import (
    Envelope,
    Message,
    answer_of,
    digest_of,
    message_of,
    most_bytes,
    open_envelope,
)
from fastadmm.between.socket import LONGEST, Handler
from fastadmm.conversation.calls import Asked
from fastadmm.errors import FastadmmError, FormatError, InputError, WaitingError
from fastadmm.files.atomic import remove_leftovers, shown, storage_errors, write_whole
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
    """The files of one run; asks its parties by them."""

    def __init__(self, path: Path, run: str, names: Sequence[str], messages: Iterable[Path] = ()) -> None:
        self.path, self.run, self.names = path, run, names
        self.requests, self.sent, self.answers = path / "requests", path / "sent", path / "answers"
        self.notes: list[str] = []
        self._messages, self._number = list(messages), -1
        self._taken: list[Path] = []

    def remove_leftovers(self) -> None:
        """Remove what killed processes left."""
        for place in (self.path, self.requests, self.sent, self.answers):
            remove_leftovers(place)

    def begin(self, number: int, asked: Mapping[str, tuple[Asked, bytes]], sizes: tuple[int, int]) -> None:
        """Take in the messages that answer an exchange's requests, by name of the party; the old ones go."""
        self._number = number
        self._take(asked, sizes)
        with storage_errors(self.sent):
            self.sent.mkdir(mode=0o700, exist_ok=True)
            # Those that were answered are kept for a party that was restored from a backup.
            for old in self.requests.glob("*.msg"):
                if _number_of(old) != number:
                    os.replace(old, self.sent / old.name)
            _prune(sorted(self.sent.glob("*.msg"), key=_number_of))
        self.forget(lambda other: other != number)

    def ask(self, name: str, raw: bytes, seconds: float) -> bytes:
        """The answer that was taken in."""
        return _ask_in(self.path, name, f"{self._number:06d}", raw)

    def drop_taken(self) -> None:
        """Do not keep what this process took in: it cannot be used, and a party may send a better one."""
        for path in self._taken:
            path.unlink(missing_ok=True)

    def forget(self, which: Callable[[int], bool]) -> None:
        """Remove answers of the exchanges with such numbers."""
        for path in self.answers.glob("*.msg"):
            if which(_number_of(path)):
                path.unlink()

    def _take(self, asked: Mapping[str, tuple[Asked, bytes]], sizes: tuple[int, int]) -> None:
        """Check all messages, then keep copies of the new ones."""
        new: dict[Path, bytes] = {}
        for path in self._messages:
            place, envelope = shown(path), open_letter(path, most_bytes(*sizes))
            message = message_of(envelope, place)
            self._check(message, place, asked)
            kept = self.answers / f"{message.party}-{self._number:06d}.msg"
            if message.number < self._number:
                self.notes.append(f"{place}: taken already")
                continue
            call, _ = asked[message.party]
            answer_of(envelope, call, sizes[0], f"{place}: message of {message.party}")
            if kept.exists():
                new.setdefault(kept, open_letter(kept, LONGEST).raw)
                self.notes.append(f"{place}: taken already")
            if new.setdefault(kept, envelope.raw) != envelope.raw:
                raise InputError(f"{place}: a second message of {message.party}, and another one")
        for path, raw in new.items():
            if not path.exists():
                with storage_errors(path):
                    make_private(path.parent)
                write_whole(path, sealed(raw))
                self._taken.append(path)
        self._messages = []

    def _check(self, message: Message, place: str, asked: Mapping[str, tuple[Asked, bytes]]) -> None:
        number, party = self._number, message.party
        if message.run != self.run:
            raise InputError(f"{place}: a message of another run than {shown(self.path)}")
        if party not in self.names:
            raise InputError(f"{place}: of {party}, but the parties are {', '.join(self.names)}")
        if message.number > number:
            raise InputError(f"{place}: answers request {message.number}, but the last one was {number}")
        if message.number == number and party not in asked:
            raise InputError(f"{place}: nothing was asked of {party} in exchange {number}")
        if message.number == number and message.request != digest_of(asked[party][1]):
            raise InputError(f"{place}: answers another request {number} than ours; the request was changed")


def _number_of(path: Path) -> int:
    """The exchange of a request or an answer, as its name says."""
    number = path.stem.rpartition("-")[2]
    return int(number) if number.isdecimal() else -1


def _prune(paths: Iterable[Path]) -> None:
    """Remove the oldest files until the rest has at most :data:`KEPT_BYTES`."""
    sizes = [(path, path.stat().st_size) for path in paths]
    total = sum(size for _, size in sizes)
    for path, size in sizes:
        if total > KEPT_BYTES:
            path.unlink()
            total -= size


#: Who asks, in a folder of a run or task: whoever may write there is believed, as at a socket.
_CALLER = "caller.txt"

#: Seconds between two looks into a folder.
_EVERY = 0.2


def ask_by_file(folder: Path, name: str, raw: bytes, seconds: float, caller: str = "coordinator") -> bytes:
    """The answer to a request, in a folder that an agent looks into."""
    head = open_envelope(raw, len(raw), name).head
    label = f"{head['number']:06d}" if "number" in head else digest_of(raw)[-12:]
    return _ask_in(folder / head["run" if "run" in head else "task"], name, label, raw, caller)


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

    def wait(self, say: Callable[[str], None]) -> None:
        """Until the process is interrupted."""
        while True:
            self.answer(say)
            time.sleep(_EVERY)

    def answer(self, say: Callable[[str], None]) -> None:
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

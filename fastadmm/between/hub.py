"""The coordinator's driver: it numbers exchanges, asks all parties at once, and keeps what they answered.

The talk stays alive in this process. Answers are on disk before anybody is asked again; a process that begins
after a kill takes the same course with them, up to the first exchange that is missing. To a request that is
made again, parties give the same answer.

By files a request waits in a folder until its answer has been given. A file is a message of
:mod:`fastadmm.between.schema` and its digest: one that changed on its way is never answered, nor believed.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TypeVar

from fastadmm.between import schema
from fastadmm.between.journal import Journal
from fastadmm.between.schema import Envelope, Message, Request, digest_of, message_of, open_envelope
from fastadmm.between.socket import LONGEST, Handler, Lost, Say
from fastadmm.conversation.calls import CALLS, Asked
from fastadmm.conversation.exchange import Answers, Exchange
from fastadmm.errors import FastadmmError, FormatError, InputError, WaitingError
from fastadmm.files.atomic import shown, storage_errors, write_whole
from fastadmm.files.modes import make_private
from fastadmm.files.reading import read_bytes

T = TypeVar("T")

#: What each side keeps of past exchanges, at most.
KEPT_BYTES = 1 << 30

#: Bytes of the digest that follows a message in a file.
_DIGEST = 32


class Waiting(WaitingError):
    """Answers that come as files are not there yet."""

    def __init__(self, text: str, requests: Sequence[Path]) -> None:
        super().__init__(text)
        self.requests = list(requests)  # the files that wait for an answer


#: Asks a party: its name, the request, seconds to wait; raises :class:`~fastadmm.between.socket.Lost`.
Ask = Callable[[str, bytes, float], bytes]

#: Seconds that an exchange may take, and where a party is asked for something for the first time in this
#: process: it may have to compile and to factorise.
_SECONDS, _FIRST_SECONDS = 60.0, 300.0

#: Seconds after which it is said who has not answered yet.
_PATIENT = 5.0


@dataclass
class Correspondent:
    """One party elsewhere."""

    name: str
    kind: str = ""  # what the party said of its updates
    reason: str = ""  # what the party said of its updates
    last: int = 0  # number of the last exchange whose answer was used
    answered: str = ""  # digest of its last answer
    queue: list[Asked] = field(default_factory=list)  # what the next request will hold


@dataclass(frozen=True)
class Question:
    """A request as it is sent to a party, and what its answer may be."""

    request: Request
    place: str  # what messages begin with
    most: int  # bytes of an answer
    n_samples: int = -1

    @cached_property
    def raw(self) -> bytes:
        """The request's bytes."""
        return schema.encoded(self.request)

    @cached_property
    def digest(self) -> str:
        """Of these bytes."""
        return digest_of(self.raw)

    def answer(self, raw: bytes) -> Message:
        """What a party answered, if it is an answer to this request."""
        try:
            envelope = open_envelope(raw, self.most, self.place)
            found = schema.answer_of(envelope, self.request.calls[-1], self.n_samples, self.place)
        except schema.ProtocolError as error:
            raise FormatError(f"{error}; nothing of it is kept") from None
        request, place = self.request, self.place
        if found.request != self.digest and (isinstance(found, Message) or found.request != schema.UNREAD):
            raise FormatError(f"{place}: answers another request than ours")
        if isinstance(found, schema.Refusal):
            text = f"{place}: refused ({found.code}): {schema.CODES[found.code]}"
            raise schema.refused(found.code, text)
        if (found.run, found.party, found.number) != (request.run, request.party, request.number):
            raise FormatError(f"{place}: an answer of another run, party or exchange; nothing of it is kept")
        return found


def nobody(name: str, raw: bytes, seconds: float) -> bytes:
    """Asks nobody: of a run that is only read."""
    raise AssertionError("nobody is asked")


@dataclass(eq=False)
class Elsewhere:
    """Parties that are in no process of ours."""

    local = False
    parties: Sequence[Correspondent] = ()

    def carry(self, exchange: Exchange) -> Answers | None:
        """Nobody is asked here."""
        raise AssertionError("nobody is asked")

    def notes(self) -> list[tuple[str, str, str]]:
        """Name of each party, of its update, and why it was chosen."""
        return [(party.name, party.kind, party.reason) for party in self.parties]


@dataclass(eq=False, kw_only=True)
class Hub(Elsewhere):
    """Asks parties elsewhere, each by its own process, or by files."""

    run: str
    n_samples: int
    n_classes: int
    ask: Ask
    journal: Journal
    tell: Say

    def __post_init__(self) -> None:
        # A kill may have come between the state and the journal's new beginning.
        first = 1 + max(party.last for party in self.parties)
        done = sum(int.from_bytes(parts[0]) < first for parts in self.journal.records())
        self._kept: Iterator[list[bytes]] = islice(self.journal.records(), done, None)
        self._left = len(self.journal) - done
        self._threads = ThreadPoolExecutor(len(self.parties))
        self._known: set[tuple[str, str]] = set()
        self._in_use = False
        self._kept_by = self._threads.submit(lambda: None)  # what puts the last answers on disk

    @property
    def replaying(self) -> bool:
        """Whether the next exchange has been made before."""
        return self._left > 0

    def carry(self, exchange: Exchange) -> Answers:
        """The answers; they are kept."""
        self._in_use = False
        number = 1 + max(party.last for party in self.parties)
        most = schema.most_bytes(self.n_samples, self.n_classes)
        answers: Answers = [{} for _ in exchange.calls]
        asked: dict[int, Question] = {}
        for k, call in enumerate(exchange.calls):
            party = self.parties[call.party]
            party.queue.append((call.name, call.made()))
            if CALLS[call.name].answer:
                request = Request(self.run, party.name, number, party.last, party.queue, party.answered)
                place = f"party {party.name}: exchange {number}"
                asked[k] = Question(request, place, most, self.n_samples)
        if not asked:
            return answers
        made = (self._replayed if self.replaying else self._asked)([*asked.values()], number)
        for k, message in zip(asked, made, strict=True):
            answers[k], party = message.answer, self.parties[exchange.calls[k].party]
            party.queue.clear()
            party.last, party.answered = number, message.digest
            self._known.add((party.name, exchange.calls[k].name))
        self._in_use = not self.replaying
        return answers

    def flush(self) -> None:
        """Until all answers are on disk."""
        self._kept_by.result()

    def close(self) -> None:
        """Let the threads end, when nobody is asked any more."""
        wait([self._kept_by])
        self._threads.shutdown(wait=False, cancel_futures=True)

    def drop_unusable(self) -> None:
        """Forget the last answers, if it was they that no round could be made with."""
        self.flush()
        if self._in_use and len(self.journal):
            self.journal.drop_last()

    def _replayed(self, asked: Sequence[Question], number: int) -> list[Message]:
        """Answers of an exchange that was made before."""
        _, *parts = next(self._kept)
        self._left -= 1
        if len(parts) != len(asked):
            raise FormatError(f"{shown(self.journal.path)}: exchange {number} is of other parties")
        return [question.answer(raw) for raw, question in zip(parts, asked)]

    def _asked(self, asked: Sequence[Question], number: int) -> list[Message]:
        """Answers of a new exchange, from all parties at once."""

        def one(question: Question) -> tuple[bytes, Message]:
            name = question.request.party
            seconds = _SECONDS if (name, question.request.call) in self._known else _FIRST_SECONDS
            try:
                raw = self.ask(name, question.raw, seconds)
            except Lost as error:
                raise Lost(f"exchange {number}: {error}") from None
            return raw, question.answer(raw)

        self.flush()  # a party answers its last request once more, but none before it
        for question in asked:
            _ = question.raw  # nobody is asked where one of the requests cannot be sent
        works = {question.request.party: self._threads.submit(one, question) for question in asked}
        for question in asked:
            _ = question.digest  # it takes time, and the parties work
        if late := wait(works.values(), _PATIENT).not_done:
            absent = ", ".join(name for name, work in works.items() if work in late)
            self.tell(f"exchange {number}, waiting for {absent}")
        wait(works.values())  # also where one has failed: nobody is asked twice at once
        made = collect(works, f"exchange {number}", self.run, "run").values()
        # While the round goes on here.
        record = [number.to_bytes(8), *(raw for raw, _ in made)]
        self._kept_by = self._threads.submit(self.journal.append, record)
        return [message for _, message in made]


def collect(works: Mapping[str, Future[T]], what: str, identifier: str, kind: str) -> dict[str, T]:
    """What was made of each party's answer; of all faults the one that its owner can do something about."""
    found: dict[str, T] = {}
    errors: dict[str, FastadmmError] = {}
    for name, work in works.items():
        try:
            found[name] = work.result()
        except FastadmmError as error:
            errors[name] = error
    code = "run" if kind == "run" else "task"
    absent = [name for name, error in errors.items() if error.refusal == code]
    missing = [error for error in errors.values() if isinstance(error, Waiting)]
    others = [error for name, error in errors.items() if name not in absent and error not in missing]
    # Those who are lost, last.
    others.sort(key=lambda error: isinstance(error, Lost))
    if others and (not isinstance(others[0], Lost) or not (absent or missing)):
        raise others[0]
    if absent:
        raise schema.unapproved(absent, identifier, kind)
    if missing:
        paths = [path for error in missing for path in error.requests]
        names = ", ".join(map(str, missing))  # each is of one party, whose name is its text
        raise Waiting(f"{what}: waiting for {names}: requests in {shown(paths[0].parent)}", paths)
    return found


# --- questions as files -----------------------------------------------------------------------------------


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
                with storage_errors(old):
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
            with storage_errors(request):
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

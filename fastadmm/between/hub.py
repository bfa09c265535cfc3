"""The coordinator's driver: it numbers exchanges, asks all parties at once, and keeps what they answered.

The talk stays alive in this process. Answers are on disk before anybody is asked again; a process that begins
after a kill takes the same course with them, up to the first exchange that is missing. To a request that is
made again, parties give the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import TypeVar

from fastadmm.between import schema
from fastadmm.between.journal import Journal
from fastadmm.between.letters import Waiting
from fastadmm.between.schema import Message, Request
from fastadmm.between.socket import Lost, Say
from fastadmm.conversation.calls import CALLS, Asked
from fastadmm.conversation.exchange import Answers, Exchange
from fastadmm.errors import FastadmmError, FormatError
from fastadmm.files.atomic import shown

T = TypeVar("T")

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
        return schema.digest_of(self.raw)

    def answer(self, raw: bytes, more: str = "") -> Message:
        """What a party answered, if it is an answer to this request."""
        try:
            envelope = schema.open_envelope(raw, self.most, self.place)
            found = schema.answer_of(envelope, self.request.calls[-1], self.n_samples, self.place)
        except schema.ProtocolError as error:
            raise FormatError(f"{error}; nothing of it is kept") from None
        return schema.answer_to(found, self.request, self.digest, self.place, more)


def nobody(name: str, raw: bytes, seconds: float) -> bytes:
    """Asks nobody: of a run that is only read."""
    raise AssertionError("nobody is asked")


class Elsewhere:
    """Parties that are in no process of ours."""

    local = False

    def __init__(self, parties: Sequence[Correspondent] = ()) -> None:
        self.parties = parties

    def carry(self, exchange: Exchange) -> Answers | None:
        """Nobody is asked here."""
        raise AssertionError("nobody is asked")

    def notes(self) -> list[tuple[str, str, str]]:
        """Name of each party, of its update, and why it was chosen."""
        return [(party.name, party.kind, party.reason) for party in self.parties]


class Hub(Elsewhere):
    """Asks parties elsewhere, each by its own process, or by files."""

    def __init__(
        self,
        run: str,
        n_samples: int,
        parties: Sequence[Correspondent],
        ask: Ask,
        journal: Journal,
        n_classes: int = 1,
        tell: Say = lambda line: None,
    ) -> None:
        super().__init__(parties)
        self.run, self.ask, self.journal, self.tell = run, ask, journal, tell
        self.n_samples, self.n_classes = n_samples, n_classes
        # A kill may have come between the state and the journal's new beginning.
        first = 1 + max(party.last for party in parties)
        done = sum(int.from_bytes(parts[0]) < first for parts in journal.records())
        self._kept: Iterator[list[bytes]] = islice(journal.records(), done, None)
        self._left = len(journal) - done
        self._threads = ThreadPoolExecutor(len(parties))
        self._known: set[tuple[str, str]] = set()
        self._in_use = False
        self._kept_by: Future[None] | None = None

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
        if self._kept_by is not None:
            self._kept_by.result()

    def close(self) -> None:
        """Let the threads end, when nobody is asked any more."""
        if self._kept_by is not None:
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
        more = "; other settings, labels or program than the run began with" if self.replaying else ""
        return [question.answer(raw, more) for raw, question in zip(parts, asked)]

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
    lost = [error for error in errors.values() if isinstance(error, Lost)]
    for name, other in errors.items():
        if name not in absent and not isinstance(other, (Waiting, Lost)):
            raise other
    if absent:
        raise schema.unapproved(absent, identifier, kind)
    if missing:
        raise Waiting.of(missing, what)
    if lost:
        raise lost[0]
    return found

"""What a coordinator says to parties: calls, asked side by side, and the talk that they are part of.

What the exchanges of a run cost between organisations is counted: how many they are, and bytes of each
party's values. Parties in this process are asked on its threads.
"""

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, TypeVar

import numpy as np

from fastadmm.conversation.calls import CALLS
from fastadmm.engine.engine import Engine
from fastadmm.files.reading import json_of

_T = TypeVar("_T")

#: One answer per call, in the order of the calls; empty where the table says that a call has none.
Answers = list[dict[str, Any]]


@dataclass(frozen=True)
class Call:
    """One question to one party, or something it is told."""

    party: int  # number of the party, in the problem's order
    name: str  # a key of CALLS
    arguments: dict[str, Any] | Callable[[], dict[str, Any]] = field(default_factory=dict)

    def made(self) -> dict[str, Any]:
        """The arguments themselves."""
        return self.arguments() if callable(self.arguments) else self.arguments


class Pace(Enum):
    """How parties in one process are best asked; answers do not depend on it."""

    #: Each on a thread of its own.
    TOGETHER = "together"
    #: One after another, each with all threads.
    IN_TURN = "in turn"
    #: One after another on one thread: too short to share.
    SHORT = "short"


@dataclass(frozen=True)
class Exchange:
    """Calls that do not wait for each other, at most one of them with an answer per party."""

    calls: Sequence[Call]
    pace: Pace = Pace.TOGETHER


#: What speaks to parties: yields exchanges, is sent their answers, and returns what it found.
Talk = Generator[Exchange, Answers, _T]


class Driver(Protocol):
    """Carries exchanges to parties, wherever they are."""

    local: bool  # whether the parties and their data are in this process

    def carry(self, exchange: Exchange) -> Answers | None:
        """The answers; None where one is not there yet, which ends the talk."""

    def notes(self) -> list[tuple[str, str, str]]:
        """Name of each party, of its update, and why it was chosen."""


def ask_all(
    n_parties: int, name: str, pace: Pace = Pace.TOGETHER, **arguments: Any
) -> Generator[Exchange, Answers, Answers]:
    """Ask every party the same; use with ``yield from``."""
    return (yield Exchange([Call(m, name, arguments) for m in range(n_parties)], pace))


def converse(talk: Talk[_T], carry: Callable[[Exchange], Answers | None]) -> _T | None:
    """Drive a talk to its end. Returns: what the talk returns; None where an answer is not there yet."""
    with closing(talk):
        try:
            exchange = next(talk)
            while (answers := carry(exchange)) is not None:
                exchange = talk.send(answers)
        except StopIteration as end:
            return end.value
    return None


# --- what it costs ----------------------------------------------------------------------------------------

#: Exchanges that do not count as those of a round.
_BESIDE = ("scores", "keep_best", "prove", "prove_classes", "prove_masked")

#: Bytes of a number that is no part of an array; those of the message around values do not count.
_NUMBER = 8


class Traffic:
    """Exchanges so far, and bytes of each party.

    Of what has a value for every row it counts bytes per row, which are the same on every worker.

    Shapes: per_row, other (M,).
    """

    def __init__(self, n_parties: int, n_samples: int, n_outputs: int = 1, proves: bool = True) -> None:
        self.n_samples, self.n_outputs, self.proves, self._exchanges = n_samples, n_outputs, proves, 0
        self.per_row, self.other = np.zeros(n_parties), np.zeros(n_parties)

    def take(self, exchange: Exchange, answers: Answers) -> None:
        """Count an exchange of a round; what parties are only told travels with the next question.

        Scores of held-out rows do not count, nor that weights are kept for them: of several workers one
        computes them without asking. Nor does a proof elsewhere: it is the one that :attr:`exchanges` adds.
        """
        if exchange.calls and exchange.calls[0].name in _BESIDE:
            return
        self._exchanges += any(CALLS[call.name].answer for call in exchange.calls)
        for call, answer in zip(exchange.calls, answers, strict=True):
            rule = CALLS[call.name]
            # Arguments that a party of this process has no need of are not made.
            told = dict.fromkeys(rule.arguments) if callable(call.arguments) else call.arguments
            self._add(call.party, rule.arguments, told)
            self._add(call.party, rule.answer, answer)

    @property
    def exchanges(self) -> int:
        """Of all rounds, and one for the proof: how often a run has stopped in between changes nothing."""
        return self._exchanges + self.proves

    def _add(self, m: int, kinds: Mapping[str, str], values: Mapping[str, Any]) -> None:
        for key, value in values.items():
            kind = kinds.get(key, "")
            if "rows" in kind:
                each = _NUMBER * (self.n_outputs if "class" in kind else 1)
                self.per_row[m] += each if value is None else value.nbytes / self.n_samples
            else:
                self.other[m] += value.nbytes if isinstance(value, np.ndarray) else _NUMBER

    def bytes_by_party(self, n_samples: int) -> list[int]:
        """Bytes of each party, with so many rows of all workers."""
        per_row = self.per_row + 2 * self.n_outputs * _NUMBER * self.proves  # to each and from it
        found: list[int] = np.rint(per_row * n_samples + self.other).astype(np.int64).tolist()
        return found

    def sentence(self, n_samples: int) -> str:
        """One line for the log: of the party with the most."""
        most = max(self.bytes_by_party(n_samples)) / max(1, n_samples)
        exchanges = f"{self.exchanges} exchange{'s' * (self.exchanges != 1)}"
        return f"as between organisations: {exchanges}, {most:,.0f} bytes a row"

    def export(self) -> str:
        """The state."""
        return json.dumps([self._exchanges, self.per_row.tolist(), self.other.tolist()])

    def restore(self, saved: str) -> None:
        """Inverse of :meth:`export`."""
        exchanges, per_row, other = json_of(saved)
        self._exchanges, self.per_row, self.other = int(exchanges), np.array(per_row), np.array(other)


# --- parties in this process ------------------------------------------------------------------------------


class Threads:
    """Asks parties of this process."""

    local = True

    def __init__(
        self, engine: Engine, parties: Sequence[Any] | Mapping[int, Any], traffic: Traffic | None = None
    ) -> None:
        self.engine, self.parties, self.traffic = engine, parties, traffic

    def carry(self, exchange: Exchange) -> Answers:
        """The answers, in the order of the calls."""
        calls, pace = exchange.calls, exchange.pace
        # Side by side half of the threads would be idle where there are twice as many as parties.
        beside = pace is Pace.TOGETHER and self.engine.n_threads < 2 * len(calls)
        if beside or pace is Pace.SHORT:
            answers = self.engine.map(self._ask, calls, parallel=beside)
        else:
            answers = self.engine.in_turn(self._ask, calls)
        if self.traffic is not None:
            self.traffic.take(exchange, answers)
        return answers

    def notes(self) -> list[tuple[str, str, str]]:
        """Name of each party, of its update, and why it was chosen."""
        parties = self.parties.values() if isinstance(self.parties, Mapping) else self.parties
        return [(p.name, *(getattr(p, "told", None) or (p.kind, p.reason))) for p in parties]

    def _ask(self, call: Call) -> dict[str, Any]:
        return self.parties[call.party].answer(call.name, call.made())

"""What a coordinator says to parties: calls, asked side by side, and the talk that they are part of."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol, TypeVar

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

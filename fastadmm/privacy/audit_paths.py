"""The ways by which a private run asks its parties, for an audit: in one process, and as an agent answers.

Both are the product's own code from the exchange on. Parties of one process are made by the run's solver;
a party elsewhere is opened by its family from what the call ``start`` says, with books of its own, and
answers every call by its name, as :class:`fastadmm.between.host.Host` does for files and agents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from fastadmm.conversation.exchange import Answers, Exchange
from fastadmm.engine.engine import Engine
from fastadmm.privacy import fusion_sender, message_sender, noise
from fastadmm.privacy.accounts import Account
from fastadmm.privacy.books import Books
from fastadmm.privacy.ledger import Ledger
from fastadmm.settings.privacy import DifferentialPrivacy, FusionPrivacy

__all__ = ["PATHS", "Agents", "Watched", "same_calls"]

#: How parties are asked.
PATHS = ("solver", "agent")

#: Looked up when they are called, as the party's process does.
_FUSION, _MESSAGE, _NOISE = fusion_sender, message_sender, noise  # type: Any, Any, Any


class Watched:
    """A driver that keeps what was asked and answered."""

    def __init__(self, inner: Any, look: Callable[[], None] | None = None) -> None:
        self.inner, self.look = inner, look
        self.local = inner.local
        self.calls: list[tuple[int, str, dict[str, Any]]] = []
        self.answers: list[tuple[int, str, dict[str, Any]]] = []

    def carry(self, exchange: Exchange) -> Answers | None:
        """The answers of the driver inside, to the calls of an exchange."""
        for call in exchange.calls:
            self.calls.append((call.party, call.name, _copied(call.made())))
        answers = self.inner.carry(exchange)
        for call, answer in zip(exchange.calls, answers or []):
            self.answers.append((call.party, call.name, _copied(answer)))
        if self.look is not None:
            self.look()
        return answers

    def notes(self) -> list[tuple[str, str, str]]:
        """Name of each party, of its update, and why it was chosen."""
        return self.inner.notes()


class Agents:
    """Parties that are opened as an agent opens them, each with its books."""

    local = True

    def __init__(
        self,
        settings: DifferentialPrivacy,
        blocks: Sequence[Any],
        names: Sequence[str],
        engine: Engine,
        ledgers: Sequence[Ledger] | None = None,
        run: str = "audit",
        releases: Sequence[Any] | None = None,
    ) -> None:
        self.settings, self.blocks, self.names, self.engine = settings, blocks, names, engine
        self.ledgers = list(ledgers or [Ledger() for _ in names])
        self.run, self.releases = run, releases
        self.parties: dict[int, Any] = {}

    def open(self, terms: dict[str, Any]) -> None:
        """Open the parties."""
        family = _FUSION.FusionParty if isinstance(self.settings, FusionPrivacy) else _MESSAGE.MessageSender
        for m, (block, name) in enumerate(zip(self.blocks, self.names)):
            if block is None:
                continue
            books = Books(
                self.settings,
                self.ledgers[m],
                self.run,
                Account(name, name),
                name,
                None if self.releases is None else self.releases[m],
                partial(_source, self.settings, m),
            )
            told = {**terms, "books": books, "position": m, "n_samples": block.shape[0]}
            self.parties[m] = family.opened(name, block, self.engine, told)
            self.parties[m].prepare()

    def carry(self, exchange: Exchange) -> Answers:
        """The answers of an exchange, in the order of its calls."""
        return [self.parties[call.party].answer(call.name, call.made()) for call in exchange.calls]

    def notes(self) -> list[tuple[str, str, str]]:
        """Name of each party, of its update, and why it was chosen."""
        return [(party.name, party.kind, party.reason) for party in self.parties.values()]


def _source(settings: DifferentialPrivacy, m: int) -> Any:
    return _NOISE.NoiseSource(settings.sampler, settings.seed, m)


def _copied(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value.copy() if isinstance(value, np.ndarray) else value for key, value in values.items()}


def same_calls(
    one: Sequence[tuple[int, str, dict[str, Any]]], other: Sequence[tuple[int, str, dict[str, Any]]]
) -> str:
    """What differs between two lists of calls or answers, bit for bit; empty for nothing."""
    if [(m, name) for m, name, _ in one] != [(m, name) for m, name, _ in other]:
        return "number or order of the exchanges"
    for (m, name, values), (_, _, others) in zip(one, other):
        if values.keys() != others.keys():
            return f"what party {m} is sent with {name!r}"
        for key, value in values.items():
            if not np.array_equal(np.asarray(value), np.asarray(others[key])):
                return f"{key!r} of call {name!r}, party {m}"
    return ""

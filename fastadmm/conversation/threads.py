"""Parties in this process, on its threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastadmm.conversation.exchange import Answers, Call, Exchange, Pace
from fastadmm.conversation.traffic import Traffic
from fastadmm.engine.engine import Engine


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

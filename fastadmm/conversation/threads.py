"""Parties in this process, on its threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastadmm.blocks.block import FeatureBlock, each_image
from fastadmm.conversation.exchange import Answers, Call, Exchange, Pace
from fastadmm.engine.engine import Engine

__all__ = ["Threads"]


class Threads:
    """Asks parties of this process."""

    local = True

    def __init__(self, engine: Engine, parties: Sequence[Any] | Mapping[int, Any]) -> None:
        self.engine, self.parties = engine, parties

    def carry(self, exchange: Exchange) -> Answers:
        """The answers, in the order of the calls."""
        calls, pace = exchange.calls, exchange.pace
        if pace is Pace.SHORT:
            return self.engine.map(self._ask, calls, parallel=False)
        if pace is Pace.TOGETHER and not self.engine.takes_turns(calls):
            return self.engine.map(self._ask, calls)
        if len(calls) < 2:
            return self.engine.in_turn(self._ask, calls)
        known = self._images(calls)
        try:
            self._begin(calls)
            with self.engine.gathering():
                return self.engine.in_turn(self._ask, calls)
        finally:
            for block in known:
                block.know([])

    def notes(self) -> list[tuple[str, str, str]]:
        """Name of each party, of its update, and why it was chosen."""
        parties = self.parties.values() if isinstance(self.parties, Mapping) else self.parties
        return [(p.name, *(getattr(p, "told", None) or (p.kind, p.reason))) for p in parties]

    def _images(self, calls: Sequence[Call]) -> list[FeatureBlock]:
        """Have the images that answers begin with made in one pass; blocks that know theirs."""
        parties = [self.parties[c.party] for c in calls]
        told = [(p, c.name, c.arguments) for p, c in zip(parties, calls) if not callable(c.arguments)]
        vectors = [party.begins_with(name, arguments) for party, name, arguments in told]
        if len(vectors) < len(calls) or vectors[0] is None or any(v is not vectors[0] for v in vectors):
            return []
        blocks = [party.block for party in parties]
        images = each_image(blocks, vectors[0], self.engine) or []
        for block, image in zip(blocks, images):
            block.know([(vectors[0], image)])
        return blocks if images else []

    def _begin(self, calls: Sequence[Call]) -> None:
        """Have the parties do side by side what each does on one thread."""
        fixed = [(self.parties[c.party], c, c.arguments) for c in calls if not callable(c.arguments)]
        work = [party.prepared(c.name, {**arguments, **c.here}) for party, c, arguments in fixed]
        self.engine.map(lambda own: own(), [own for own in work if own is not None])

    def _ask(self, call: Call) -> dict[str, Any]:
        made = {} if call.enough_here else call.made()
        return self.parties[call.party].answer(call.name, {**made, **call.here})

"""Parties elsewhere: what they are asked waits for their next request, their answers are in messages.

A round is begun again from the checkpoint whenever messages have come in. It takes the same course with
the answers so far, until one is missing: there its talk ends, and the requests go out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastadmm.between.exchange import open_message
from fastadmm.blocks.block import FeatureBlock
from fastadmm.conversation.calls import CALLS, Asked
from fastadmm.conversation.exchange import Answers, Call, Exchange

__all__ = ["Correspondent", "Letters", "RemoteBlock"]


class RemoteBlock(FeatureBlock):
    """The shape of a block that is elsewhere; it has no products."""

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape, self.nbytes, self.density = shape, 0, 1.0

    def _elsewhere(self, *arguments: Any, **options: Any) -> Any:
        """Not here: the coordinator holds no features."""
        raise AssertionError("the coordinator holds no features")

    product = product_into = transposed_products = matrix_product = _elsewhere
    gram = upper_gram = kernel_gram = column_squares = _elsewhere


@dataclass
class Correspondent:
    """One party elsewhere."""

    name: str
    kind: str  # what the party said of its updates
    reason: str  # what the party said of its updates
    answers: list[tuple[int, Path]]
    queue: list[Asked] = field(default_factory=list)  # what the next request will hold
    last: int = 0  # number of the last exchange whose answer was used
    asking: bool = False  # whether a call waits for its answer
    answered: str = ""  # digest of its last answer, where that is no file


class Letters:
    """Asks parties elsewhere."""

    local = False

    def __init__(self, n_samples: int, parties: Sequence[Correspondent], n_classes: int = 1) -> None:
        self.n_samples, self.n_classes, self.parties = n_samples, n_classes, parties

    def carry(self, exchange: Exchange) -> Answers | None:
        """The answers, if all are there; else what is missing is asked for, of every party at once."""
        answers = [self._ask(call) for call in exchange.calls]
        return None if None in answers else [answer for answer in answers if answer is not None]

    def notes(self) -> list[tuple[str, str, str]]:
        """Name of each party, of its update, and why it was chosen."""
        return [(party.name, party.kind, party.reason) for party in self.parties]

    def _ask(self, call: Call) -> dict[str, Any] | None:
        party, asked = self.parties[call.party], (call.name, call.made())
        if CALLS[call.name].answer and party.answers:
            party.queue.clear()
            party.last, path = party.answers.pop(0)
            return open_message(path, self.n_samples, lambda _: asked, self.n_classes).answer
        party.queue.append(asked)
        party.asking = bool(CALLS[call.name].answer)
        return None if party.asking else {}

"""The coordinator's side of sums only: it asks all parties the same, and reads the sum of their answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastadmm.conversation.exchange import Talk, ask_all
from fastadmm.parties.masked_direction import MaskedDirectionParty
from fastadmm.secrecy.keys import new_private_key
from fastadmm.secrecy.masks import add_up, from_grid, from_whole

#: Rounding of a sum of squares that a party computes, as a share.
_ROUNDING = 2.0**-50


class Sums:
    """Exchanges whose answers are masked."""

    def __init__(self, n_parties: int) -> None:
        self.n_parties = n_parties
        self.number = 0
        self._private: list[bytes] = []

    def introduce(self) -> Talk[None]:
        """Let parties make keys, and tell all of them those of all."""
        shown = yield from ask_all(self.n_parties, "show_key")
        keys = np.concatenate([answer["key"] for answer in shown])
        yield from ask_all(self.n_parties, "introduce", keys=keys)

    def hand_out(self, parties: Sequence[MaskedDirectionParty]) -> None:
        """Give the parties of this process their places and keys: made once, however often they are."""
        self._private = self._private or [new_private_key() for _ in parties]
        for m, (party, key) in enumerate(zip(parties, self._private, strict=True)):
            party.position, party.private = m, key

    def introduce_again(self, parties: Sequence[MaskedDirectionParty]) -> None:
        """Let the parties of this process go on: no sum depends on their keys."""
        keys = np.concatenate([party.show_key()["key"] for party in parties])
        for party in parties:
            party.answered = self.number
            party.introduce(keys)

    def reach(self) -> Talk[float]:
        """Norm of all features: bounds what a combination of a row's features with weights of norm 1 is."""
        _, (squares,) = yield from self.ask("sum_squares")
        return (1.0 + _ROUNDING) * math.sqrt(max(0.0, squares))

    def ask(
        self, name: str, step: float | None = None, **arguments: Any
    ) -> Talk[tuple[np.ndarray, list[float]]]:
        """Ask every party for one masked answer. Shapes: rows (n,)."""
        self.number += 1
        if step is not None:
            arguments["step"] = step
        answers = yield from ask_all(self.n_parties, name, exchange=self.number, **arguments)
        total = add_up(answers)
        return from_grid(total.rows, step or 1.0), from_whole(total.numbers)

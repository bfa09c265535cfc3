"""What a run's exchanges cost between organisations: how many they are, and bytes of each party's values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from fastadmm.conversation.calls import CALLS
from fastadmm.conversation.exchange import Answers, Exchange
from fastadmm.files.reading import json_of

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

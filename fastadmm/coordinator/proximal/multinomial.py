"""Proximal Newton sharing of a multinomial model: every class of a party is a part of its own.

The coordinator of one predictor per sample runs over M C parts
(:mod:`fastadmm.coordinator.proximal.parts`); a party is asked about all its classes in one call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastadmm.conversation.by_class import pack, unpack
from fastadmm.conversation.calls import BY_CLASS, CALLS
from fastadmm.conversation.exchange import Answers, Call, Exchange, Talk
from fastadmm.coordinator.proximal.proximal import ProximalMethod
from fastadmm.method.method import Measured, translated
from fastadmm.parties.face import FaceParty
from fastadmm.parties.face_classes import ClassFaceParty

Array = np.ndarray


class MultinomialProximalMethod(ProximalMethod):
    """Proximal Newton sharing for C classes; parameters as :class:`ProximalMethod`."""

    family = "multinomial_proximal"
    party_type = ClassFaceParty

    def prepare(self) -> Talk[float]:
        return translated(super().prepare(), self._to_parties, self._of_parts)

    def round(self) -> Talk[Measured]:
        return translated(super().round(), self._to_parties, self._of_parts)

    def _asked(self, exchange: Exchange) -> dict[int, list[Call | None]]:
        """For each party that is asked, the call to each of its classes."""
        classes = self.problem.n_outputs
        asked: dict[int, list[Call | None]] = {}
        for call in exchange.calls:
            asked.setdefault(call.party // classes, [None] * classes)[call.party % classes] = call
        return asked

    def _to_parties(self, exchange: Exchange) -> Exchange:
        name = exchange.calls[0].name
        kinds = CALLS[name].arguments
        calls = [
            Call(m, BY_CLASS[name], pack([None if call is None else call.made() for call in calls], kinds))
            for m, calls in self._asked(exchange).items()
        ]
        return Exchange(calls, exchange.pace)

    def _of_parts(self, exchange: Exchange, answers: Answers) -> Answers:
        kinds = CALLS[exchange.calls[0].name].answer
        if not kinds:
            return [{}] * len(exchange.calls)
        found: dict[int, dict[str, Any]] = {}
        for m, answer in zip(self._asked(exchange), answers):
            for c, part in enumerate(unpack(answer, kinds)):
                if part is not None:
                    found[m * self.problem.n_outputs + c] = part
        return [found[call.party] for call in exchange.calls]

    def _own(self, m: int) -> range:
        """The parts of party m."""
        return range(m * self.problem.n_outputs, (m + 1) * self.problem.n_outputs)

    def _parts(self, weights: Sequence[Array]) -> tuple[list[FaceParty], list[Array]]:
        parts = [part for party in self.parties for part in party.parts]
        return parts, [np.ascontiguousarray(own) for x in weights for own in x.T]

    def final_arguments(self, m: int) -> dict[str, Any]:
        return {"coefficients": np.concatenate([self.coefficients(k) for k in self._own(m)])}

    def weight_norms(self) -> list[float]:
        lengths = np.reshape(self.lengths, (-1, self.problem.n_outputs))
        return [float(length) for length in np.linalg.norm(lengths, axis=1)]

    def known_of(self, m: int) -> dict[str, Array]:
        counts = [float((self.shared.owner == k).sum()) for k in self._own(m)]
        told = {} if self.metric is None else {"metric": self.metric.reshape(self.problem.n_outputs, -1)}
        return {"counts": np.array(counts), **told}

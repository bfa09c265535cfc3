"""Several classes in one process: truncated Newton over the weights of all parties and classes.

As :mod:`fastadmm.coordinator.subspace.stacked`. Columns are read as they are stored, so that sparse ones need
no messages. What a round leaves behind are the parties' weights, which are their only directions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastadmm.coordinator.certificate import PrimalValue
from fastadmm.coordinator.multinomial.multinomial import MultinomialMethod
from fastadmm.coordinator.multinomial.narrow import SHARE_OF_GAP, SHARE_OF_WANTED, NarrowMultinomialMethod
from fastadmm.coordinator.multinomial.span import ClassSpanPoint
from fastadmm.coordinator.multinomial.stacked_span import StackedClassSpan
from fastadmm.coordinator.subspace.stacked_newton import minimise_by_products
from fastadmm.coordinator.subspace.subspace import NOTHING

__all__ = ["StackedMultinomialMethod"]

Array = np.ndarray

#: Entries that a round's Hessian-vector products read, about: large problems show progress.
_ENTRIES_OF_ROUND = 1e9


class StackedMultinomialMethod(NarrowMultinomialMethod):
    """Rounds over all weights, until one gains nothing; then rounds by directions."""

    def make_parties(self) -> list[Any]:
        parties = MultinomialMethod.make_parties(self)
        for party in parties if self.whole else ():
            party.reason += "; in one process all columns are read side by side"
        return parties

    def begin_at(self, weights: Sequence[Array], intercept: Any) -> None:
        MultinomialMethod.begin_at(self, weights, intercept)

    def _send_columns(self) -> None:
        """Nothing is sent."""

    def _minimise(self, slope: Array, gap: float) -> tuple[PrimalValue, Array | None]:
        coordinator, problem = self.coordinator, self.problem
        span, before = StackedClassSpan(problem, self.engine), coordinator.primal
        assert before is not None
        value = before.loss + coordinator.regulariser()
        wanted = (0.0, SHARE_OF_WANTED * self.wanted) if self.wanted > 0.0 else (SHARE_OF_GAP * gap, 0.0)
        old = coordinator.point
        c = np.concatenate([own.T for own in self.weights()], axis=1)
        start = ClassSpanPoint(
            np.ascontiguousarray(c), old.intercept, old.total, before.loss, before.gradient
        )
        most = math.ceil(_ENTRIES_OF_ROUND / span.size[1])
        end, _, _ = minimise_by_products(span, start, *wanted, most)
        self.begin_at([own.T for own in span.parted(end.coefficients)], end.intercept)
        primal = coordinator.primal
        assert primal is not None
        self.whole = value - (primal.loss + coordinator.regulariser()) > NOTHING * abs(value)
        return primal, None

"""Subspace Newton sharing of few columns of several classes in one process: all of them at once.

As in :mod:`fastadmm.coordinator.subspace.whole_span`, but with a quasi-Newton method over all weights of all
classes (:mod:`fastadmm.coordinator.multinomial.span`). Each round ends with the bound that its gradient
proves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastadmm.conversation.exchange import Talk
from fastadmm.coordinator.certificate import PrimalValue
from fastadmm.coordinator.method import Measured
from fastadmm.coordinator.multinomial.multinomial import MultinomialMethod, class_directions_per_party
from fastadmm.coordinator.multinomial.span import ClassSpanPoint, minimise_over_all_columns
from fastadmm.engine.engine import Engine
from fastadmm.parties.classes import ClassDirectionParty
from fastadmm.problem.problem import Problem

__all__ = ["SHARE_OF_GAP", "SHARE_OF_WANTED", "NarrowMultinomialMethod", "all_columns_pay"]

Array = np.ndarray

#: A round closes the gap to this share of the one that ends the run, or if none does, of the gap before.
SHARE_OF_WANTED, SHARE_OF_GAP = 0.5, 1e-7

#: Passes over all columns that a Hessian may cost.
_MOST_PASSES = 25.0

#: With no more numbers than this in all columns, a party may send more columns than it keeps directions.
_FEW_NUMBERS = 1 << 23


def all_columns_pay(n_samples: int, widths: Sequence[int], n_classes: int) -> bool:
    """Whether all columns are less work than directions, and no more memory or little.

    Directions of C classes soon span all columns, so what decides is the Hessian's price.
    """
    columns = sum(widths)
    kept = n_classes * class_directions_per_party(len(widths), n_samples, n_classes)
    fits = max(widths) <= kept or n_samples * columns <= _FEW_NUMBERS
    return fits and _hessian_in_passes(n_samples, columns, n_classes) <= _MOST_PASSES


def _hessian_in_passes(n_samples: int, n_columns: int, n_classes: int) -> float:
    """What a Hessian costs, in passes over all columns and classes: products, and a factor of each class."""
    return n_columns / (8.0 * n_classes) + n_columns**2 / (6.0 * n_samples)


class NarrowMultinomialMethod(MultinomialMethod):
    """Rounds with all columns."""

    def __init__(self, problem: Problem, engine: Engine, wanted: float) -> None:
        super().__init__(problem, engine)
        self.wanted, self.whole = wanted, True

    def make_parties(self) -> list[ClassDirectionParty]:
        parties = super().make_parties()
        for party in parties if self.whole else ():
            party.reason = f"{party.block.shape[1]} columns: in one process all are sent at once"
        return parties

    def begin_at(self, weights: Sequence[Array], intercept: Any) -> None:
        if not self.whole:
            super().begin_at(weights, intercept)
            return
        self._send_columns()
        self._go_to(np.concatenate(weights).T, np.array(intercept))
        self.coordinator.start()

    def _send_columns(self) -> None:
        """Make every column a direction, of weight zero, unless they are."""
        coordinator, widths = self.coordinator, [block.shape[1] for block in self.problem.blocks]
        if len(coordinator.owner):
            return
        coordinator.store.make_room(0, sum(widths), sum(widths))
        coordinator.owner = np.repeat(np.arange(len(widths)), widths)
        for party, own in zip(self.parties, np.split(coordinator.messages, np.cumsum(widths)[:-1])):
            party.send_columns(own)
        coordinator.point.coefficients = np.zeros((self.problem.n_outputs, sum(widths)))

    def _go_to(self, c: Array, intercept: Array) -> None:
        rows = self.coordinator.messages
        total = np.concatenate([self.engine.combine(np.ascontiguousarray(own), rows) for own in c])
        self.coordinator.point = ClassSpanPoint(np.ascontiguousarray(c), intercept, total)

    def round(self) -> Talk[Measured]:
        if not self.whole:
            return (yield from super().round())
        yield from ()  # parties of this process are asked themselves
        self._send_columns()
        coordinator = self.coordinator
        start = coordinator.primal if coordinator.primal is not None else coordinator.start()
        slope = self._slope(start)
        squared, bound = self._proof(start, slope)
        coordinator.n_rounds += 1
        if not 0.0 <= start.loss + coordinator.regulariser() - bound <= self.wanted * bound:
            end, own = self._minimise(slope, squared / (2.0 * self.problem.regularization))
            squared, bound = self._proof(end, self._slope(end) if own is None else own)
        return self._left_behind(squared, bound)

    def _slope(self, primal: PrimalValue) -> Array:
        """Of the objective in the coefficients at the current point, of shape (C, K)."""
        gradient = primal.gradient.reshape(self.problem.n_outputs, -1)
        parties = enumerate(self.parties)
        own = [party.residual_classes(gradient, self.coordinator.coefficients(m)) for m, party in parties]
        return np.concatenate(own, axis=1)

    def _proof(self, primal: PrimalValue, slope: Array) -> tuple[float, float]:
        """Squared norm of the slope at the current point, and the lower bound that it proves."""
        squared, regulariser = float(np.sum(slope * slope)), self.coordinator.regulariser()
        return squared, self._lower_bound(primal, self.coordinator.point.total, regulariser, squared)

    def _minimise(self, slope: Array, gap: float) -> tuple[PrimalValue, Array | None]:
        """Move the model to the best weights, from where the slope and the gap are these.

        Returns what is known there: the slope where intercepts have not moved the gradient on.
        """
        coordinator, share = self.coordinator, SHARE_OF_WANTED * self.wanted

        def least(objective: float) -> float:
            return share * objective if share > 0.0 else SHARE_OF_GAP * gap

        classes, columns = slope.shape
        price = _hessian_in_passes(self.engine.all_rows(self.problem.n_samples), columns, classes)
        steps = math.inf

        def move(point: ClassSpanPoint, objective: float) -> bool:
            nonlocal steps
            coordinator.point, steps = point, steps + 1
            # A Hessian is not computed before the last one was worth its price.
            if steps < price or coordinator.watch.may_wait(objective):
                return False
            moved = coordinator.metric_is_stale(objective)
            steps = 0 if moved else steps
            return moved

        found = minimise_over_all_columns(
            self.problem,
            coordinator.messages,
            coordinator.point,
            slope,
            least,
            self.engine,
            coordinator.hessian,
            move,
        )
        coordinator.point, coordinator.primal = found.point, None
        gradient, primal = found.point.gradient, coordinator.start()
        return primal, found.slope[:, -columns:] if primal.gradient is gradient else None

    def export(self) -> dict[str, Any]:
        return {**super().export(), "whole": self.whole}

    def restore(self, saved: dict[str, Any]) -> None:
        self.whole = bool(saved.get("whole", False))  # not in runs that began without it
        super().restore(saved)

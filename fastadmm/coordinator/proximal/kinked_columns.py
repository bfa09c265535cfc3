"""Kinks in the loss beside norms and bounds, in one process: all columns by an interior point method.

A round begins with the bound that the parties prove from the loss gradient. If the gap is still too large,
the coordinator finds the best weights of some columns (:mod:`fastadmm.coordinator.proximal.interior_point`),
adds the columns whose slope exceeds the norm's strength, and repeats this until there are none or the round
has taken long. The next round proves the gap of the result. A run that gains nothing, or that needs more
columns than pay (:mod:`fastadmm.coordinator.proximal.kinked_work`), continues with the parties' best
responses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastadmm.blocks.block import CSRBlock, DenseBlock, FeatureBlock
from fastadmm.blocks.side_by_side import Beside, can_stand_side_by_side, side_by_side
from fastadmm.blocks.stored import MOSTLY
from fastadmm.conversation.exchange import Talk
from fastadmm.coordinator.method import Measured
from fastadmm.coordinator.penalised_bound import DualShare, bound_from_shares
from fastadmm.coordinator.proximal.interior_point import Saddle, better, find_saddle
from fastadmm.coordinator.proximal.kinked_work import (
    FIRST,
    columns_at_first,
    columns_pay,
    work_of_saddle,
)
from fastadmm.coordinator.proximal.narrow import UNWANTED, AllColumnsMethod, same_sum_over_weights
from fastadmm.engine.engine import Engine, Stopped
from fastadmm.problem.penalty import PartyPenalty
from fastadmm.problem.problem import Problem

__all__ = ["KinkedColumnsMethod", "goes_by_interior_points"]

Array = np.ndarray

#: Relative gap among some columns, while many others are to join: more than this share of them.
_ROUGH, _MANY = 1e-2, 0.1

#: Columns that pull nearly as much as the norm holds may be next.
_NEARLY = 0.95

#: Times that columns join in a round; nanoseconds, about, after which it ends: runs stop between rounds.
_MOST_PASSES, _WORK_OF_ROUND = 30, 2e9


def goes_by_interior_points(problem: Problem, engine: Engine) -> bool:
    """Whether a problem whose parties are in this process is one for all columns."""
    loss, blocks = problem.loss, problem.blocks
    if loss.smooth or not problem.convex or problem.n_outputs > 1 or loss.bends(problem.y) is None:
        return False
    if engine.shares_rows or not (same_sum_over_weights(problem) and can_stand_side_by_side(blocks)):
        return False
    low, high = problem.party_constraints[0].bounds
    widths, densities = zip(*[(block.shape[1], block.density) for block in blocks])
    first = columns_at_first(sum(widths), problem.party_regularizers[0].shares[0] > 0.0)
    return low < high and columns_pay(problem.n_samples, widths, densities, first)


class KinkedColumnsMethod(AllColumnsMethod):
    """Rounds with all columns, by an interior point method."""

    how = "read side by side"

    def __init__(self, problem: Problem, engine: Engine, wanted: float) -> None:
        super().__init__(problem, engine, wanted or UNWANTED)
        self.numbers = np.zeros(0, dtype=np.int64)
        widths, densities = zip(*[(block.shape[1], block.density) for block in problem.blocks])
        self._shape = problem.n_samples, widths, densities

    def round(self) -> Talk[Measured]:
        if not self.whole:
            return (yield from super().round())
        coordinator, answers = self.coordinator, self.prove()
        objective = before = self._objective()
        coordinator.gap = max(objective - self.bound, 0.0)
        if not 0.0 < coordinator.gap <= self.wanted * self.bound:
            numbers = self.numbers
            try:
                found = self._found(self._slopes(coordinator.sent))
            except Stopped:  # the run goes on with this round
                self.numbers, coordinator.n_rounds = numbers, coordinator.n_rounds - 1
                raise
            # Neither lower nor able to prove more is what directions are for.
            self.whole = found is not None and (found.value < before or found.lower > self.bound)
            if found is not None and self.whole:
                lower = found.value < before
                weights = self._parted(found.weights) if lower else self.weights()
                self.go_on_from(weights, found.intercept if lower else self._intercept, found.gradient)
                objective = self._objective()
                coordinator.gap = max(objective - self.bound, 0.0)
        squared = sum(float(answer["squared"]) for answer in answers)
        return self._measured(objective, self.bound, squared, squared)

    def _objective(self) -> float:
        """Of the parties' weights, with the best intercept."""
        primal = self.coordinator.primal_of(self.problem, self.coordinator.model, self._intercept)
        self._intercept = primal.intercept
        return primal.loss + sum(p.penalty.value(x) for p, x in zip(self.parties, self.weights()))

    def _parted(self, x: Array) -> list[Array]:
        return np.split(x, np.cumsum([block.shape[1] for block in self.problem.blocks])[:-1])

    def _slopes(self, u: Array) -> Array:
        blocks, engine = self.problem.blocks, self.engine
        return np.concatenate([block.transposed_product(u, engine) for block in blocks])

    def _found(self, slope: Array) -> Saddle | None:
        """The best weights of columns that pull, with what is proved for all; None where there are none."""
        problem, engine = self.problem, self.engine
        penalty: PartyPenalty = self.parties[0].penalty
        best: Saddle | None = None
        rough, work = True, 0.0
        for _ in range(_MOST_PASSES):
            joined = self._join(slope)
            many = len(self.numbers)
            if not (joined or rough) or not columns_pay(*self._shape, many):
                break
            rough = many < len(slope) and joined > _MANY * many
            accuracy = max(_ROUGH, self.wanted) if rough else 0.5 * self.wanted
            # Columns of the last pass are gone before those of the next are made.
            columns = _joined(problem.blocks, self.numbers, engine)
            found = find_saddle(problem, penalty, columns, accuracy, engine, engine.check)
            del columns
            if found is None:
                break
            slope = self._slopes(found.gradient)
            share = DualShare.proved(penalty, -slope)
            lower = bound_from_shares(problem, found.gradient, [share], engine)
            x = np.zeros(len(slope))
            x[self.numbers] = found.weights
            best = better(best, replace(found, weights=x, lower=lower))
            work += work_of_saddle(*self._shape, many)
            if best.value - best.lower <= self.wanted * best.lower or work > _WORK_OF_ROUND:
                break
        return best

    def _join(self, slope: Array) -> int:
        """Take in columns that pull, where their products with the loss gradient are these; how many."""
        penalty = self.parties[0].penalty
        first, (low, high) = penalty.coefficients[0], penalty.constraint.bounds
        before, d = len(self.numbers), len(slope)
        if before == 0:
            begin = np.arange(d)
            if columns_at_first(d, first > 0.0) < d:
                pull = _pull(slope, first, low, high)
                used = np.flatnonzero(np.concatenate(self.weights()))
                begin = np.union1d(np.argsort(-pull, kind="stable")[:FIRST], used)
            self.numbers = begin
        else:
            pull = _pull(slope, _NEARLY * first, low, high)
            pull[self.numbers] = 0.0
            more = np.flatnonzero(pull > 0.0)
            more = more[np.argsort(-pull[more], kind="stable")[: max(before, FIRST)]]
            self.numbers = np.union1d(self.numbers, more)
        return len(self.numbers) - before

    def export(self) -> dict[str, Any]:
        return {**super().export(), "columns": self.numbers}

    def restore(self, saved: dict[str, Any]) -> None:
        super().restore(saved)
        self.numbers = np.array(saved.get("columns", ()), dtype=np.int64)


def _pull(slope: Array, first: float, low: float, high: float) -> Array:
    """By how much each column pulls beyond the norm, in a direction in which there is room."""
    inwards = np.where(slope > 0.0, low < 0.0, high > 0.0)
    return np.where(inwards, np.maximum(np.abs(slope) - first, 0.0), 0.0)


def _joined(blocks: Sequence[FeatureBlock], numbers: Array, engine: Engine) -> FeatureBlock | Beside:
    """Some columns of all blocks, side by side."""
    whole = sum(block.shape[1] for block in blocks)
    dense = sum(block.shape[1] * block.density for block in blocks) > MOSTLY * whole
    matrices = all(isinstance(block, DenseBlock) for block in blocks)
    if len(numbers) == whole and (matrices or not dense):
        return side_by_side(blocks, engine)
    ends = np.cumsum([0, *(block.shape[1] for block in blocks)])
    cuts = np.searchsorted(numbers, ends)
    own = [numbers[a:b] - end for a, b, end in zip(cuts, cuts[1:], ends)]
    if matrices:
        return Beside([block.columns(k, engine) for block, k in zip(blocks, own)])
    if dense:
        return DenseBlock(np.hstack([block.columns(k, engine) for block, k in zip(blocks, own)]))
    pieces = [
        block.to_scipy()[:, k] if isinstance(block, CSRBlock) else sp.csr_array(block.columns(k, engine))
        for block, k in zip(blocks, own)
    ]
    return CSRBlock(sp.hstack(pieces, format="csr"))

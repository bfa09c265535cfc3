"""Kinks in the loss beside norms and bounds, in one process: all columns by an interior point method.

Parties prove what a gradient says; where that is not enough, the best weights are found over some columns
(:mod:`fastadmm.coordinator.proximal.interior_point`), those that pull more than the penalty holds join, and
so on until none is left. The next round proves where that ended. A run that does not gain goes on with the
parties' best responses from there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastadmm.blocks.block import CSRBlock, DenseBlock, FeatureBlock
from fastadmm.blocks.side_by_side import can_stand_side_by_side
from fastadmm.conversation.exchange import Talk
from fastadmm.coordinator.method import Measured
from fastadmm.coordinator.metric_limits import directions_for_faces
from fastadmm.coordinator.penalised_bound import DualShare, bound_from_shares
from fastadmm.coordinator.proximal.interior_point import Saddle, find_saddle
from fastadmm.coordinator.proximal.narrow import same_sum_over_weights
from fastadmm.coordinator.proximal.proximal import ProximalMethod
from fastadmm.engine.engine import Engine
from fastadmm.problem.penalty import PartyPenalty
from fastadmm.problem.problem import Problem

__all__ = ["KinkedColumnsMethod", "bytes_beside_messages", "goes_by_interior_points", "most_together"]

Array = np.ndarray

#: Columns to begin with; how many times as many may join at once.
_FIRST, _GROWTH = 128, 1.0

#: Relative gap among some columns, while many others are to join: more than this share of them.
_ROUGH, _MANY = 1e-2, 0.1

#: Columns that pull nearly as much as the norm holds may be next.
_NEARLY = 0.95

#: Times that columns join.
_MOST_PASSES = 30

#: Bytes of a system and of columns that are few.
_FEW_BYTES = 1 << 26

#: Share of entries from which on columns are dense.
_MOSTLY = 0.5

#: Where no gap is wanted.
_UNWANTED = 1e-12


def most_together(n_samples: int, n_parties: int) -> int:
    """Columns whose system takes no more memory than messages, or little."""
    messages = 8 * n_samples * n_parties * (directions_for_faces(n_parties, n_samples, False) + 2)
    return math.isqrt(max(messages, _FEW_BYTES) // 8)


def bytes_beside_messages(
    n_samples: int, widths: Sequence[int], densities: Sequence[float], kept: int
) -> int:
    """What columns and their system may take more than messages, which there are none of then.

    Parameters
    ----------
    n_samples : int
    widths : sequence of int
        Columns of each party.
    densities : sequence of float
        Share of each block's entries that are stored.
    kept : int
        Messages that a plan counts.
    """
    entries = n_samples * sum(width * density for width, density in zip(widths, densities))
    columns = min(sum(widths), most_together(n_samples, len(widths)))
    # Beside the system what a sum of its parts takes.
    own, messages = 2 * 8 * columns**2 + math.ceil(12 * entries), 8 * n_samples * kept
    return max(own - messages, 0) if 12 * entries <= max(messages, _FEW_BYTES) else 0


def goes_by_interior_points(problem: Problem, engine: Engine) -> bool:
    """Whether a problem whose parties are in this process is one for all columns."""
    loss, blocks = problem.loss, problem.blocks
    if loss.smooth or not problem.convex or problem.n_outputs > 1 or loss.bends(problem.y) is None:
        return False
    if engine.shares_rows or not (same_sum_over_weights(problem) and can_stand_side_by_side(blocks)):
        return False
    low, high = problem.party_constraints[0].bounds
    if not low < high:
        return False
    n, columns = problem.n_samples, sum(block.shape[1] for block in blocks)
    entries = n * sum(block.shape[1] * block.density for block in blocks)
    messages = (
        8 * n * sum(min(directions_for_faces(len(blocks), n, False), block.shape[1]) for block in blocks)
    )
    bytes_of_entry = 8 if entries > _MOSTLY * n * columns else 12
    if bytes_of_entry * entries > max(messages, _FEW_BYTES):
        return False
    # Without l1 all weights are free.
    return columns <= most_together(n, len(blocks)) or problem.party_regularizers[0].shares[0] > 0.0


class KinkedColumnsMethod(ProximalMethod):
    """Rounds with all columns.

    Parameters
    ----------
    problem : Problem
        For which :func:`goes_by_interior_points`.
    engine : Engine
    wanted : float
        Relative gap that ends the run; 0 for none.

    Attributes
    ----------
    whole : bool
        Whether rounds are over all columns; else parties answer as ever.
    """

    def __init__(self, problem: Problem, engine: Engine, wanted: float) -> None:
        super().__init__(problem, engine)
        self.wanted, self.whole = wanted or _UNWANTED, True

    def keep_to_directions(self) -> None:
        self.whole = False

    def make_parties(self) -> list[Any]:
        parties = super().make_parties()
        for party in parties if self.whole else ():
            party.reason += "; in one process all columns are read side by side"
        return parties

    def round(self) -> Talk[Measured]:
        if not self.whole:
            return (yield from super().round())
        coordinator, problem, engine = self.coordinator, self.problem, self.engine
        sent = coordinator.primal.gradient
        answers = [party.prove(sent, x) for party, x in zip(self.parties, self.weights())]
        coordinator.sent, coordinator.n_rounds = sent, coordinator.n_rounds + 1
        proved = bound_from_shares(problem, sent, [DualShare.read(a) for a in answers], engine)
        self.bound = max(self.bound, proved)
        objective = before = self._objective()
        coordinator.gap = max(objective - self.bound, 0.0)
        if not 0.0 < coordinator.gap <= self.wanted * self.bound:
            found = self._found(sent)
            # Neither lower nor able to prove more is what directions are for.
            self.whole = found is not None and (found.value < before or found.lower > self.bound)
            if found is not None and self.whole:
                lower = found.value < before
                weights = self._parted(found.weights) if lower else self.weights()
                self.go_on_from(weights, found.intercept if lower else self._intercept, found.gradient)
                objective = self._objective()
                coordinator.gap = max(objective - self.bound, 0.0)
        squared = sum(float(answer["squared"]) for answer in answers)
        return Measured(
            objective=objective,
            lower_bound=self.bound,
            primal_residual=0.0,
            dual_residual=math.sqrt(squared / (problem.n_parties * engine.all_rows(problem.n_samples))),
            augmented_lagrangian=objective,
            lyapunov=squared,
            penalty=None,
            accelerated=False,
        )

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

    def _found(self, sent: Array) -> Saddle | None:
        """The best weights of all parties; None where there are too many columns, or none were found."""
        problem, engine = self.problem, self.engine
        penalty: PartyPenalty = self.parties[0].penalty
        most, slope = most_together(problem.n_samples, problem.n_parties), self._slopes(sent)
        first, (low, high) = penalty.coefficients[0], penalty.constraint.bounds
        d, found, numbers = len(slope), None, np.arange(len(slope))
        if first > 0.0 and d > _FIRST:
            numbers = _strongest(
                _pull(slope, first, low, high), np.flatnonzero(np.concatenate(self.weights()))
            )
        joining = len(numbers) if len(numbers) < d else 0
        for _ in range(_MOST_PASSES):
            if len(numbers) > most:
                return None
            many = joining > _MANY * len(numbers)
            accuracy = max(_ROUGH, self.wanted) if many else 0.5 * self.wanted
            rows = _joined(problem.blocks, numbers, engine)
            found = find_saddle(problem, penalty, rows, accuracy, engine)
            if found is None or len(numbers) == d:
                break
            slope = self._slopes(found.gradient)
            share = DualShare.proved(penalty, -slope)
            lower = bound_from_shares(problem, found.gradient, [share], engine)
            if found.value - lower <= self.wanted * lower:
                break
            pull = _pull(slope, _NEARLY * first, low, high)
            pull[numbers] = 0.0
            more = np.flatnonzero(pull > 0.0)
            if not many and len(more) == 0:
                break
            more = more[np.argsort(-pull[more], kind="stable")[: max(int(_GROWTH * len(numbers)), _FIRST)]]
            joining = len(more)
            if joining:
                numbers = np.sort(np.append(numbers, more))
        if found is None:
            return None
        x = np.zeros(d)
        x[numbers] = found.weights
        return Saddle(x, found.intercept, found.gradient, found.value, found.lower)

    def export(self) -> dict[str, Any]:
        return {**super().export(), "whole": self.whole}

    def restore(self, saved: dict[str, Any]) -> None:
        super().restore(saved)
        self.whole = bool(saved.get("whole", False))  # not in runs that began without it


def _pull(slope: Array, first: float, low: float, high: float) -> Array:
    """By how much each column pulls beyond the norm, in a direction in which there is room."""
    inwards = np.where(slope > 0.0, low < 0.0, high > 0.0)
    return np.where(inwards, np.maximum(np.abs(slope) - first, 0.0), 0.0)


def _strongest(pull: Array, used: Array) -> Array:
    """Numbers of the columns that pull most, and of those in use, increasing."""
    order = np.argsort(-pull, kind="stable")[:_FIRST]
    return np.union1d(order, used)


def _joined(blocks: Sequence[FeatureBlock], numbers: Array, engine: Engine) -> FeatureBlock:
    """Some columns of all blocks, side by side."""
    ends = np.cumsum([0, *(block.shape[1] for block in blocks)])
    cuts = np.searchsorted(numbers, ends)
    own = [numbers[a:b] - end for a, b, end in zip(cuts, cuts[1:], ends)]
    whole = sum(block.shape[1] for block in blocks)
    if sum(block.shape[1] * block.density for block in blocks) > _MOSTLY * whole:
        return DenseBlock(np.hstack([block.columns(k, engine) for block, k in zip(blocks, own)]))
    pieces = [
        block.to_scipy()[:, k] if isinstance(block, CSRBlock) else sp.csr_array(block.columns(k, engine))
        for block, k in zip(blocks, own)
    ]
    return CSRBlock(sp.hstack(pieces, format="csr"))

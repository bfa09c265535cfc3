"""Kinks in the loss: an interior point method over the columns that pull."""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
import scipy.sparse as sp

from fastadmm.blocks.block import CSRBlock, DenseBlock, FeatureBlock
from fastadmm.blocks.side_by_side import MOSTLY, Beside, side_by_side
from fastadmm.engine.engine import Engine
from fastadmm.pooled import cost
from fastadmm.pooled.goal import Goal, Point, Proved, better
from fastadmm.pooled.saddle import find_saddle

Array = np.ndarray

#: Most rows that columns are rotated for; squares of lengths below this share are rounding.
_MOST_ROWS, _ROUNDING = 4096, 1e-15

#: Columns of the first system, where a norm holds the others at zero.
_FIRST = 256

#: Steps, about; what each costs beside its system, in products, and in nanoseconds.
_STEPS, _PASSES_OF_STEP, _STEP = 17.0, 8.0, 2.5e5

#: Relative gap among some columns, while many others are to join: more than this share of them.
_ROUGH, _MANY = 1e-2, 0.1

#: Columns that pull nearly as much as the norm holds may be next.
_NEARLY = 0.95

#: Times that columns join; share of the wanted gap that the last system leaves.
_MOST_PASSES, _SHARE_OF_WANTED = 30, 0.5


class InteriorPoint:
    """Losses with kinks, penalties that are one sum over all weights."""

    name = "interior point"

    def takes(self, goal: Goal) -> bool:
        """Whether the problem is one for this."""
        problem = goal.problem
        if problem.loss.smooth or problem.n_outputs > 1 or problem.loss.bends(problem.y) is None:
            return False
        if not (goal.in_memory and problem.traits.a_sum):
            return False
        low, high = goal.penalty.constraint.bounds
        held = goal.penalty.coefficients[0] > 0.0 or _few_rows(goal)
        return low < high and (held or cost.gram_fits(goal))

    def cost(self, goal: Goal) -> float:
        """Systems of the columns that will have weights."""
        d = sum(goal.widths)
        if _few_rows(goal):
            return _STEPS * (cost.dense_gram(goal.n_samples, goal.n_samples) + _STEP) + cost.gram(goal)
        share = min(1.0, 2.0 * _FIRST / d) if goal.penalty.coefficients[0] > 0.0 else 1.0
        return _STEPS * (share**2 * cost.gram(goal) + _PASSES_OF_STEP * cost.product(goal) + _STEP)

    def minimise(self, goal: Goal, point: Point, wanted: float, otherwise: float) -> Point | None:
        """Systems of more and more columns, until what is left out proves nothing more."""
        problem, engine, penalty = goal.problem, goal.engine, goal.penalty
        if _few_rows(goal):
            return _over_rows(goal, wanted)
        slope, numbers = goal.images(point.dual), np.zeros(0, dtype=np.int64)
        best: Proved | None = None
        rough = True
        for _ in range(_MOST_PASSES):
            before = len(numbers)
            numbers = _next_columns(goal, numbers, slope, point.weights)
            joined = len(numbers) - before
            if not (joined or rough):
                break
            rough = len(numbers) < len(slope) and joined > _MANY * len(numbers)
            accuracy = max(_ROUGH, wanted) if rough else _SHARE_OF_WANTED * wanted
            # Columns of the last system are gone before those of the next are made.
            columns = _joined(problem.blocks, numbers, engine)
            found = find_saddle(problem, penalty, columns, accuracy, engine, engine.check)
            del columns
            if found is None:
                break
            slope = goal.images(found.dual)
            x = np.zeros(len(slope))
            x[numbers] = found.weights
            best = better(best, replace(found, weights=x, lower=goal.lower(found.dual, slope)))
            if best.value - best.lower <= wanted * best.lower:
                break
        return None if best is None else goal.at(best.weights, best.intercept, best.dual)


def _few_rows(goal: Goal) -> bool:
    """Whether squared l2, which no rotation changes, leaves as many columns as there are rows."""
    return goal.problem.is_ridge and goal.n_samples < min(sum(goal.widths), _MOST_ROWS)


def _over_rows(goal: Goal, wanted: float) -> Point | None:
    """The same over columns that are rotated: as many as rows that do not depend on each other."""
    engine, blocks = goal.engine, goal.problem.blocks
    kernel: Array = reduce(np.add, [block.kernel_gram() for block in blocks])
    squares, vectors = np.linalg.eigh(kernel)
    counts = squares > _ROUNDING * squares[-1]
    root = np.sqrt(squares[counts])
    columns = DenseBlock(vectors[:, counts] * root)
    aim = _SHARE_OF_WANTED * wanted
    found = find_saddle(goal.problem, goal.penalty, columns, aim, engine, engine.check)
    if found is None:
        return None
    return goal.at(goal.images(vectors[:, counts] @ (found.weights / root)), found.intercept, found.dual)


def _next_columns(goal: Goal, numbers: Array, slope: Array, weights: Array) -> Array:
    """Numbers of columns, ascending, with those that pull most among the others.

    Shapes: slope and weights (d,).
    """
    first, pull, d = goal.penalty.coefficients[0], goal.penalty.pull(slope), len(slope)
    if len(numbers) == 0:
        if first == 0.0 or d <= _FIRST:
            return np.arange(d)
        pull = np.maximum(pull - first, 0.0)
        return np.union1d(np.argsort(-pull, kind="stable")[:_FIRST], np.flatnonzero(weights))
    pull = np.maximum(pull - _NEARLY * first, 0.0)
    pull[numbers] = 0.0
    more = np.flatnonzero(pull > 0.0)
    more = more[np.argsort(-pull[more], kind="stable")[: max(len(numbers), _FIRST)]]
    return np.union1d(numbers, more)


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

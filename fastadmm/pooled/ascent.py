r"""Dual coordinate ascent over the rows of a table.

A pass (:mod:`fastadmm.kernels.row_ascent`) costs as much as two Hessian-vector products. If rows have little
in common, a few passes close the gap. The ratio of the gains of successive passes gives an estimate of the
passes that are left; if they would cost more than another method, that one is used instead.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from fastadmm.blocks.block import DenseBlock
from fastadmm.blocks.side_by_side import Rows
from fastadmm.engine.engine import Engine
from fastadmm.engine.rows import address_of
from fastadmm.method.bent_rows import Lines
from fastadmm.method.certificate import penalty_unit
from fastadmm.pooled import cost
from fastadmm.pooled.goal import Goal, Point
from fastadmm.problem.problem import Problem

Array = np.ndarray

#: Most passes. And passes may cost this many times the estimate for the other methods, because those take
#: longer, too, on problems that need many passes.
_MOST_PASSES, _PATIENCE = 1000, 1.5

#: The dual vector proves exactly the gap that a pass has measured.
_SHARE_OF_GAP = 0.9

#: Passes that it takes with more columns than rows, and at most; with fewer columns as many times more as
#: the square of that ratio.
_PASSES, _LONGEST = 12.0, 1000.0

#: Fewer entries in a row than this leave little to gain.
_FEWEST_ENTRIES = 4.0

#: A contraction rate so near to one that it counts as none.
_SLOWEST = 0.97

#: Gap after a pass beyond what later passes will gain, as a share of the pass's gain.
_OF_RISE = 0.2

#: The intercept's column has the squared length of so many rows (ridge included), and in each entry in
#: addition this share of the mean row's. Its multiplier then converges about as fast as the rows do.
_OF_INTERCEPT, _OF_MEAN_ROW = 10.0, 0.2


def ascend(point: Point, wanted: float, most: float, goal: Goal) -> Point | None:
    """Passes over the rows until the gap is closed, or another method is expected to be faster.

    Returns: the weights found, or those that were given if they are better, with the dual vector.
    """
    from fastadmm.kernels.row_ascent import ascend_dense_rows, ascend_rows

    problem, engine, rows = goal.problem, goal.engine, goal.rows()
    scale, loss = problem.regularization, problem.loss
    squares = _row_squares(rows, engine)
    lead = _lead(problem, rows, squares, engine) if problem.fit_intercept else 0.0
    squares += lead
    order = np.flatnonzero((squares > 0.0) & (problem.weight > 0.0))
    (u, x, least), intercept = _beginning(problem, rows, squares, point, engine), point.intercept
    labels = problem.y, problem.weight, problem.offset
    extra, found = loss.kernel_arguments(), np.empty(1)
    row = 0.0, 0.0, float(problem.y[0]), float(problem.weight[0]), extra, 1.0, found
    prox = address_of(loss.kernels().prox_of_row, row)
    arrays: Any
    if isinstance(rows, DenseBlock):
        kernel, arrays = ascend_dense_rows, rows.matrix
    else:
        kernel, arrays = ascend_rows, (rows.indptr, rows.indices, rows.data)
    number, rises, excess, size = 0, [math.inf], 1.0, abs(least) if math.isfinite(least) else 0.0
    while True:
        if lead:
            intercept -= lead / scale * float(u.sum())
        given = prox, extra, arrays, squares, labels, scale, lead, number, order, u, x, intercept
        rise, intercept = kernel(*given)
        number, rises, size = number + 1, [*rises[-2:], rise], size + rise
        if number == 1:
            continue
        rate = _rate(rises)
        about = excess * rise * (_OF_RISE + rate / (1.0 - rate))
        left = _passes(about / (wanted * size), rate) if size > 0.0 else 0.0
        if not left <= _PATIENCE * most or number + left > _MOST_PASSES:
            return None
        if left > 0.0:
            continue
        if lead:
            _make_sum_zero(problem, u, rows.product(x, engine), intercept, engine)
            x = rows.transposed_product(u, engine)
            x *= -1.0 / scale
        end = goal.at(x, intercept, u)
        size, gap = abs(end.value), end.value - end.lower
        if gap <= wanted * size:
            better = end.value <= least
            return end if better else goal.at(point.weights, point.intercept, u)
        excess *= gap / about if about > 0.0 else 2.0


def _beginning(
    problem: Problem, rows: Rows, squares: Array, point: Point, engine: Engine
) -> tuple[Array, Array, float]:
    """Dual vector and weights at the start; and the objective at given weights, if they are not zero."""
    loss, scale, c, u = problem.loss, problem.regularization, point.weights, np.zeros(len(squares))
    if not c.any():
        if not squares.all():  # rows without entries, which no weight moves
            loss.evaluate(problem.offset, problem.y, problem.weight, u, engine)
            u[squares > 0.0] = 0.0
        return u, np.zeros(len(c)), math.inf
    there = engine.plus(problem.offset, point.total, point.intercept)
    value = loss.evaluate(there, problem.y, problem.weight, u, engine)
    return u, rows.transposed_product(u, engine) / -scale, value + 0.5 * scale * float(c @ c)


def _rate(rises: list[float]) -> float:
    """Ratio of the gains of successive passes, averaged over the last two if there are as many.

    A single pass may gain more than the one before.
    """
    before = rises[0] if math.isfinite(rises[0]) else rises[-2]
    share = rises[-1] / before if before > 0.0 else 0.0
    return min(math.sqrt(share) if math.isfinite(rises[0]) else share, _SLOWEST)


def _passes(excess: float, rate: float) -> float:
    """Number of passes that reduce the gap by a factor ``excess``, at a contraction rate."""
    return 0.0 if excess <= 1.0 or rate <= 0.0 else math.log(excess) / -math.log(rate)


def _lead(problem: Problem, rows: Rows, squares: Array, engine: Engine) -> float:
    """Square of the constant entry of the intercept's column."""
    n = len(squares)
    bend = penalty_unit(problem, engine) * problem.total_weight / n
    mean = rows.transposed_product(np.full(n, 1.0 / n), engine)
    own = (float(squares.mean()) + problem.regularization / bend) / n
    return _OF_INTERCEPT * own + _OF_MEAN_ROW * float(mean @ mean)


def _make_sum_zero(problem: Problem, u: Array, total: Array, intercept: float, engine: Engine) -> None:
    """Change a dual vector in place so that it sums to zero, within the bounds of each entry."""
    excess, h = engine.total(u), np.empty(len(u))
    smoothed = problem.loss.smoothed(1.0)
    if smoothed is None:
        ((room, _),) = engine.together(problem.loss.curvature_parts(problem, total, intercept, h, engine))
    else:  # kinks: each row has a least and a greatest slope
        lines = Lines.of(replace(problem, loss=smoothed), engine)
        h = np.maximum(u - lines.least if excess > 0.0 else lines.most - u, 0.0)
        room = engine.total(h)
    if room > 0.0:
        u -= h * (excess / float(room))


def _row_squares(rows: Rows, engine: Engine) -> Array:
    """Squared length of every row."""
    from fastadmm.kernels.row_ascent import square_dense_rows, square_rows

    out = np.empty(rows.shape[0])
    leaves = engine.leaves(len(out))
    if isinstance(rows, DenseBlock):
        engine.over_rows(square_dense_rows, leaves, rows.matrix, out)
    else:
        engine.over_rows(square_rows, leaves, rows.indptr, rows.data, out)
    return out


class DualAscent:
    """Squared l2, one predictor per sample, a loss with a proximal operator; many columns, or kinks."""

    name = "dual ascent"

    def takes(self, goal: Goal) -> bool:
        """Whether the problem is one for this."""
        problem, loss = goal.problem, goal.problem.loss
        if not (problem.is_ridge and problem.n_outputs == 1 and goal.in_memory):
            return False
        worth = goal.entries >= _FEWEST_ENTRIES or not loss.smooth
        return worth and loss.kernels().prox_of_row is not None

    def cost(self, goal: Goal) -> float:
        """Passes, each of two products."""
        few = max(1.0, goal.n_samples / sum(goal.widths)) ** 2
        return min(_PASSES * few, _LONGEST) * 2.0 * cost.product(goal)

    def minimise(self, goal: Goal, point: Point, wanted: float, otherwise: float) -> Point | None:
        """Passes until the gap is reached; None where they promise to take too long."""
        most = min(_LONGEST, otherwise / (2.0 * cost.product(goal)))
        return ascend(point, _SHARE_OF_GAP * wanted, most, goal)

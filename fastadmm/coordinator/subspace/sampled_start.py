r"""Where Newton's method over all weights begins: at the minimiser for some of the rows.

The optimum for n rows of many is within statistics of that for all of them, about a share d / n of the loss;
so the first steps, and most Hessians, need not see the others. Each sample has some times the rows of
the one before, and each begins with what the last one found: the weights and the Hessian, for rows of a sample
weigh as many times more as there are fewer. Rows are chosen by their number alone, one of every k
neighbours, so that all workers choose the same.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fastadmm.blocks.block import CSRBlock
from fastadmm.blocks.side_by_side import Beside, some_rows
from fastadmm.coordinator.subspace.span import SomeRows, SpanPoint, descend
from fastadmm.coordinator.subspace.span_hessian import SpanHessian
from fastadmm.coordinator.subspace.stacked_span import StackedSpan
from fastadmm.engine.engine import Engine
from fastadmm.engine.some_rows import SomeRowsEngine
from fastadmm.problem.problem import Problem

__all__ = ["chosen_rows", "sampled_start", "strides"]

Array = np.ndarray

#: Rows of the smallest sample for each column, and at least.
_ROWS_PER_COLUMN, _FEWEST_ROWS = 32, 1 << 10

#: One sample has so many times the rows of the one before.
_GROWTH = 8

#: Samples of more than one row in so many save too little, and so do they where columns are few: Hessians are
#: cheap there.
_LEAST_STRIDE, _FEWEST_COLUMNS = 8, 16

#: Where the curvature is the same everywhere one Hessian is enough.
_FEWEST_COLUMNS_OF_SQUARES = 256

#: Of the loss, times columns by rows, what a sample's minimiser may leave: it is off by about this in any case.
_ACCURACY = 0.1


def strides(n_rows: int, columns: int, quadratic: bool) -> list[int]:
    """Of how many neighbouring rows each sample has one, the smallest sample first.

    Parameters
    ----------
    n_rows : int
        Of all workers.
    columns : int
    quadratic : bool
        Whether the loss is.
    """
    if columns < (_FEWEST_COLUMNS_OF_SQUARES if quadratic else _FEWEST_COLUMNS):
        return []
    found, stride = [], n_rows // max(_ROWS_PER_COLUMN * columns, _FEWEST_ROWS)
    while stride >= _LEAST_STRIDE:
        found.append(stride)
        stride //= _GROWTH
    return found


def chosen_rows(first: int, stop: int, stride: int) -> Array:
    """Increasing numbers of the rows of a sample, from ``first`` on and before ``stop``, less ``first``.

    One of every ``stride`` rows; which one differs, for tables may have periods.
    """
    windows = np.arange(first // stride, -(-stop // stride), dtype=np.uint64)
    inside = (windows * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(33)) % np.uint64(stride)
    rows = (windows * np.uint64(stride) + inside).astype(np.int64)
    return rows[(rows >= first) & (rows < stop)] - first


def sampled_start(
    problem: Problem, rows: CSRBlock | Beside, point: SpanPoint, hessian: SpanHessian, engine: Engine
) -> SpanPoint:
    """The point where samples lead from another one; the Hessian of the last of them.

    Parameters
    ----------
    problem : Problem
        With a smooth loss.
    rows : CSRBlock or Beside, of shape (N, d)
    point : SpanPoint
        Weights of all parties.
    hessian : SpanHessian
        Without messages; changed.
    engine : Engine

    Returns
    -------
    SpanPoint
        Of the last sample; the point itself without one.
    """
    n, d = rows.shape
    for stride in strides(engine.all_rows(n), d, problem.loss.name == "squared"):
        numbers = chosen_rows(engine.first_row, engine.first_row + n, stride)
        own = SomeRowsEngine(engine, numbers, n)
        part = rows.some_rows(numbers) if isinstance(rows, Beside) else some_rows(rows, numbers, own)
        some = SomeRows.of(problem, numbers)
        span = StackedSpan(replace(some, weight=stride * some.weight), part, own)
        begin = span.at_weights(point.coefficients, point.intercept).point
        tolerance = _ACCURACY * stride * d / engine.all_rows(n) * begin.loss
        point = descend(span, begin, tolerance, hessian)
    return point

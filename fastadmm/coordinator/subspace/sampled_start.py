r"""Where Newton's method over all weights begins: at the minimiser for some of the rows.

The optimum for n rows of many is within statistics of that for all of them, about a share d / n of the loss;
so the first steps, and most Hessians, need not see the others. Each sample has some times the rows of
the one before, and begins with what that found: the weights and the Hessian, for rows of a sample weigh as
many times more as there are fewer.
"""

from __future__ import annotations

from fastadmm.blocks.block import CSRBlock
from fastadmm.blocks.side_by_side import Beside, some_rows
from fastadmm.coordinator.subspace.row_samples import chosen_rows, strides
from fastadmm.coordinator.subspace.span import SomeRows, SpanPoint, descend
from fastadmm.coordinator.subspace.span_hessian import SpanHessian
from fastadmm.coordinator.subspace.stacked_span import StackedSpan
from fastadmm.engine.engine import Engine
from fastadmm.engine.some_rows import SomeRowsEngine
from fastadmm.problem.problem import Problem

__all__ = ["sampled_start"]

#: Of the loss, times columns by rows, what a sample's minimiser may leave: it is off by more in any case.
_ACCURACY = 0.1


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
        numbers = chosen_rows(n, stride, engine)
        own = SomeRowsEngine(engine, numbers, n)
        part = rows.some_rows(numbers, own) if isinstance(rows, Beside) else some_rows(rows, numbers, own)
        span = StackedSpan(SomeRows.of(problem, numbers, own, stride), part, own)
        begin = span.unmeasured(point.coefficients, point.intercept)
        point = descend(span, begin, 0.0, hessian, _ACCURACY * stride * d / engine.all_rows(n))
        if isinstance(part, Beside):
            part.give_back(engine)
    return point

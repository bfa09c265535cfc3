r"""The start of Newton's method over all weights: the minimiser for a sample of the rows.

The minimiser for n of many rows differs from that for all of them by a statistical error, about a share d / n
of the loss, so the first steps and most Hessians do not need the other rows. Each sample is several times as
large as the one before and starts from its weights and Hessian. Rows of a sample have larger weights, so that
its loss is on the scale of the whole.
"""

from __future__ import annotations

from fastadmm.blocks.block import CSRBlock
from fastadmm.blocks.mixed import Rows
from fastadmm.blocks.side_by_side import Beside, some_rows
from fastadmm.coordinator.subspace.row_samples import chosen_rows, strides
from fastadmm.coordinator.subspace.span import SomeRows, SpanPoint, descend
from fastadmm.coordinator.subspace.span_hessian import SpanHessian
from fastadmm.coordinator.subspace.stacked_span import StackedSpan
from fastadmm.engine.engine import Engine
from fastadmm.engine.some_rows import SomeRowsEngine
from fastadmm.problem.problem import Problem

__all__ = ["ACCURACY", "give_back_samples", "sampled_start", "samples_of"]

#: Accuracy of a sample's minimiser, times the loss and columns per row: below its statistical error.
ACCURACY = 0.1


def sampled_start(
    problem: Problem, rows: Rows, point: SpanPoint, hessian: SpanHessian, engine: Engine
) -> SpanPoint:
    """The minimiser for the largest sample, reached from a point; the Hessian becomes that of this sample.

    Shapes: rows (N, d).
    """
    n, d = engine.all_rows(rows.shape[0]), rows.shape[1]
    samples = samples_of(problem, rows, engine)
    for stride, span in samples:
        begin = span.unmeasured(point.coefficients, point.intercept)
        point = descend(span, begin, 0.0, hessian, ACCURACY * stride * d / n)
    give_back_samples(samples, engine)
    return point


def samples_of(problem: Problem | SomeRows, rows: Rows, engine: Engine) -> list[tuple[int, StackedSpan]]:
    """Copies of growing samples of rows, as spans, and of how many rows each has one."""
    (n, d), samples = rows.shape, []
    # All samples are copied in one call, before passes over rows sweep the interpreter out of the caches.
    with engine.gathering():
        for stride in strides(engine.all_rows(n), d, problem.loss.name == "squared"):
            numbers = chosen_rows(n, stride, engine)
            own = SomeRowsEngine(engine, numbers, n)
            part: Rows
            if isinstance(rows, CSRBlock):
                part = some_rows(rows, numbers, own.later)
            else:
                part = rows.some_rows(numbers, own.later)
            some = SomeRows.of(problem, numbers, own.later, stride)
            samples.append((stride, StackedSpan(some, part, own)))
    return samples


def give_back_samples(samples: list[tuple[int, StackedSpan]], engine: Engine) -> None:
    """Let go of samples' rows, of :func:`samples_of`: their memory is given back by all threads."""
    for _, span in samples:
        if isinstance(span.rows, Beside):
            span.rows.give_back(engine)

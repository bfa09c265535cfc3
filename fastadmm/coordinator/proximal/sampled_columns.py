"""The start of proximal Newton steps over all columns of many rows: the minimiser for a sample of the rows.

As :mod:`fastadmm.coordinator.subspace.sampled_start` has it for ridge. What is known of the sample's Hessian
serves the steps over all rows, as long as these contract.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fastadmm.coordinator.proximal.narrow_newton import loss_alone, minimise_over_all_columns, of_promise
from fastadmm.coordinator.subspace.row_samples import strides
from fastadmm.coordinator.subspace.sampled_start import ACCURACY, give_back_samples, samples_of
from fastadmm.coordinator.subspace.span import SpanPoint
from fastadmm.coordinator.subspace.span_hessian import SpanHessian
from fastadmm.coordinator.subspace.stacked_span import StackedSpan
from fastadmm.problem.penalty import PartyPenalty
from fastadmm.problem.problem import Problem

__all__ = ["begins_with_samples", "bytes_of_sets", "sampled_columns"]

#: With more columns working sets are less work, unless most weights are not zero; so they are with fewer than
#: the second number where dense columns stand beside sparse ones, whose passes take several calls.
_MOST_COLUMNS, _FEWEST_OF_BOTH_KINDS = 128, 16

#: Of the columns that a working set has: of most runs, and of a set that is not of all.
_USUAL_SHARE, _LARGEST_SHARE = 0.4, 0.8


def begins_with_samples(
    n_samples: int, widths: Sequence[int], densities: Sequence[float], quadratic: bool
) -> bool:
    """Whether there are so many rows, and so few columns, that samples save most of the work."""
    columns, kinds = sum(widths), len({density == 1.0 for density in densities})
    fewest = _FEWEST_OF_BOTH_KINDS if kinds > 1 else 1
    return fewest <= columns <= _MOST_COLUMNS and bool(strides(n_samples, columns, quadratic))


def bytes_of_sets(
    n_samples: int, widths: Sequence[int], densities: Sequence[float], quadratic: bool, usual: bool
) -> int:
    """Bytes of a working set's dense columns, where the steps go by sets."""
    if begins_with_samples(n_samples, widths, densities, quadratic):
        return 0
    dense = sum(width for width, density in zip(widths, densities) if density == 1.0)
    return math.ceil(8.0 * n_samples * dense * (_USUAL_SHARE if usual else _LARGEST_SHARE))


def sampled_columns(
    problem: Problem, penalty: PartyPenalty, span: StackedSpan, intercept: float, hessian: SpanHessian
) -> SpanPoint:
    """The minimiser for the largest sample, from zero, as a point of all rows."""
    (n, d), engine = span.rows.shape, span.engine
    c = np.zeros(d)
    samples = samples_of(loss_alone(problem), span.rows, engine)
    for stride, some in samples:
        point = some.at_weights(c, intercept).point
        left = ACCURACY * stride * d / engine.all_rows(n) * abs(point.loss)
        goal = of_promise(left, point.loss)
        found = minimise_over_all_columns(problem, penalty, some, point, goal, hessian)
        c, intercept = found.coefficients, found.intercept
    give_back_samples(samples, engine)
    return span.at_weights(c, intercept).point

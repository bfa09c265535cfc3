r"""The best weights of many columns from few of them: Newton's method over growing working sets.

Most weights of a model with a norm are zero, and a Hessian over all columns is work for nothing. A *working
set* (Johnson and Guestrin 2015) has the columns with weights and at least as many again of those that pull
most; :mod:`fastadmm.pooled.gram_newton` minimises over a copy of it, and one pass over all
columns tells which are missing. The first set is so large that its Gram matrix costs about as much as that
pass. Only what the columns left out can cost in the bound decides on the end.
"""

import math
from typing import NamedTuple

import numpy as np

from fastadmm.blocks.block import CSRBlock
from fastadmm.blocks.columns import some_columns
from fastadmm.blocks.mixed import Mixed, Rows
from fastadmm.method.certificate import PrimalValue, primal_value
from fastadmm.method.span import SpanPoint
from fastadmm.method.span_hessian import SpanHessian
from fastadmm.pooled import cost
from fastadmm.pooled.goal import Goal
from fastadmm.pooled.gram_newton import loss_alone, minimise_over_all_columns
from fastadmm.pooled.table_span import TableSpan

Array = np.ndarray

_MAX_SETS = 30

#: A set that may have more than this share of the columns has all that pull; and if these are more than the
#: second share, all columns where these may be: a larger Gram matrix costs less than a second one.
_MOST, _NEARLY_ALL = 0.5, 0.8

#: Hessians over a set, of a loss that is not quadratic; and cost, as a share of that of the alternative, up
#: to which sets go on: smaller ones before have cost as much together, and the next may be too large.
_HESSIANS, _CLEARLY = 2.0, 0.5

#: Where no weight moves although some pull by so many times the norm's factor, there is no curvature.
_STUCK = 1.001

#: Columns that pull by this share of the norm's factor may be in a set: with others in it some pull more.
_NEARLY = 0.8

#: A set has so many times as many columns as weights are expected: the right ones are not all known yet.
_MORE = 1.5

#: Share of the columns that pull beyond the norm after the first set which will have weights.
_LIKELY = 0.5

#: Over a set that is not the last, of what the columns left out cost; at first, of the loss.
_ROUGH = 1e-3


class Found(NamedTuple):
    """Where working sets have led. Shapes: coefficients, slope (d,); total (N,)."""

    coefficients: Array  # of shape (d,): weights of all columns
    primal: PrimalValue  # loss and gradient there
    slope: Array  # of shape (d,): products of the columns with the gradient
    total: Array | None  # of shape (N,)
    ended: bool  # false if coordinate descent is next: it costs less, or the loss has no curvature here


class _Forecast:
    """Of the number of weights in the end, from what the last set did to the columns that pull.

    Each weight of it has stopped some columns from pulling, itself and those like it; so will each to come.
    """

    def __init__(self, l1: float) -> None:
        self.l1 = l1
        self.last: tuple[int, int] | None = None

    def weights(self, pull: Array, c: Array) -> float:
        """Expected number, given columns' pulls and weights after the next set; 0 after none."""
        used = int(np.count_nonzero(c))
        pulling = int(np.count_nonzero((c == 0.0) & (pull > self.l1)))
        last, self.last = self.last, (used, pulling)
        if last is None or used <= last[0]:
            return 0.0
        stopped = (last[1] - pulling) / (used - last[0])
        return used + pulling / max(1.0, stopped)


class WorkingSets:
    """Working sets of all columns."""

    def __init__(self, goal: Goal) -> None:
        self.problem, self.party, self.engine = goal.problem, goal.penalty, goal.engine
        self.slopes = goal.images
        squares = goal.table.column_squares(self.engine)
        self.sizes = np.sqrt(np.where(squares > 0.0, squares, 1.0))
        self._first = cost.first_set(goal)

    def minimise(self, c: Array, primal: PrimalValue, goal: float, enough: float, always: bool) -> Found:
        """Grow sets from weights on; never returns worse ones.

        Shapes: c (d,).
        Scaling: enough summed scaling.
        """
        problem, engine, quadratic = self.problem, self.engine, self.problem.loss.name == "squared"
        l1 = self.party.coefficients[0]
        c, slope, total = c.copy(), self.slopes(primal.gradient), None
        tried, numbers, aim = np.zeros(len(c), dtype=bool), np.zeros(0, dtype=np.int64), math.inf
        # Weights over a set that is too small lead other losses' steps astray in one that is much larger.
        forecast = _Forecast(l1) if quadratic else None
        span: TableSpan | None = None
        for _ in range(_MAX_SETS):
            pull = self.party.pull(slope)
            expected = 0.0 if forecast is None else forecast.weights(pull, c)
            missing, chosen = self._missing(pull, c), self._chosen(pull, c, expected, always)
            complete = bool(tried[chosen].all()) or (span is not None and missing <= enough)
            if complete and (span is None or aim <= goal):
                break
            aim = goal
            if not complete:
                if not quadratic:  # the parabola's minimiser is that of the loss
                    aim = max(goal, _ROUGH * (abs(primal.loss) if span is None else missing))
                # About half of the columns that pull at first will have weights in the end.
                likely = 1.0 if span is None else _LIKELY * float((pull > l1).sum()) / len(chosen)
                span = None  # its columns are let go of before others are copied
                rows, numbers = some_columns(problem.blocks, chosen, engine)
                if not (always or self._pays(rows, max(1.0, likely))):
                    return Found(c, primal, slope, total, False)
                span = TableSpan(loss_alone(problem), rows, engine)
                hessian = SpanHessian(problem.fit_intercept)
                tried[:], own = False, c[numbers]
                tried[chosen] = True
                if total is None:
                    total = rows.product(own, engine) if own.any() else np.zeros(problem.n_samples)
            assert span is not None
            assert total is not None
            point = SpanPoint(c[numbers], primal.intercept, total, primal.loss, primal.gradient)
            found = minimise_over_all_columns(problem, self.party, span, point, aim, hessian)
            still = np.array_equal(c[numbers], found.coefficients)
            c[numbers], total = found.coefficients, found.total
            assert found.gradient is not None
            sums = found.sums or engine.total_and_size(found.gradient)
            known = found.loss, found.gradient, sums
            primal = primal_value(problem, total, found.intercept, engine, known)
            slope = self.slopes(primal.gradient)
            if still and (pull[c == 0.0] > _STUCK * l1).any():
                return Found(c, primal, slope, total, False)  # all rows are where the loss is linear
        return Found(c, primal, slope, total, True)

    def _missing(self, pull: Array, c: Array) -> float:
        """What pulls beyond the norm's factor cost: the bound is that of a gradient scaled down to it."""
        l1, l2 = self.party.coefficients
        excess = np.where(c == 0.0, pull - l1, 0.0)
        largest = float(excess.max(initial=0.0))
        if not largest > 0.0:
            return 0.0
        scaled = largest / (l1 + largest) * (l1 * float(np.abs(c).sum()) + l2 * float(c @ c))
        if l2 == 0.0:
            return scaled
        excess = np.maximum(excess, 0.0)
        return min(scaled, 0.5 * float(excess @ excess) / l2)

    def _chosen(self, pull: Array, c: Array, expected: float, all_may_be: bool) -> Array:
        """Columns with weights, and some of those that pull most for their sizes, ascending.

        As many as have weights, or more where more are expected to have some in the end.
        """
        used = c != 0.0
        excess = (pull - (_NEARLY if used.any() else 1.0) * self.party.coefficients[0]) / self.sizes
        excess[used] = np.inf
        most = max(2 * int(np.count_nonzero(used)), int(_MORE * expected), self._first)
        chosen = np.flatnonzero(excess > 0.0)
        if most < min(_MOST * len(excess), len(chosen)):
            return np.sort(chosen[np.argpartition(-excess[chosen], most)[:most]])
        return np.arange(len(excess)) if all_may_be and len(chosen) > _NEARLY_ALL * len(excess) else chosen

    def _pays(self, rows: Rows, more: float) -> bool:
        """Whether Newton's method over so many times more columns costs clearly less than the alternative."""
        sparse = rows if isinstance(rows, CSRBlock) else rows.sparse if isinstance(rows, Mixed) else None
        dense = rows.shape[1] - (0 if sparse is None else sparse.shape[1])
        lengths = np.zeros(1) if sparse is None else np.diff(sparse.indptr).astype(np.float64)
        pairs = cost.pair(more * rows.shape[1], True) * 0.5 * more**2 * float(lengths @ lengths)
        price = pairs + cost.dense_gram(rows.shape[0], int(more * dense))
        price *= 1.0 if self.problem.loss.name == "squared" else _HESSIANS
        entries = more * float(lengths.sum()), more * dense * rows.shape[0]
        return price <= _CLEARLY * cost.coordinate_passes(*entries)

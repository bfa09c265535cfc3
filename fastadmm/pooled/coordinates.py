r"""The best weights under penalties that are sums over weights: proximal Newton steps over the columns.

A step minimises the parabola that touches the loss, and the penalty itself,

.. math:: \min_x\; \langle s, x\rangle + \tfrac12 (x - c)^\top D^\top H D (x - c) + h(x),

by coordinate descent (Friedman, Hastie and Tibshirani 2010; Yuan, Ho and Lin 2012 search along the step).
Where the Gram matrix of all columns is little work it is over that matrix. Else it is over the columns
themselves, with *working sets* (Johnson and Guestrin 2015): the columns with weights and as many again of
those that pull most, about to a tenth; the next step continues from there. Once passes over these columns
(:mod:`fastadmm.kernels.coordinate_descent`) have cost as much as the columns' Gram matrix and its minimiser
would, that is what comes next, without classes. Steps end where the gradient proves the gap. An intercept is
eliminated: of its own minimiser nothing is left but a smaller Hessian.

What a step changes is added up weight by weight where the objective's own rounding would hide it.
A slope that keeps a relative gap of 1e-6 open may promise as little as 1e-20 of the objective: with a norm
the gap is linear in the slope, and a step gains its square. The difference of two objectives cannot
show that. Half the sum of the slopes at both ends of a short step, times the step, keeps all digits of it.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from fastadmm.blocks.side_by_side import Columns
from fastadmm.engine.engine import row_ranges
from fastadmm.method.class_certificate import hessian_sums, multinomial_of, shifted
from fastadmm.method.span import Here, SpanPoint
from fastadmm.parties.xupdate.gram_descent import minimise_on_gram
from fastadmm.pooled import cost
from fastadmm.pooled.goal import SHARE_OF_WANTED, Goal, Point

Array = np.ndarray

_MAX_STEPS, _MAX_HALVINGS, _MAX_PASSES = 100, 40, 200

#: Most weights that are minimised over on a Gram matrix.
_MOST_ON_GRAM = 4096

#: Columns of the first working set.
_FEWEST = 100

#: Share of a step's first moves that its last pass may make.
_SHARE = 0.1

#: Share of the promised decrease that a step must keep.
_ARMIJO = 1e-4

#: The gain of a step that promises less than this share of the loss is hidden by the loss's rounding; a step
#: that promises less than this share of the objective gains nothing.
_FLAT, _NOTHING = 1e-13, 1e-28

#: Curvature of rows on a flat piece of their loss, as a share of the mean: without it nothing holds steps.
_OF_FLAT_ROWS = 0.03

#: Nanoseconds of minimising on a Gram matrix, for the cube of its rows.
_CUBE = 0.05

#: Violations that a minimiser on it leaves, relative to the gap, and at least and at most. Where columns are
#: nearly dependent, a small gain closes much of the gap: a tenth would leave hundreds of steps.
_OF_GAP, _FINEST, _COARSEST = 0.01, 1e-12, 1e-8

#: What images are divided by at least, where probabilities are nothing: neither is anything then.
_UNLIKELY = 1e-300


class Coordinates:
    """Smooth losses, penalties that are one sum over all weights."""

    name = "coordinates"

    def takes(self, goal: Goal) -> bool:
        """Whether the problem is one for this."""
        problem = goal.problem
        return problem.loss.smooth and not problem.is_ridge and goal.in_memory and problem.traits.a_sum

    def cost(self, goal: Goal) -> float:
        """No other way takes these problems but the last."""
        return 0.0

    def minimise(self, goal: Goal, point: Point, wanted: float, otherwise: float) -> Point:
        """Steps until the gap is reached, or they no longer close it."""
        if not math.isfinite(point.lower):  # a norm that holds all weights needs no columns one by one
            point = goal.at(point.weights, point.intercept)
        if point.gap <= wanted:
            return point
        steps = ClassSteps(goal) if goal.problem.loss.vector else OneSteps(goal)
        left = SHARE_OF_WANTED * wanted * (abs(point.value) if math.isfinite(point.value) else 1.0)
        found = steps.minimise(point.weights, point.intercept, left)
        return goal.at(found.coefficients, found.intercept)


class Steps(ABC):
    """Proximal Newton steps over all columns."""

    _spent = 0.0

    def __init__(self, goal: Goal) -> None:
        self.goal, self.problem, self.engine = goal, goal.problem, goal.engine
        self.lead = int(goal.problem.fit_intercept)
        self.terms = *goal.penalty.coefficients, *goal.penalty.constraint.bounds

    @abstractmethod
    def least(self, here: Here, gap: float) -> tuple[Array, Array]:
        """About where parabola and penalty of some columns are least: weights, and the intercepts' change."""

    @cached_property
    def columns(self) -> Columns:
        """All columns, for work column by column."""
        return Columns(self.problem.blocks, self.engine)

    def product(self, c: Array) -> Array:
        """``D c`` of shape (N,)."""
        return self.columns.product(c)

    def at(self, c: Array, intercept: Any) -> Here:
        """A point, with the best intercept there, its loss and gradient, and the loss's slopes."""
        total = np.concatenate([self.product(own) for own in np.atleast_2d(c)])
        found = self.goal.primal(self.problem, total, intercept, self.engine)
        rows, slope = found.gradient.reshape(self.problem.n_outputs, -1), self.goal.images(found.gradient)
        if self.lead:
            slope = np.concatenate([self.engine.total(rows).reshape(*c.shape[:-1], 1), slope], axis=-1)
        return Here(SpanPoint(c, found.intercept, total, found.loss, found.gradient), slope, found.loss)

    def change(self, slope: Array, step: Array, c: Array, x: Array) -> float:
        """Change, along a step from c to x, of the loss's tangent and of the penalty."""
        (l1, l2, *_), moves = self.terms, step[..., self.lead :]
        penalty = l1 * (np.abs(x) - np.abs(c)) + 0.5 * l2 * moves * (x + c)
        return float(np.sum(slope * step)) + float(penalty.sum())

    def minimise(self, c: Array, intercept: Any, goal: float) -> SpanPoint:
        """Steps from a point; never returns a worse one.

        Shapes: intercept (C,).
        Scaling: goal summed scaling.
        """
        here = self.at(c, intercept)
        for _ in range(_MAX_STEPS):
            c, slope = here.point.coefficients, here.slope
            value = here.value + self.goal.regulariser(c)
            assert here.point.gradient is not None
            gap = value - self.goal.lower(here.point.gradient, slope[..., self.lead :])
            if gap <= goal:
                break
            x, rise = self.least(here, gap / abs(value) if value else 1.0)
            step = np.concatenate([rise, x - c], axis=-1)
            promised = -self.change(slope, step, c, x)
            if not promised > _NOTHING * abs(value):
                break
            flat = promised <= _FLAT * abs(here.value)
            for halvings in range(_MAX_HALVINGS):
                length = 0.5**halvings
                end = c + length * (x - c) if halvings else x  # weights at their kinks are there exactly
                trial = self.at(end, here.point.intercept + length * rise.sum(axis=-1))
                means = 0.5 * (slope + trial.slope) if flat else np.zeros_like(slope)
                change = self.change(means, length * step, c, end)
                if change + (0.0 if flat else trial.value - here.value) <= -_ARMIJO * length * promised:
                    break
            else:
                break
            here = trial
        return here.point

    def working_set(self, here: Here) -> Array:
        """Columns with weights, and as many again of those that pull most for their sizes, ascending."""
        slope, x = np.atleast_2d(here.slope)[:, self.lead :], np.atleast_2d(here.point.coefficients)
        excess = (self.goal.penalty.pull(slope).max(axis=0) - self.terms[0]) / self._sizes
        used = (x != 0.0).any(axis=0)
        excess[used] = np.inf
        most = max(2 * int(np.count_nonzero(used)), _FEWEST)
        if most < len(excess):
            excess[np.argpartition(-excess, most)[most:]] = -np.inf
        return np.flatnonzero(excess > 0.0)

    @cached_property
    def _sizes(self) -> Array:
        """Lengths of the columns; of empty ones 1."""
        squares = self.columns.squares()
        return np.sqrt(np.where(squares > 0.0, squares, 1.0))

    def passes(
        self, descend: Callable[..., int], chosen: Array, *state: Array, price: float = math.inf
    ) -> bool:
        """Passes over some columns until moves are a tenth of the first ones; whether a Gram matrix is next.

        ``state``: weights, image and moves. Shapes: chosen (c,).
        """
        from fastadmm.kernels.coordinate_descent import shuffle_columns

        order, limit, wide, moved = chosen.copy(), 0.0, math.inf, state[-1]
        shuffle_columns(order)
        for number in range(max(1, min(_MAX_PASSES, int(min(price - self._spent, _MAX_PASSES))))):
            self._spent += 1.0
            order = order[: descend(order, wide, *state)]
            wide = float(moved[1])
            if number == 0:
                limit = _SHARE * float(moved[0])
            if moved[0] <= limit:
                return False
        if self._spent < price:
            return False
        self._spent = 0.0
        return True


class OneSteps(Steps):
    """The steps for one predictor per sample."""

    def __init__(self, goal: Goal) -> None:
        super().__init__(goal)
        easy = cost.gram_fits(goal) and cost.gram(goal) <= cost.EASY * cost.product(goal)
        self.table = goal.rows() if easy else None  # whose Gram matrix is little work
        self._known, self._gram = np.zeros(0, dtype=np.int64), np.zeros((0, 0))

    def product(self, c: Array) -> Array:
        return super().product(c) if self.table is None else self.table.product(c, self.engine)

    @cached_property
    def _room(self) -> tuple[Array, Array, Array]:
        """Columns in the metric, their squares and products with ones."""
        d = self.columns.shape[1]
        return np.empty(len(self.columns.data)), np.empty(d), np.empty(d)

    def least(self, here: Here, gap: float) -> tuple[Array, Array]:
        from fastadmm.kernels.coordinate_descent import descend_columns, scale_columns

        lead, engine, h = self.lead, self.engine, self._curvature(here.point)
        c, slope, first = here.point.coefficients, here.slope[lead:], float(here.slope[0]) if lead else 0.0
        whole, x, moved = float(engine.total(h)) if lead else 0.0, c.copy(), np.zeros(3)
        if self.table is not None:
            chosen, cross = np.arange(len(c)), self.table.transposed_product(h, engine)
            by_gram = True
        else:
            chosen, columns, (scaled, squares, cross) = self.working_set(here), self.columns, self._room
            arrays, root = (columns.indptr, columns.rows, columns.data), engine.each(np.sqrt, h)
            given = *arrays, root, chosen, scaled, squares, cross
            engine.over_rows(scale_columns, row_ranges(len(chosen)), *given)
            metric = (*arrays[:2], scaled), (squares, cross), (whole, first), slope, self.terms
            descend = lambda *given: descend_columns(*metric, *given)  # noqa: E731
            by_gram = self.passes(descend, chosen, x, np.zeros(len(h)), moved, price=self.price(chosen))
        if by_gram:
            if not self._is_known(chosen):
                table = self.columns.some(chosen) if self.table is None else self.table
                self._known, self._gram = chosen, table.gram(engine, h)
            own, lift = np.searchsorted(self._known, chosen), cross[chosen] * float(whole > 0.0)
            shared, tolerance = lift / (whole or 1.0), min(max(_OF_GAP * gap, _FINEST), _COARSEST)
            start = c[chosen]
            told = start, self.terms, x[chosen], len(h), tolerance
            gram = self._gram[np.ix_(own, own)] - np.outer(shared, lift)
            x[chosen] = minimise_on_gram(gram, slope[chosen] - first * shared, *told)
            moved[2] = np.sum(cross[chosen] * (x[chosen] - start))
        return x, np.full(lead, -(first + float(moved[2])) / whole if whole > 0.0 else 0.0)

    def price(self, chosen: Array) -> float:
        """Of the Gram matrix of some columns and what is done with it, in passes over them.

        Shapes: chosen (c,).
        """
        n, k, columns = self.columns.shape[0], len(chosen), self.columns
        if k > _MOST_ON_GRAM:
            return math.inf
        entries = float((columns.indptr[chosen + 1] - columns.indptr[chosen]).sum()) / n
        gram = 0.0 if self._is_known(chosen) else cost.pair(k, not columns.dense) * n * entries**2
        return (gram + _CUBE * float(k) ** 3) / (cost.DESCENT[not columns.dense] * n * max(entries, 1.0))

    def _curvature(self, point: SpanPoint) -> Array:
        """Weighted second derivatives of the loss; of flat rows what keeps passes over columns in reach."""
        problem, engine, h = self.problem, self.engine, self.engine.vector(len(point.total))
        there = problem, point.total, point.intercept, h, engine
        ((total, _),) = engine.together(problem.loss.curvature_parts(*there))
        mean = float(total) / self.goal.n_samples or problem.total_weight / len(h)
        if self.table is not None and total > 0.0:
            return h
        return engine.each(lambda own: np.where(own > 0.0, own, _OF_FLAT_ROWS * mean), h, out=h)

    def _is_known(self, chosen: Array) -> bool:
        """Whether the Gram matrix of some columns is: of the squared loss it is the same everywhere."""
        return self.problem.loss.name == "squared" and bool(np.isin(chosen, self._known).all())


class ClassSteps(Steps):
    """The steps for the multinomial loss: all classes' weights of a column descend together.

    As of :mod:`fastadmm.kernels.class_descent`.
    """

    def least(self, here: Here, gap: float) -> tuple[Array, Array]:
        from fastadmm.kernels.class_descent import class_blocks, descend_class_columns

        problem, columns, lead, chosen = self.problem, self.columns, self.lead, self.working_set(here)
        c, slope, n = here.point.coefficients, np.ascontiguousarray(here.slope[:, lead:]), problem.n_outputs
        z = shifted(problem.offset + here.point.total, here.point.intercept)
        likely = multinomial_of(problem).probabilities(z, problem.y, problem.weight, self.engine)
        bend, arrays = likely * problem.weight, (columns.indptr, columns.rows, columns.data)
        blocks, cross = np.empty((2, len(chosen), n, n))
        given = *arrays, likely, bend, chosen, blocks, cross
        self.engine.over_rows(class_blocks, row_ranges(len(chosen)), *given)
        inverse: Array = np.zeros((n * lead, n * lead))
        first = np.ascontiguousarray(here.slope[:, :lead].T.ravel())
        if lead:
            whole = hessian_sums(likely, problem.weight, self.engine)
            # The loss does not depend on the same number added to all intercepts.
            inverse = np.linalg.pinv(whole + max(float(np.trace(whole)), _UNLIKELY) / n**2, hermitian=True)
            blocks -= cross @ inverse @ cross
        places = np.zeros(columns.shape[1], dtype=np.int64)
        places[chosen] = np.arange(len(chosen))
        metric = arrays, (likely, bend, blocks, cross, places), (inverse, first), slope, self.terms
        x, moved = c.copy(), np.zeros(2 + n)
        descend = lambda *given: descend_class_columns(*metric, *given)  # noqa: E731
        self.passes(descend, chosen, x, np.zeros_like(likely), moved)
        return x, (-inverse @ (first + moved[2 : 2 + n * lead])).reshape(n, lead)

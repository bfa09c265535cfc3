r"""The best weights of many columns: proximal Newton steps by coordinate descent on the columns themselves.

As :mod:`fastadmm.pooled.gram_newton`, but with *working sets* (Johnson and Guestrin 2015): a
step's parabola is minimised over the columns with weights and as many again of those that pull most, about to
a tenth; the next step continues from there. Once passes over these columns
(:mod:`fastadmm.kernels.coordinate_descent`) have cost as much as the columns' Gram matrix and its minimiser
would, that is what comes next, without classes. Steps end where the gradient proves the gap.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from fastadmm.blocks.side_by_side import Columns
from fastadmm.engine.engine import Engine, row_ranges
from fastadmm.method.certificate import primal_value
from fastadmm.method.class_certificate import class_primal_value, hessian_sums, multinomial_of, shifted
from fastadmm.method.penalised_bound import DualShare, bound_from_shares
from fastadmm.method.span import Here, Span, SpanPoint
from fastadmm.parties.xupdate.gram_descent import minimise_on_gram
from fastadmm.pooled import cost
from fastadmm.pooled.gram_newton import NOTHING, change_along, change_to, loss_alone
from fastadmm.problem.penalty import PartyPenalty
from fastadmm.problem.problem import Problem

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

#: Curvature of rows on a flat piece of their loss, as a share of the mean: without it nothing holds steps.
_OF_FLAT_ROWS = 0.03

#: Nanoseconds of minimising on a Gram matrix, for the cube of its rows.
_CUBE = 0.05

#: Violations that a minimiser on it leaves, relative to the gap, and at least and at most. Where columns are
#: nearly dependent, a small gain closes much of the gap: a tenth would leave hundreds of steps.
_OF_GAP, _FINEST, _COARSEST = 0.01, 1e-12, 1e-3


#: What images are divided by at least, where probabilities are nothing: neither is anything then.
_UNLIKELY = 1e-300


class CoordinateSteps(ABC):
    """Proximal Newton steps over all columns."""

    def __init__(self, problem: Problem, penalty: PartyPenalty, engine: Engine) -> None:
        self.whole, self.party, self.engine, self.lead = problem, penalty, engine, int(problem.fit_intercept)
        self.columns = Columns(problem.blocks, engine)
        self.classes = problem.n_outputs
        self.terms = *penalty.coefficients, *penalty.constraint.bounds
        self.forget()

    def forget(self) -> None:
        """Know nothing of earlier steps."""
        self._spent = 0.0

    @abstractmethod
    def at(self, c: Array, intercept: Any) -> Any:
        """A point, with the best intercept there, its loss and gradient, and the loss's slopes."""

    @abstractmethod
    def least(self, here: Any, chosen: Array, gap: float) -> tuple[Array, Array]:
        """About where parabola and penalty of some columns are least: weights, and the intercepts' change.

        Shapes: chosen (c,).
        """

    def penalty(self, x: Array) -> float:
        """h of weights in the set."""
        l1, l2 = self.terms[:2]
        return l1 * float(np.abs(x).sum()) + 0.5 * l2 * float(np.sum(x * x))

    def gap(self, here: Any) -> float:
        """What the gradient at a point leaves unproved."""
        slopes = np.atleast_2d(here.slope)[:, self.lead :]
        shares = [DualShare.proved(self.party, -slope) for slope in slopes]
        bound = bound_from_shares(self.whole, here.point.gradient, shares, self.engine)
        return here.value + self.penalty(here.point.coefficients) - bound

    def minimise(self, c: Array, intercept: Any, goal: float) -> Any:
        """Steps from a point; never returns a worse one.

        Shapes: intercept (C,).
        Scaling: goal summed scaling.
        """
        self.forget()  # a resumed run knows nothing of earlier steps either
        here, (l1, l2) = self.at(c, intercept), self.terms[:2]
        for _ in range(_MAX_STEPS):
            gap, c = self.gap(here), here.point.coefficients
            value = abs(here.value + self.penalty(c))
            if gap <= goal:
                break
            x, rise = self.least(here, self.working_set(here), gap / value if value > 0.0 else 1.0)
            step = np.concatenate([rise, x - c], axis=-1)
            promised = -change_along(here.slope, step, c, x, l1, l2)
            if not promised > NOTHING * value:
                break
            for halvings in range(_MAX_HALVINGS):
                length = 0.5**halvings
                end = c + length * (x - c) if halvings else x  # weights at their kinks are there exactly
                trial = self.at(end, here.point.intercept + length * rise.sum(axis=-1))
                given = length * step, c, end, l1, l2, promised
                if change_to(here, trial, *given) <= -_ARMIJO * length * promised:
                    break
            else:
                break
            here = trial
        return here.point

    def working_set(self, here: Any) -> Array:
        """Columns with weights, and as many again of those that pull most for their sizes, ascending."""
        slope, x = np.atleast_2d(here.slope)[:, self.lead :], np.atleast_2d(here.point.coefficients)
        excess = (self.party.pull(slope).max(axis=0) - self.terms[0]) / self._sizes
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
        self,
        descend: Callable[[Array, float, Array, Array, Array], int],
        chosen: Array,
        x: Array,
        image: Array,
        moved: Array,
        price: float = math.inf,
    ) -> bool:
        """Passes over some columns until moves are a tenth of the first ones; whether a Gram matrix is next.

        Shapes: chosen (c,).
        """
        from fastadmm.kernels.coordinate_descent import shuffle_columns

        order, limit, wide = chosen.copy(), 0.0, math.inf
        shuffle_columns(order)
        for number in range(max(1, min(_MAX_PASSES, int(min(price - self._spent, _MAX_PASSES))))):
            self._spent += 1.0
            order = order[: descend(order, wide, x, image, moved)]
            wide = float(moved[1])
            if number == 0:
                limit = _SHARE * float(moved[0])
            if moved[0] <= limit:
                return False
        if self._spent < price:
            return False
        self._spent = 0.0
        return True


class CoordinateNewton(CoordinateSteps):
    """The steps for one predictor per sample; ``problem``, ``penalty``, ``engine`` as of the base class."""

    def __init__(self, problem: Problem, penalty: PartyPenalty, engine: Engine) -> None:
        super().__init__(problem, penalty, engine)
        self.span = Span(loss_alone(problem), np.empty((0, problem.n_samples)), engine)

    def forget(self) -> None:
        super().forget()
        self._known, self._gram = np.zeros(0, dtype=np.int64), np.zeros((0, 0))

    def at(self, c: Array, intercept: float) -> Here:
        total = self.columns.product(c)
        found = primal_value(self.whole, total, intercept, self.engine)
        point = SpanPoint(c, float(found.intercept), total, found.loss, found.gradient)
        return self.span.here(point, self.columns.transposed_product(found.gradient))

    @cached_property
    def _room(self) -> tuple[Array, Array, Array]:
        """Columns in the metric, their squares and products with ones."""
        d = self.columns.shape[1]
        return np.empty(len(self.columns.data)), np.empty(d), np.empty(d)

    def least(self, here: Here, chosen: Array, gap: float) -> tuple[Array, Array]:
        from fastadmm.kernels.coordinate_descent import descend_columns, scale_columns

        columns, (scaled, squares, cross), lead, engine = self.columns, self._room, self.lead, self.engine
        c, slope = here.point.coefficients, here.slope[lead:]
        h = self._curvature(here.point)
        root, whole = engine.each(np.sqrt, h), float(engine.total(h)) if lead else 0.0
        arrays = columns.indptr, columns.rows, columns.data
        given = *arrays, root, chosen, scaled, squares, cross
        engine.over_rows(scale_columns, row_ranges(len(chosen)), *given)
        first, start, pull = float(here.slope[0]) if lead else 0.0, c[chosen], slope[chosen]
        metric = (*arrays[:2], scaled), (squares, cross), (whole, first), slope, self.terms
        x, image, moved = c.copy(), np.zeros(len(h)), np.zeros(3)
        descend = lambda *given: descend_columns(*metric, *given)  # noqa: E731
        if self.passes(descend, chosen, x, image, moved, self.price(chosen)):
            if not self._is_known(chosen):
                self._known, self._gram = chosen, columns.some(chosen).gram(engine, h)
            own, lift = np.searchsorted(self._known, chosen), cross[chosen] * float(whole > 0.0)
            shared, tolerance = lift / (whole or 1.0), min(max(_OF_GAP * gap, _FINEST), _COARSEST)
            told = start, self.terms, x[chosen], len(h), tolerance
            gram = self._gram[np.ix_(own, own)] - np.outer(shared, lift)
            x[chosen] = minimise_on_gram(gram, pull - first * shared, *told)
            moved[2] = np.sum(cross[chosen] * (x[chosen] - start))
        rise = -(first + float(moved[2])) / whole if whole > 0.0 else 0.0
        return x, np.full(lead, rise)

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
        """Weighted second derivatives of the loss; of flat rows what keeps them in reach."""
        h = self.span.curvature(point)
        mean = self.engine.mean(h) or self.whole.total_weight / len(h)
        room = self.engine.vector(len(h)) if h is self.whole.weight else h
        raised: Array = self.engine.each(
            lambda own: np.where(own > 0.0, own, _OF_FLAT_ROWS * mean), h, out=room
        )
        return raised

    def _is_known(self, chosen: Array) -> bool:
        """Whether the Gram matrix of some columns is: of the squared loss it is the same everywhere."""
        return self.whole.loss.name == "squared" and bool(np.isin(chosen, self._known).all())


class ClassCoordinateNewton(CoordinateSteps):
    """The steps for the multinomial loss: all classes' weights of a column descend together.

    As of :mod:`fastadmm.kernels.class_descent`.
    """

    def at(self, c: Array, intercept: Array) -> Here:
        problem, columns = self.whole, self.columns
        total = np.concatenate([columns.product(own) for own in c])
        found = class_primal_value(problem, total, intercept, self.engine)
        rows = found.gradient.reshape(len(c), -1)
        slope = np.stack([columns.transposed_product(own) for own in rows])
        if self.lead:
            slope = np.column_stack([self.engine.total(rows), slope])
        return Here(SpanPoint(c, found.intercept, total, found.loss, found.gradient), slope, found.loss)

    def least(self, here: Here, chosen: Array, gap: float) -> tuple[Array, Array]:
        from fastadmm.kernels.class_descent import class_blocks, descend_class_columns

        problem, columns, lead = self.whole, self.columns, self.lead
        c, slope, n = here.point.coefficients, np.ascontiguousarray(here.slope[:, lead:]), self.classes
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
        x, image, moved = c.copy(), np.zeros_like(likely), np.zeros(2 + n)
        descend = lambda *given: descend_class_columns(*metric, *given)  # noqa: E731
        self.passes(descend, chosen, x, image, moved)
        return x, (-inverse @ (first + moved[2 : 2 + n * lead])).reshape(n, lead)

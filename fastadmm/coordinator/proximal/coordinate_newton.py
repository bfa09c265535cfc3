r"""The best weights of sparse columns: proximal Newton steps by coordinate descent on the columns themselves.

As :mod:`fastadmm.coordinator.proximal.narrow_newton`, but no Gram matrix is formed: a step's parabola is
minimised by passes over the columns that are not zero or do not want to stay so
(:mod:`fastadmm.kernels.coordinate_descent`), about to a tenth. What it leaves is the next step's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from fastadmm.blocks.columns import SparseColumns
from fastadmm.coordinator.proximal.narrow_newton import loss_alone
from fastadmm.coordinator.proximal.small_steps import NOTHING, change_along, change_to
from fastadmm.coordinator.subspace.span import Here, Span, SpanPoint
from fastadmm.engine.engine import Engine, row_ranges
from fastadmm.problem.penalty import PartyPenalty
from fastadmm.problem.problem import Problem

__all__ = ["CoordinateNewton"]

Array = np.ndarray

_MAX_STEPS, _MAX_HALVINGS, _MAX_PASSES = 100, 40, 50

#: Share of a step's first moves that its last pass may make.
_SHARE = 0.1

#: Share of the promised decrease that a step must keep.
_ARMIJO = 1e-4

#: Curvature of rows on a flat piece of their loss, as a share of the mean: without it nothing holds steps.
_OF_FLAT_ROWS = 0.03


class CoordinateNewton(Span):
    """Proximal Newton steps over the columns of all parties of this process.

    Parameters
    ----------
    problem : Problem
        With a smooth convex loss and one predictor per sample.
    penalties : sequence of PartyPenalty
        Of each party: sums over columns.
    engine : Engine
    """

    def __init__(self, problem: Problem, penalties: Sequence[PartyPenalty], engine: Engine) -> None:
        super().__init__(loss_alone(problem), np.empty((0, problem.n_samples)), engine)
        self.columns, widths = SparseColumns(problem.blocks, engine), [b.shape[1] for b in problem.blocks]
        pairs = list(zip(penalties, widths, strict=True))
        own = [np.repeat([p.coefficients + p.constraint.bounds], width, axis=0) for p, width in pairs]
        self.l1, self.l2, self.low, self.high = np.concatenate(own).T.copy()

    def penalty(self, x: Array) -> float:
        """h of weights in the set."""
        return float(self.l1 @ np.abs(x)) + 0.5 * float(self.l2 @ (x * x))

    def at(self, point: SpanPoint) -> Here:
        """A point with loss and gradient, and the loss's slopes there."""
        assert point.gradient is not None
        return self.here(point, self.columns.transposed_product(point.gradient))

    def advance(self, here: Here, step: Array) -> Here:
        lead, old = self.lead, here.point
        intercept = old.intercept + (float(step[0]) if lead else 0.0)
        c = old.coefficients + step[lead:]
        return self.at(self.evaluated(SpanPoint(c, intercept, self.combined(c))))

    def combined(self, c: Array) -> Array:
        return self.columns.product(c)

    def minimise(self, point: SpanPoint, goal: float) -> SpanPoint:
        """Steps from a point; never returns a worse one.

        Parameters
        ----------
        point : SpanPoint
            Weights of all parties in the set, with loss and gradient.
        goal : float
            A step that promises no more than this is the last. Summed scaling.
        """
        here, lead = self.at(point), self.lead
        for _ in range(_MAX_STEPS):
            c, value = here.point.coefficients, here.value + self.penalty(here.point.coefficients)
            x, rise = self._least(here)
            step = np.append(np.full(lead, rise), x - c)
            promised = -change_along(here.slope, step, c, x, self.l1, self.l2)
            if not promised > NOTHING * abs(value):
                break
            for halvings in range(_MAX_HALVINGS):
                length = 0.5**halvings
                trial = self.advance(here, length * step)
                if halvings == 0:  # weights that are at their kinks are there exactly
                    trial = replace(trial, point=replace(trial.point, coefficients=x))
                end = trial.point.coefficients
                given = length * step, c, end, self.l1, self.l2, promised
                if change_to(here, trial, *given) <= -_ARMIJO * length * promised:
                    break
            else:
                break
            here = trial
            if promised <= goal:
                break
        return here.point

    @cached_property
    def _room(self) -> tuple[Array, Array, Array]:
        """Columns in the metric, their squares and products with ones."""
        d = self.columns.shape[1]
        return np.empty(len(self.columns.data)), np.empty(d), np.empty(d)

    def _least(self, here: Here) -> tuple[Array, float]:
        """About where parabola and penalty are least: weights, and the intercept's change."""
        from fastadmm.kernels.coordinate_descent import descend_columns, scale_columns

        columns, (scaled, squares, cross), lead, engine = self.columns, self._room, self.lead, self.engine
        x, slope = here.point.coefficients.copy(), here.slope[lead:]
        chosen = self._restless(x, slope)
        h = self._curvature(here.point)
        root, whole = engine.root(h), float(engine.total(h)) if lead else 0.0
        arrays = columns.indptr, columns.rows, columns.data
        given = *arrays, root, chosen, scaled, squares, cross
        engine.over_rows(scale_columns, row_ranges(len(chosen)), *given)
        image, first = np.zeros(len(h)), float(here.slope[0]) if lead else 0.0
        terms = self.l1, self.l2, self.low, self.high
        metric = (*arrays[:2], scaled), (squares, cross), (whole, first)
        _, along = descend_columns(*metric, slope, terms, chosen, x, _SHARE, _MAX_PASSES, image)
        return x, -(first + along) / whole if whole > 0.0 else 0.0

    def _curvature(self, point: SpanPoint) -> Array:
        """Weighted second derivatives of the loss; of flat rows what keeps them in reach."""
        h = self.curvature(point)
        mean = self.engine.mean(h) or self.problem.total_weight / len(h)
        raised: Array = self.engine.each(lambda own: np.where(own > 0.0, own, _OF_FLAT_ROWS * mean), h, out=h)
        return raised

    def _restless(self, x: Array, slope: Array) -> Array:
        """Columns whose weight is not zero or would not stay there."""
        pull = np.where(slope > 0.0, self.low < 0.0, self.high > 0.0) & (np.abs(slope) > self.l1)
        return np.flatnonzero((x != 0.0) | pull)

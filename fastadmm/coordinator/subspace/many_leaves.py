"""Newton's method over the columns of many rows: steps and passes in few compiled calls.

After a pass over a large table the interpreter is out of the caches: what it does between two passes takes
half a millisecond, while all threads wait. Where rows are on several machines the engine makes the passes one
by one; what decides about steps is the same code, so that it has the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fastadmm.blocks.block import gram_leaves, pass_leaves
from fastadmm.blocks.tiles import tile_rows
from fastadmm.coordinator.subspace.one_leaf import address_of_next_step, memory_of_steps, told_of_steps
from fastadmm.coordinator.subspace.span_hessian import SpanHessian
from fastadmm.engine.engine import borders, fold_ranges
from fastadmm.engine.rows import address_of
from fastadmm.engine.vectors import CACHE_LINES

__all__ = ["NewtonOnLeaves"]

Array = np.ndarray

#: Entries that the passes of one call read, about: how many threads there are for it is decided before.
_ENTRIES_OF_CALL = 1 << 30


class NewtonOnLeaves:
    """Newton's method as in :func:`fastadmm.coordinator.subspace.span.descend`, and its state between
    steps.
    """

    def __init__(
        self,
        span: Any,
        point: Any,
        tolerance: tuple[float, float],
        hessian: SpanHessian,
        fresh: bool,
        limits: tuple[Any, ...],
    ) -> None:
        from fastadmm.kernels.span_newton import SLOTS

        engine, (n_rows, k) = span.engine, span.rows.shape
        n, known = span.lead + k, point.gradient is not None
        self.span, self.engine, self.hessian, self.kind = span, engine, hessian, type(point)
        self.told = told_of_steps(span, tolerance, limits)
        self.memory = memory_of_steps(n, fresh, known, tolerance[0], limits[0])
        self.control = self.memory[0]
        self.points, self.slopes = np.empty((SLOTS, 1 + k)), np.empty((SLOTS, n))
        self.numbers = np.empty((SLOTS, 4))
        # Of every slot products with the columns, loss and sums of the gradient, in whole cache lines.
        self.found = np.empty((SLOTS, -(-(k + 3) // CACHE_LINES) * CACHE_LINES))
        self.points[0, 0], self.points[0, 1:] = point.intercept, point.coefficients
        own = (point.total, point.gradient) if known else (engine.vector(n_rows), engine.vector(n_rows))
        if known:
            here = span.at(point)
            sums = point.sums or engine.total_and_size(point.gradient)
            self.slopes[0], self.numbers[0] = here.slope, (point.loss, here.value, *sums)
            self.found[0, :k] = here.point.products
        self.totals = own[0], engine.vector(n_rows), engine.vector(n_rows)
        self.gradients = own[1], engine.vector(n_rows), engine.vector(n_rows)
        self.z, self.bend = engine.vector(n_rows), engine.vector(n_rows)
        self.matrix = np.empty((n, n)) if fresh else hessian.matrix.copy(order="C")
        self.state = self.found, self.points, self.slopes, self.numbers, self.matrix
        self.leaves, self.light_leaves = pass_leaves(n_rows, k, engine), engine.leaves(n_rows)
        self.gram_leaves = gram_leaves((n_rows, k), float(k), engine)

    def run(self) -> tuple[tuple[Any, ...], bool]:
        """Take all steps; returns what ``newton_on_one_leaf`` does."""
        from fastadmm.kernels.span_newton import BEST, HERE, LONG, RENEWED

        # Compiled calls need all rows in this process.
        given = self.engine.can_run_jobs(self.leaves, self.span.rows.matrices, self.totals, self.gradients)
        if given and self.engine.sums_fit(self.gram_leaves, self.matrix.nbytes):
            self._all_in_few_calls()
        else:
            self._one_by_one()
        if self.control[RENEWED]:
            self.hessian.matrix, self.hessian.reference = self.matrix, self.bend
        long = bool(self.control[LONG])
        return self._point(int(self.control[HERE if long else BEST])), not long

    def _all_in_few_calls(self) -> None:
        """All steps, each call so many that it takes no longer than a second or so on one core."""
        from fastadmm.kernels.beside import beside_gram
        from fastadmm.kernels.blas import routine
        from fastadmm.kernels.loss_at import curvature_at
        from fastadmm.kernels.span_newton import newton_over_leaves
        from fastadmm.kernels.vectors import sum_by_halves

        span, problem, z, bend, points = self.span, self.span.problem, self.z, self.bend, self.points
        matrices, (n_rows, k), n = span.rows.matrices, span.rows.shape, len(self.matrix)
        kernels, extra, nothing = problem.loss.kernels(), problem.loss.kernel_arguments(), np.empty(0)
        given, syrk, tile = (problem.offset, problem.y, problem.weight), routine("dsyrk"), tile_rows(k)
        own_found = np.empty((len(self.leaves), self.found.shape[1]))
        own_bend = np.empty((len(self.light_leaves), CACHE_LINES))
        own_gram = np.empty((len(self.gram_leaves), n, n))
        rooms = own_found, own_bend, own_gram
        curve = address_of(kernels.curvature, (z, *given[1:], *extra, bend, 0, 0))
        move = matrices, points[0, 1:], nothing, given[0], 0.0, *given[1:], *extra
        at = curve, given[0], z, 0.0, *given[1:], extra, bend, nothing
        calls = (
            address_of_next_step(self.told[2]),
            address_of(kernels.advance, (*move, z, z, z, own_found[0], 0, 0)),
            address_of(curvature_at, (*at, own_bend[0], 0, 0)),
            curve,
            address_of(beside_gram, (matrices, span.lead, bend, tile, syrk, own_gram[0], 0, 0)),
            address_of(sum_by_halves, (own_found, nothing, 0, 0)),
            syrk,
            tile,
        )
        ranges = self.leaves, self.light_leaves, self.gram_leaves, fold_ranges(n * n)
        cuts = tuple(map(borders, ranges))
        vectors = self.totals, self.gradients, z, bend
        most, over = max(1, _ENTRIES_OF_CALL // (n_rows * k)), False
        about = cuts, matrices, given, extra, most, vectors, rooms, self.told, self.state, self.memory
        while not over:
            over = self.engine.run_jobs(newton_over_leaves, self.leaves, calls, *about)

    def _one_by_one(self) -> None:
        """All steps, each pass a job of the engine."""
        from fastadmm.kernels.span_newton import END, HERE, HESSIAN, PASS, TRIAL, WANTED, next_step

        span, problem, k = self.span, self.span.problem, self.span.rows.shape[1]
        control, points = self.control, self.points
        while control[WANTED] != END:
            if control[WANTED] == HESSIAN:
                span.renew(self.hessian, self.kind(*self._point(int(control[HERE]))))
                self.matrix[:], self.bend = self.hessian.matrix, self.hessian.reference
            elif control[WANTED] == PASS:
                trial = int(control[TRIAL])
                to = self.totals[trial], self.z, self.gradients[trial], self.engine
                move = points[trial, 1:], np.empty(0), problem.offset, float(points[trial, 0])
                given = span.rows.matrices, *move, problem.y, problem.weight, *to
                found = self.found[trial, : k + 3]
                found[k], found[:k], found[k + 1 :] = problem.loss.advance(*given)
            next_step(*self.told, self.state, self.memory)

    def _point(self, slot: int) -> tuple[Any, ...]:
        """What a ``SpanPoint`` holds."""
        loss, _, *sums = self.numbers[slot].tolist()
        c, products = self.points[slot, 1:].copy(), self.found[slot, : self.points.shape[1] - 1].copy()
        at = c, self.points[slot, 0].item(), self.totals[slot], loss, self.gradients[slot]
        return *at, (sums[0], sums[1]), products

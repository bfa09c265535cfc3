"""Passes over all messages of several classes: a coefficient counts in one, an intercept is C numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fastadmm.coordinator.proximal.chord_newton import Passes, Place
from fastadmm.coordinator.proximal.parts import HullPoint, lifted
from fastadmm.coordinator.proximal.shared_directions import SharedDirections
from fastadmm.engine.engine import Engine
from fastadmm.method.certificate import inner
from fastadmm.method.class_certificate import multinomial_of
from fastadmm.method.line_length import SHALLOW, best_length
from fastadmm.problem.problem import Problem

Array = np.ndarray


def passes_over(problem: Problem, shared: SharedDirections, engine: Engine) -> Passes:
    """Passes over messages, for one predictor per sample or several."""
    return (ClassPasses if problem.loss.vector else Passes)(problem, shared, engine)


class ClassPasses(Passes):
    """As :class:`fastadmm.coordinator.proximal.chord_newton.Passes`; places' intercepts are of shape (C,)."""

    def __init__(self, problem: Problem, shared: SharedDirections, engine: Engine) -> None:
        super().__init__(problem, shared, engine)
        self.lead = problem.n_outputs if problem.fit_intercept else 0

    def _products(self, gradient: Array) -> Array:
        return self.shared.products_with(gradient)

    def _grown(self, place: Place) -> Place:
        return replace(place, products=self._products(place.gradient))

    def _place(self, move: Array, origin: Array, intercept: Any) -> Place:
        problem, shared, gradient = self.problem, self.shared, np.empty(self.problem.message_size)
        if shared.common:
            total, lifts = np.empty_like(gradient), np.ravel(intercept)
            given = shared.messages, shared.by_class(move), origin, problem.offset, lifts
            loss, slopes, rises = multinomial_of(problem).advance_classes(
                *given, problem.y, problem.weight, total, gradient, self.engine
            )
            products = slopes[shared.classes, shared.rows]
            rises = rises[: self.lead]
            return Place(intercept, loss, products, rises, total, gradient, tuple(rises))
        total = origin + self.shared.combined(move) if move.any() else origin.copy()
        z = problem.offset + total + lifted(intercept, problem.n_samples)
        loss = problem.loss.evaluate(z, problem.y, problem.weight, gradient, self.engine)
        return self._described(intercept, loss, total, gradient)

    def _described(self, intercept: Any, loss: float, total: Array, gradient: Array) -> Place:
        rows = gradient.reshape(self.problem.n_outputs, -1)
        rises = self.engine.total(rows) if self.lead else np.empty(0)
        return Place(intercept, loss, self._products(gradient), rises, total, gradient, tuple(rises))

    def restored(self, point: HullPoint, loss: float, products: Array, sums: Array) -> Place:
        problem, gradient = self.problem, np.empty(self.problem.message_size)
        z = problem.offset + point.total + lifted(point.intercept, problem.n_samples)
        problem.loss.evaluate(z, problem.y, problem.weight, gradient, self.engine)
        if sums.shape != (self.lead,):
            raise ValueError("known")
        return Place(point.intercept, loss, products, sums, point.total, gradient, tuple(sums))

    def prepare(self, here: Place) -> bool:
        hessian, shared = self.shared.hessian, self.shared
        if hessian.reference is None:
            return self.refresh(here)
        if hessian.n_messages < len(shared):
            hessian.grow(shared.messages, shared.rows, shared.classes, self.problem.weight, self.engine)
        return False

    def refresh(self, here: Place) -> bool:
        problem, shared = self.problem, self.shared
        z = problem.offset + here.total + lifted(here.intercept, problem.n_samples)
        likely = multinomial_of(problem).probabilities(z, problem.y, problem.weight, self.engine)
        shared.hessian.move(shared.messages, shared.rows, shared.classes, likely, problem.weight, self.engine)
        return True

    def system(self, basis: Array, last: bool = False, exact: bool = False) -> Array:
        system, lead = super().system(basis, last, exact), self.lead
        if lead:
            # The loss does not depend on the same number added to all intercepts: any positive value will do.
            own = slice(basis.shape[1], None) if last else slice(0, lead)
            system[own, own] += self.problem.total_weight / lead**2
        return system

    def best_length(self, here: Place, there: Place, linear: float, square: float) -> float:
        problem, n = self.problem, self.problem.n_samples
        start = problem.offset + here.total + lifted(here.intercept, n)
        path = there.total - here.total + lifted(there.intercept - here.intercept, n)
        slope = inner(here.gradient, path, self.engine, problem.n_outputs) + linear
        enough = SHALLOW * abs(slope)
        return best_length(problem, start, path, linear, square, self.engine, enough=enough)

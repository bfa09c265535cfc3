r"""Newton's method over faces with one Hessian for all of them.

The Hessian of the loss over all messages, at the curvature of an earlier point, gives that over every face,
since a face's directions are combinations :math:`q` of messages: :math:`q^\top H q`. It is kept from search
to search and from round to round (:class:`fastadmm.method.span_hessian.SpanHessian`) while its
steps contract, corrected by secants; so a step is one pass over the messages, and no message of a face is
ever formed. Where a loss has flat pieces, curvature moves with every step, and the Hessian is computed anew.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fastadmm.coordinator.proximal.parts import HullPoint, difference, predictor
from fastadmm.coordinator.proximal.shared_directions import SharedDirections
from fastadmm.engine.engine import Engine
from fastadmm.engine.singular import descent_solver
from fastadmm.method.certificate import inner
from fastadmm.method.class_certificate import multinomial_of, shifted
from fastadmm.method.line_length import SHALLOW, best_length
from fastadmm.method.span import Secant
from fastadmm.problem.convex_losses import Squared
from fastadmm.problem.problem import Problem

Array = np.ndarray

_MAX_STEPS = 60

#: Share of the diagonal added to a step's system.
RIDGE = 1e-13

#: Decreases below this share of the value are lost in its rounding, and so are rises.
ROUNDING = 1e-14

#: A step with an old Hessian must leave at most this share of what there was to gain, or it is computed anew.
_CONTRACTION = 0.1

#: A search ends where it leaves this share of what it gained on the model, or this much less than its
#: tolerance: where columns differ in size, an end that leaves more of directions that hardly bend costs
#: rounds.
_LEFT, _SHARPER = 1e-3, 1e-6


@dataclass(frozen=True)
class SharedFace:
    """What is minimised: the loss at ``anchor + basis @ w``, and the model of the regularisers.

    Shapes: anchor (K,).
    """

    anchor: Array  # of shape (K,): coefficients of messages
    basis: Array
    linear: Array
    square: Array  # positive semidefinite
    value: float = -math.inf  # at the model, which searches are to gain on


@dataclass
class Place:
    """A combination of messages with the loss there.

    Shapes: intercept (C,); products (K,); rises (1,) or (C,) or (0,); total, gradient (N,) or (0,).
    """

    intercept: Any  # of shape (C,)
    loss: float
    products: Array  # of shape (K,): of messages and gradient
    rises: Array  # of shape (1,) or (C,) or (0,): slope of the loss in the intercept, if there is one
    total: Array = field(default_factory=lambda: np.empty(0))  # of shape (N,) or (0,)
    gradient: Array = field(default_factory=lambda: np.empty(0))  # of shape (N,) or (0,)
    sums: Any = (math.nan, math.nan)

    @property
    def known(self) -> bool:
        """Whether the loss was taken here, and not by a Hessian from elsewhere."""
        return len(self.total) > 0


class Passes:
    """Passes over all messages, and the Hessian that they share; of squared loss that says all."""

    def __init__(self, problem: Problem, shared: SharedDirections, engine: Engine) -> None:
        self.problem, self.shared, self.engine = problem, shared, engine
        self.lead = int(problem.fit_intercept)
        self.quadratic = isinstance(problem.loss, Squared)

    def step(self, here: Place, move: Array, rise: Any) -> Place:
        """Where ``move``, of shape (K,), and ``rise``, of the intercept, lead from ``here``.

        Of squared loss that is what gradient and Hessian at ``here`` say.
        """
        if not (np.any(rise) or move.any()):
            return here
        if not self.quadratic:
            return self._place(move, here.total, here.intercept + rise)
        lead, step = self.lead, np.append(np.broadcast_to(rise, (self.lead,)), move)
        bent = self.shared.hessian.matrix @ step
        slope = np.append(here.rises, here.products)
        loss = here.loss + float(slope @ step) + 0.5 * float(bent @ step)
        slope += bent
        return Place(here.intercept + rise, loss, slope[lead:], slope[:lead])

    def rise_of(self, step: Array) -> Any:
        """What the intercepts' part of a step, of shape (lead,), adds to an intercept."""
        return step.copy() if self.lead > 1 else float(step.sum())

    def at(self, known: HullPoint) -> Place:
        """The place of a point, which searches begin at again and again."""
        shared = self.shared
        place = shared.place_of(known, self.problem.loss)
        if place is None:
            place = self._place(np.zeros(len(shared)), known.total, known.intercept)
        elif len(place.products) < len(shared):
            place = self._grown(place)
        self.shared.known = self.problem.loss, place
        if self.quadratic:
            self.prepare(place)
        return place

    def there(self, c: Array, intercept: Any) -> Place:
        """The place of coefficients of shape (K,), summed up afresh."""
        return self._place(c, self.shared.zeros, intercept)

    def restored(self, point: HullPoint, loss: float, products: Array, sums: Array) -> Place:
        """The place of a saved point, of which these are known; raises ValueError where shapes do not fit."""
        problem, gradient, known = self.problem, np.empty(self.problem.message_size), tuple(sums.tolist())
        if sums.shape != (self.lead if problem.loss.vector else 2,):
            raise ValueError("known")
        z = shifted(problem.offset + point.total, point.intercept)
        problem.loss.evaluate(z, problem.y, problem.weight, gradient, self.engine)
        return Place(point.intercept, loss, products, sums[: self.lead], point.total, gradient, known)

    def kept(self, c: Array, place: Place) -> HullPoint:
        """The point of coefficients of shape (K,), whose place searches are to begin at."""
        self.shared.known = self.problem.loss, place
        return HullPoint(c, place.intercept, place.total)

    def _grown(self, place: Place) -> Place:
        """With products of messages that came later, too."""
        hessian, shared = self.shared.hessian, self.shared
        if self.expands and hessian.reference is not None and hessian.n_messages < len(shared):
            products = hessian.extend(shared.messages, place.gradient, self.engine)
        else:
            products = self.shared.products_with(place.gradient)
        return replace(place, products=products)

    def _place(self, move: Array, origin: Array, intercept: float) -> Place:
        problem, n = self.problem, len(origin)
        total, z, gradient = np.empty(n), np.empty(n), np.empty(n)
        given = problem, intercept, total, z, gradient, self.engine
        loss, products, sums = problem.loss.advance(self.shared.messages, move, origin, *given)
        return Place(intercept, loss, products, np.full(self.lead, sums[0]), total, gradient, sums)

    def prepare(self, here: Place) -> bool:
        """Take new messages into the Hessian; whether it is that of this very place."""
        hessian = self.shared.hessian
        if hessian.reference is None or not (self.quadratic or self.is_exact):
            return self.refresh(here)
        if hessian.n_messages < len(self.shared):
            hessian.extend(self.shared.messages, here.gradient, self.engine)
        return self.quadratic

    @property
    def expands(self) -> bool:
        """Whether the Hessian of one place serves others: not on flat pieces of a loss."""
        return not self.quadratic and self.problem.loss.bends(self.problem.y[:1]) is None

    @property
    def is_exact(self) -> bool:
        """Whether the Hessian at a place is that of the loss: else steps tell too little of what is left."""
        return self.expands and self.problem.loss.convex

    def refresh(self, here: Place) -> bool:
        """Move the Hessian to a place; True."""
        problem, hessian = self.problem, self.shared.hessian
        if self.quadratic and hessian.reference is not None:
            return True
        z = predictor(problem, here, self.engine)
        h = problem.loss.curvature(z, problem.y, problem.weight, np.empty(len(z)), self.engine)
        messages, engine = self.shared.messages, self.engine
        hessian.refresh(messages, h if problem.loss.convex else engine.each(np.maximum, h, 0.0), engine)
        return True

    def system(self, basis: Array, last: bool = False) -> Array:
        """The Hessian in combinations of messages and the intercept, which comes first or last."""
        lead, whole = self.lead, self.shared.hessian.matrix
        size = basis.shape[1]
        own = slice(0, size) if last else slice(lead, lead + size)
        system = np.empty((lead + size, lead + size))
        products = basis.T @ whole[lead:, lead:] @ basis
        system[own, own] = 0.5 * (products + products.T)
        if lead:
            at = slice(size, None) if last else slice(0, lead)
            system[at, own] = whole[:lead, lead:] @ basis
            system[own, at] = system[at, own].T
            system[at, at] = whole[:lead, :lead]
            if not whole[0, 0] > 0.0:  # saturated losses have no curvature left
                system[at, at] = self.problem.total_weight
        return system

    def is_higher(self, value: float, before: float, step: Array) -> bool:
        """Whether a line search has ended in another valley, and a higher one. Shapes: step (K,)."""
        return not self.problem.loss.convex and value >= before and bool(np.any(np.abs(step) > 1e-12))

    def best_length(self, here: Place, there: Place, linear: float, square: float) -> float:
        """Length between 0 and 1 of least value."""
        if self.quadratic:
            return 1.0
        problem, engine, enough = self.problem, self.engine, 0.0
        start, path = predictor(problem, here, engine), difference(problem, there, here, engine)
        if problem.loss.vector:
            enough = SHALLOW * abs(inner(here.gradient, path, engine, problem.n_outputs) + linear)
        return best_length(problem, start, path, linear, square, engine, enough=enough)


class ClassPasses(Passes):
    """Passes over messages of several classes: a coefficient counts in one, an intercept is C numbers."""

    def __init__(self, problem: Problem, shared: SharedDirections, engine: Engine) -> None:
        super().__init__(problem, shared, engine)
        self.lead = problem.n_outputs if problem.fit_intercept else 0

    def _grown(self, place: Place) -> Place:
        return replace(place, products=self.shared.products_with(place.gradient))

    def _place(self, move: Array, origin: Array, intercept: Any) -> Place:
        problem, shared, gradient = self.problem, self.shared, np.empty(self.problem.message_size)
        total, lifts = np.empty_like(gradient), np.ravel(intercept)
        given = shared.messages, shared.by_class(move), origin, problem, lifts, total, gradient
        loss, slopes, rises = multinomial_of(problem).advance_classes(*given, self.engine)
        products, rises = slopes[shared.classes, shared.rows], rises[: self.lead]
        return Place(intercept, loss, products, rises, total, gradient, tuple(rises))

    def prepare(self, here: Place) -> bool:
        hessian, shared = self.shared.hessian, self.shared
        if hessian.reference is None:
            return self.refresh(here)
        if hessian.n_messages < len(shared):
            hessian.grow(shared.messages, shared.rows, shared.classes, self.problem.weight, self.engine)
        return False

    def refresh(self, here: Place) -> bool:
        problem, shared = self.problem, self.shared
        z = predictor(problem, here, self.engine)
        likely = multinomial_of(problem).probabilities(z, problem.y, problem.weight, self.engine)
        shared.hessian.move(shared.messages, shared.rows, shared.classes, likely, problem.weight, self.engine)
        return True

    def system(self, basis: Array, last: bool = False) -> Array:
        system, lead = super().system(basis, last), self.lead
        if lead:
            # The loss does not depend on the same number added to all intercepts: any positive value will do.
            own = slice(basis.shape[1], None) if last else slice(0, lead)
            system[own, own] += self.problem.total_weight / lead**2
        return system


def passes_over(problem: Problem, shared: SharedDirections, engine: Engine) -> Passes:
    """Passes over messages, for one predictor per sample or several."""
    return (ClassPasses if problem.loss.vector else Passes)(problem, shared, engine)


def minimise_on_shared_face(
    passes: Passes,
    face: SharedFace,
    start: Array,
    near: tuple[Array, Place],
    tolerance: float,
    reach: float,
) -> tuple[Array, Place]:
    """Newton's method from a point of the face, whose place follows from that of a known one.

    Shapes: start (n,).
    Scaling: tolerance summed scaling.
    """
    search = _Search(passes, face, reach)
    here = search.at(start, *near)
    fresh = passes.prepare(here.place)
    solve, before, share = search.solver(), math.inf, _LEFT * passes.is_exact
    for _ in range(_MAX_STEPS):
        newton = solve(here.slope)
        left = float(here.slope @ newton)
        if 0.5 * left <= max(_SHARPER * tolerance, share * (face.value - here.value)):
            break
        if not (fresh or left <= _CONTRACTION * before):
            fresh, before = passes.refresh(here.place), math.inf
            solve = search.solver()
            continue
        step = search.shortened(-newton)
        decrease = -float(here.slope @ step)
        falls = decrease > 0.0 and math.isfinite(decrease)
        if falls:
            trial = search.advance(here, step)
            rounding = ROUNDING * abs(here.value)
            if decrease <= rounding and trial.value <= here.value + rounding:
                here = trial
                break
            falls = trial.value <= here.value - 1e-4 * decrease
        if not falls:
            if not fresh:
                fresh, before = passes.refresh(here.place), math.inf
                solve = search.solver()
                continue
            if not (decrease > 0.0 and math.isfinite(decrease)):
                break
            step = search.best_length(here, trial, step) * step
            trial = search.advance(here, step)
            while passes.is_higher(trial.value, here.value, step):
                step *= 0.5
                trial = search.advance(here, step)
        if not trial.value < here.value:
            break
        solve.learn(step, trial.slope - here.slope)
        here, fresh, before = trial, False, decrease
    return here.w, here.place


@dataclass
class _Point:
    """A point of the face; its slope is in intercept (first, if there is one) and w."""

    w: Array
    place: Place
    value: float
    slope: Array


class _Search:
    """One face."""

    def __init__(self, passes: Passes, face: SharedFace, reach: float) -> None:
        self.passes, self.face, self.reach, self.lead = passes, face, reach, passes.lead

    def at(self, w: Array, c: Array, place: Place) -> _Point:
        """The point w, its place found from that of coefficients c; shapes (n,) and (K,)."""
        move = self.face.anchor + self.face.basis @ w - c
        return self._point(w, self.passes.step(place, move, 0.0))

    def advance(self, here: _Point, step: Array) -> _Point:
        """The point a step further."""
        move, before = step[self.lead :], here.place
        rise = self.passes.rise_of(step[: self.lead])
        place = self.passes.step(before, self.face.basis @ move, rise)
        return self._point(here.w + move, place)

    def _point(self, w: Array, place: Place) -> _Point:
        face = self.face
        bent = face.square @ w
        slope = np.append(place.rises, place.products @ face.basis + face.linear + bent)
        value = place.loss + float(face.linear @ w) + 0.5 * float(bent @ w)
        return _Point(w, place, value if math.isfinite(value) else math.inf, slope)

    def solver(self) -> Secant:
        """Solver of the system on the face."""
        system = self.passes.system(self.face.basis)
        system[self.lead :, self.lead :] += self.face.square
        return Secant(descent_solver(system, RIDGE))

    def shortened(self, step: Array) -> Array:
        """A step that is not too long."""
        size = float(np.linalg.norm(step[self.lead :]))
        return step * (self.reach / size) if size > self.reach else step

    def best_length(self, here: _Point, trial: _Point, step: Array) -> float:
        """Length between 0 and 1 of least value."""
        face, move = self.face, step[self.lead :]
        linear = float(face.linear @ move) + float(here.w @ face.square @ move)
        return self.passes.best_length(here.place, trial.place, linear, float(move @ face.square @ move))

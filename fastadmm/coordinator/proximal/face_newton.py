r"""Newton's method over the faces of all parties' answers: the objective is as smooth there as the loss.

On the face of an answer :math:`\hat x_m` (same zeros, same signs, same bounds) the regulariser is
replaced by its second-order model at the answer. With U the messages of directions that stay on
the face,

.. math:: \min_{w, b}\; \ell(o + b + \hat z + U^\top w) + \langle q, w\rangle + \tfrac12 w^\top Q w .

With several classes a Hessian costs as much as dozens of slopes: it is kept, and corrected by what the steps
show, while they still close in quickly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastadmm.coordinator.proximal.hull import loss_system, rise_of
from fastadmm.coordinator.proximal.parts import combined, lifted, products_with
from fastadmm.coordinator.proximal.weights_program import descent_solver
from fastadmm.engine.engine import Engine
from fastadmm.method.line_length import SHALLOW, best_length
from fastadmm.method.span import Secant
from fastadmm.problem.problem import Problem

Array = np.ndarray

_MAX_STEPS = 30

#: Share of the diagonal added to a step's system; and where no length of a step descends, because it leads
#: far along directions in which a saturated loss hardly bends, by what that is multiplied, up to the last.
RIDGE, _MORE_RIDGE, _MOST_RIDGE = 1e-13, 1e3, 1e-4

#: Decreases below this share of the value are lost in its rounding, and so are rises.
ROUNDING = 1e-14

#: A Hessian is kept while a step promises no more than this share of what the one before it did.
_CLOSING_IN = 0.3


@dataclass
class FacePoint:
    """A point of the face. Shapes: intercept (C,); total (N,) or (C N,)."""

    w: Array
    intercept: Any  # of shape (C,)
    total: Array  # of shape (N,) or (C N,): sum of messages
    value: float = math.nan  # of the model


@dataclass(frozen=True)
class FaceModel:
    """What is minimised. Shapes: total (N,)."""

    messages: Array  # U
    linear: Array
    square: Array  # positive semidefinite
    total: Array  # of shape (N,): sum of the answers' messages, where w is 0
    classes: Array | None = None  # of each message, where there are several

    def penalty(self, w: Array) -> float:
        """The model of the regularisers, 0 at the answers."""
        return float(self.linear @ w) + 0.5 * float(w @ self.square @ w)

    def at(self, w: Array, intercept: Any, engine: Engine) -> FacePoint:
        """The point of the face with coefficients ``w`` and an intercept, its value not yet known."""
        n_classes = len(self.total) // max(1, self.messages.shape[1])
        return FacePoint(
            w, intercept, self.total + combined(w, self.messages, self.classes, n_classes, engine)
        )


def minimise_on_face(
    problem: Problem,
    model: FaceModel,
    starts: list[FacePoint],
    tolerance: float,
    reach: float,
    engine: Engine,
) -> FacePoint:
    """Newton's method from the best of some points. Scaling: tolerance summed scaling."""
    loss, y, weight = problem.loss, problem.y, problem.weight
    k, n = len(model.linear), problem.n_samples
    gradient = np.empty(problem.message_size)

    def loss_parts(point: FacePoint) -> list[Any]:
        z = problem.offset + lifted(point.intercept, n) + point.total
        return loss.value_parts(z, y, weight, gradient, engine)

    def value(point: FacePoint, summed: float) -> float:
        found = float(summed) + model.penalty(point.w)
        return found if math.isfinite(found) else math.inf

    for point, summed in zip(starts, engine.together(*map(loss_parts, starts))):
        point.value = value(point, summed)
    current = min(starts, key=lambda point: point.value)
    loss_parts(current)  # its gradient
    ridge, kept, promised = RIDGE, None, math.inf
    for _ in range(_MAX_STEPS):
        if kept is None:
            z = problem.offset + lifted(current.intercept, n) + current.total
            slope, hessian = loss_system(problem, model.messages, model.classes, None, gradient, z, engine)
            hessian[:k, :k] += model.square
            if problem.fit_intercept and not hessian[-1, -1] > 0.0:
                hessian[-1, -1] = problem.total_weight  # saturated losses have no curvature left
            solve = Secant(descent_solver(hessian, ridge))
        else:
            slope = _slope(problem, model, gradient, engine)
        slope[:k] += model.linear + model.square @ current.w
        if kept is not None:
            solve.learn(kept[0], slope - kept[1])
        step = -solve(slope)
        size = float(np.linalg.norm(step[:k]))
        if size > reach:
            step *= reach / size
        decrease = -float(slope @ step)
        if kept is not None and not 0.0 < decrease <= _CLOSING_IN * promised:
            kept, promised = None, math.inf
            continue
        if not (decrease > 0.0 and math.isfinite(decrease)):
            break
        trial = model.at(current.w + step[:k], current.intercept + rise_of(step, k), engine)
        trial.value = value(trial, *engine.together(loss_parts(trial)))
        at_rounding = decrease <= ROUNDING * abs(current.value)
        if at_rounding and trial.value <= current.value + ROUNDING * abs(current.value):
            return trial
        if not trial.value <= current.value - 1e-4 * decrease:
            length = _length(problem, model, current, trial, decrease, engine)
            step *= length
            trial = model.at(current.w + step[:k], current.intercept + rise_of(step, k), engine)
            trial.value = value(trial, *engine.together(loss_parts(trial)))
        if not trial.value < current.value:
            if not (decrease > tolerance and ridge < _MOST_RIDGE):
                break
            if kept is None:
                ridge *= _MORE_RIDGE
            kept = None
            loss_parts(current)  # its gradient
            continue
        current, ridge = trial, max(RIDGE, ridge / _MORE_RIDGE)
        if 0.5 * decrease <= tolerance:
            break
        kept, promised = (None if model.classes is None else (step, slope)), decrease
    return current


def _slope(problem: Problem, model: FaceModel, gradient: Array, engine: Engine) -> Array:
    """Of the loss, in coefficients and intercepts."""
    slope = products_with(model.messages, gradient, model.classes, engine)
    rows = gradient.reshape(problem.n_outputs, -1)
    return np.append(slope, engine.total(rows)) if problem.fit_intercept else slope


def _length(
    problem: Problem, model: FaceModel, start: FacePoint, end: FacePoint, decrease: float, engine: Engine
) -> float:
    """Length between 0 and 1 of least value along a direction of descent, by ``decrease`` at first."""
    n = problem.n_samples
    base, along = problem.offset + lifted(start.intercept, n) + start.total, end.total - start.total
    along += lifted(end.intercept - start.intercept, n)
    step = end.w - start.w
    linear = float(model.linear @ step) + float(start.w @ model.square @ step)
    square = float(step @ model.square @ step)
    enough = 0.0 if model.classes is None else SHALLOW * decrease
    return best_length(problem, base, along, linear, square, engine, enough=enough)

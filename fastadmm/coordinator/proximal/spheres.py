r"""Newton's method where parties' weights lie in balls: from tangent planes back to the spheres.

Directions are known by their inner products, so that the coordinator sees how long a party's weights are.
Where the slope presses against a sphere, with a multiplier :math:`\nu = -\langle g, w\rangle / \|w\|^2 > 0`,
Newton's method goes along the tangent plane, and :math:`\nu` adds to the curvature; its end is shortened to
the sphere, and the next plane touches there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from fastadmm.coordinator.proximal.face_newton import ROUNDING, FaceModel, FacePoint, minimise_on_face
from fastadmm.coordinator.proximal.parts import lifted, products_with
from fastadmm.engine.engine import Engine
from fastadmm.parties.xupdate.face_step import ON_SPHERE
from fastadmm.problem.problem import Problem

Array = np.ndarray

#: Shorter ones, as a share of the radius, go straight ahead, and are shortened.
_NEAR = 0.5

_MAX_PLANES, _MAX_HALVINGS = 10, 20


@dataclass(frozen=True)
class Sphere:
    """The end of one party's ball. Shapes: at, origin (k,); products (k, k)."""

    at: Array  # of shape (k,): its coefficients' numbers
    products: Array  # of shape (k, k): inner products of what these are the coefficients of
    radius: float
    origin: Array  # of shape (k,): of the point whose coefficients are zero

    def own(self, w: Array) -> Array:
        """The party's part of coefficients of shape (K,), counted from weights of zero."""
        return w[self.at] + self.origin

    def length(self, w: Array) -> float:
        """Euclidean norm of the party's weights at coefficients of shape (K,)."""
        own = self.own(w)
        return math.sqrt(max(float(own @ self.products @ own), 0.0))


def minimise_in_balls(
    problem: Problem,
    model: FaceModel,
    spheres: list[Sphere],
    starts: list[FacePoint],
    tolerance: float,
    reach: float,
    engine: Engine,
) -> FacePoint:
    """Newton's method over a face from the best of some points, which are shortened into the balls."""
    if not spheres:
        return minimise_on_face(problem, model, starts, tolerance, reach, engine)

    def at(w: Array, intercept: Any) -> FacePoint:
        point = model.at(_shortened(w, spheres), intercept, engine)
        value = _loss(problem, point, engine)[0] + model.penalty(point.w)
        point.value = value if math.isfinite(value) else math.inf
        return point

    current = min((at(start.w, start.intercept) for start in starts), key=lambda point: point.value)
    for _ in range(_MAX_PLANES):
        end, intercept = _along_planes(problem, model, spheres, current, tolerance, reach, engine)
        length, best = 1.0, current
        for _ in range(_MAX_HALVINGS):
            rise = length * (intercept - current.intercept)
            best = at(
                end if length == 1.0 else current.w + length * (end - current.w), current.intercept + rise
            )
            if best.value < current.value + (ROUNDING * abs(current.value) if length == 1.0 else 0.0):
                break
            length *= 0.5
        else:
            break
        fell, current = current.value - best.value, best
        if fell <= tolerance:
            break
    return current


def _shortened(w: Array, spheres: list[Sphere]) -> Array:
    """Coefficients of shape (K,), those of weights outside their ball scaled onto its sphere."""
    w = w.copy()
    for sphere in spheres:
        length = sphere.length(w)
        if length > sphere.radius:
            w[sphere.at] -= (1.0 - sphere.radius / length) * sphere.own(w)
    return w


def _loss(problem: Problem, point: FacePoint, engine: Engine) -> tuple[float, Array]:
    """Loss and its gradient at a point."""
    gradient = np.empty(problem.message_size)
    z = problem.offset + lifted(point.intercept, problem.n_samples) + point.total
    return problem.loss.evaluate(z, problem.y, problem.weight, gradient, engine), gradient


def _along_planes(
    problem: Problem,
    model: FaceModel,
    spheres: list[Sphere],
    start: FacePoint,
    tolerance: float,
    reach: float,
    engine: Engine,
) -> tuple[Array, Any]:
    """Where Newton's method comes to on the planes that touch spheres, and the intercept there."""
    w = start.w
    gradient = _loss(problem, start, engine)[1]
    slope = products_with(model.messages, gradient, model.classes, engine)
    slope += model.linear + model.square @ w
    pressing = []
    for sphere in spheres:
        length = sphere.length(w)
        pressure = -float(slope[sphere.at] @ sphere.own(w)) / length**2 if length > 0.0 else 0.0
        if pressure > 0.0 and length >= _NEAR * sphere.radius:
            pressing.append((sphere, pressure))
    held = [sphere.length(w) >= sphere.radius * (1.0 - ON_SPHERE) for sphere, _ in pressing]
    while True:
        touched = [one for one, yes in zip(pressing, held) if yes]
        reached, intercept = _on_planes(problem, model, touched, start, tolerance, reach, engine)
        leaving = [
            not yes and sphere.length(reached) > sphere.radius for (sphere, _), yes in zip(pressing, held)
        ]
        if not any(leaving):
            return reached, intercept
        held = [yes or more for yes, more in zip(held, leaving)]


def _on_planes(
    problem: Problem,
    model: FaceModel,
    touched: list[tuple[Sphere, float]],
    start: FacePoint,
    tolerance: float,
    reach: float,
    engine: Engine,
) -> tuple[Array, Any]:
    """The least value on the planes that touch some spheres, each with its multiplier."""
    if not touched:
        found = minimise_on_face(problem, model, [start], tolerance, reach, engine)
        return found.w, found.intercept
    out, q, square = _planes(model, start.w, touched)
    base = model.at(start.w + out, start.intercept, engine)
    plane = FaceModel(
        engine.combine(q.T, model.messages),
        q.T @ (model.linear + model.square @ base.w),
        q.T @ square @ q,
        base.total,
        None if model.classes is None else model.classes[np.argmax(q != 0.0, axis=0)],
    )
    zero = plane.at(np.zeros(q.shape[1]), start.intercept, engine)
    found = minimise_on_face(problem, plane, [zero], tolerance, reach, engine)
    return base.w + q @ found.w, found.intercept


def _planes(model: FaceModel, w: Array, held: list[tuple[Sphere, float]]) -> tuple[Array, Array, Array]:
    """The way to the planes that touch spheres, orthonormal columns along them, and the curvature there."""
    k = len(model.linear)
    out, square, columns = np.zeros(k), model.square.copy(), np.eye(k)
    gone = []
    for sphere, pressure in held:
        own, length = sphere.own(w), sphere.length(w)
        out[sphere.at] = own * max(0.5 * ((sphere.radius / length) ** 2 - 1.0), 0.0)
        square[np.ix_(sphere.at, sphere.at)] += pressure * sphere.products
        normal = (sphere.products @ own)[:, None]
        columns[np.ix_(sphere.at, sphere.at)] = scipy.linalg.qr(normal)[0]
        gone.append(sphere.at[0])
    return out, np.delete(columns, gone, axis=1), square

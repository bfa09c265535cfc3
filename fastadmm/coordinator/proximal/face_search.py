r"""Where to take the next gradient: Newton's method over faces, whose kinks and bounds the parties report.

A face is described by its party (:class:`fastadmm.parties.direction_span.ActiveSet`). Newton's method over
all parties' faces may end where a weight has passed its kink or bound; only parties see that. So the end is a
proposal: kinks on the way show in the line search of the next round, and answers there have other faces.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from fastadmm.conversation.exchange import Answers
from fastadmm.coordinator.proximal.chord_newton import (
    RIDGE,
    Passes,
    Place,
    SharedFace,
    minimise_on_shared_face,
    passes_over,
)
from fastadmm.coordinator.proximal.newton_system import newton_system
from fastadmm.coordinator.proximal.parts import HullPoint, loss_at, predictor
from fastadmm.engine.singular import descent_solver
from fastadmm.parties.direction_span import sum_without_rounding
from fastadmm.problem.problem import Problem

Array = np.ndarray

#: A Newton step is at most so many times as long as model and answers.
_REACH = 1e4

#: Share of the objective below which a promise is lost in its rounding.
_FLAT = 1e-13

#: Steps along planes, halvings of one, and how far off a sphere weights may be to move along its plane.
_MAX_PLANES, _MAX_HALVINGS, _NEAR = 30, 20, 1e-3

#: Steps that repair a gradient, the later ones for the rounding of the first.
_REPAIRS = 3

#: What a proposal leaves of the slope at the model, at most, where only the slope can tell.
_LESS_STEEP = 0.25


@dataclass(frozen=True)
class Found:
    """A proposal."""

    point: HullPoint  # coefficients of directions
    promised: float
    place: Place | None = None  # the point's, where the loss was taken there


class FaceSearch:
    """Searches from one set of faces, with what the rounds of the coordinator hold."""

    def __init__(self, rounds: Any, faces: Answers, value: float, stiffness: float) -> None:
        self.problem, self.shared, self.engine = rounds.solved, rounds.shared, rounds.engine
        self.model, self.value, self.tolerance = rounds.model, value, rounds.tolerance(value)
        problem, shared, model, shares = self.problem, self.shared, self.model, rounds.shares
        self.numbers, self.bases = [shared.of(m) for m in range(len(faces))], [f["basis"] for f in faces]
        self.reached, self.intercept = model.coefficients, model.intercept
        self._end: tuple[Array, Place] | None = None  # what is known of the end reached
        k = len(shared)
        # The regularisers' second-order model, and what is added to it to keep steps short.
        self.slope, self.bend = np.zeros(k), np.zeros((k, k))
        self.linear, self.square = np.zeros(k), np.zeros((k, k))
        self._added = 0.0  # what is added at zero
        self.anchor, self.basis = np.zeros(k), np.zeros((k, sum(own.shape[1] for own in self.bases)))
        self.radii: dict[int, float] = {}
        begin = 0
        for m, face in enumerate(faces):
            mine, (first, second) = self.numbers[m], shares[m]
            end = begin + face["basis"].shape[1]
            self.basis[mine, begin:end], begin = face["basis"], end
            own = second * shared.products[np.ix_(mine, mine)]
            if "curvature" in face:
                own = own + first * face["curvature"]
            added, anchor = first * stiffness * face["stiffness"], face["coefficients"]
            self.anchor[mine] = anchor
            self.slope[mine], self.bend[np.ix_(mine, mine)] = first * face["slope"], own
            self.square[np.ix_(mine, mine)] = own + added
            self.linear[mine] = first * face["slope"] - added @ anchor
            self._added += 0.5 * float(anchor @ added @ anchor)
            radius = problem.party_constraints[m // problem.n_outputs].radius
            if math.isfinite(radius):
                self.radii[m] = radius
        sizes = (model.coefficients, np.concatenate([face["coefficients"] for face in faces]))
        # Sets have no parabolas that could keep steps short where the loss bends down.
        reach = _REACH if problem.loss.convex else 1.0 / max(stiffness, 1.0 / _REACH)
        self._reach = reach * max(float(np.linalg.norm(c)) for c in sizes)

    def advance(self) -> bool:
        """Newton's method over the current faces, from the model to ``reached``; False without freedom."""
        q, anchor, square = self.basis, self.anchor, self.square
        if q.shape[1] == 0:
            return False
        passes = passes_over(self.problem, self.shared, self.engine)
        near, model = self._end, self.model.coefficients
        if near is None or not (near[1].known or passes.quadratic):
            near = model, passes.at(self.model)
        # The faces' directions, with the regularisers' model.
        own = float(self.linear @ anchor) + 0.5 * float(anchor @ square @ anchor)
        linear = (self.linear + square @ anchor) @ q
        face = SharedFace(anchor, q, linear, q.T @ square @ q, self.value - self._added - own)
        start = (model - anchor) @ q
        w, place = minimise_on_shared_face(passes, face, start, near, self.tolerance, self._reach)
        reached = sum_without_rounding(anchor, q, w)
        if self._outside(reached):
            ends = [anchor, sum_without_rounding(anchor, q, start), reached]
            reached, place = self._in_balls(passes, q, ends, self.intercept)
        self.reached, self.intercept, self._end = reached, place.intercept, (reached, place)
        return True

    def _in_balls(self, passes: Passes, q: Array, starts: list[Array], intercept: Any) -> tuple[Array, Place]:
        r"""Newton's method in the parties' balls, from the best of some points of the faces.

        Weights on a sphere that the slope presses against move along its tangent plane; their multiplier
        :math:`\nu = -\langle g, x\rangle / \|x\|^2` adds to the curvature. Ends are shortened into the balls.
        """
        points = [(c, passes.there(c, intercept)) for c in (self._shortened(start) for start in starts)]
        c, place = min(points, key=lambda point: self._value_at(*point))
        for _ in range(_MAX_PLANES):
            if passes.quadratic:
                passes.prepare(place)
            else:
                passes.refresh(place)
            step = self._along_planes(passes, q, c, place)
            size, before = float(np.linalg.norm(step)), self._value_at(c, place)
            step *= min(1.0, self._reach / size) if size > 0.0 else 0.0
            for _ in range(_MAX_HALVINGS):
                trial = self._shortened(c + q @ step[passes.lead :])
                there = passes.there(trial, place.intercept + passes.rise_of(step[: passes.lead]))
                if self._value_at(trial, there) < before:
                    break
                step *= 0.5
            else:
                break
            c, place = trial, there
            if before - self._value_at(c, place) <= self.tolerance:
                break
        return c, place

    def _along_planes(self, passes: Passes, q: Array, c: Array, place: Place) -> Array:
        """The Newton step in intercepts and the faces' directions on planes that touch pressed spheres."""
        slope, square = place.products + self.linear + self.square @ c, self.square.copy()
        planes, off = [], []
        for m, radius in self.radii.items():
            mine, own = self.numbers[m], self._pull(m, c)
            length, pressure = math.sqrt(max(float(own @ c), 0.0)), -float(slope[mine] @ c[mine])
            if pressure > 0.0 and length >= radius * (1.0 - _NEAR):
                square[np.ix_(mine, mine)] += pressure / length**2 * self.shared.products[np.ix_(mine, mine)]
                planes.append(np.append(np.zeros(passes.lead), own @ q))
                off.append(0.5 * (radius**2 - length**2))
        system = passes.system(q)
        system[passes.lead :, passes.lead :] += q.T @ square @ q
        solve = descent_solver(system, RIDGE)
        step = -solve(np.append(place.rises, slope @ q))
        if planes:
            normals = np.array([solve(plane) for plane in planes])
            across = np.array(planes)
            step -= np.linalg.lstsq(across @ normals.T, across @ step - off, rcond=None)[0] @ normals
        return step

    def _shortened(self, c: Array) -> Array:
        """Coefficients of shape (K,), those of weights outside their ball scaled onto its sphere."""
        c = c.copy()
        for m, excess in self._outside(c).items():
            c[self.numbers[m]] /= excess
        return c

    def _value_at(self, c: Array, place: Place) -> float:
        """The model's value at coefficients of shape (K,), but for a constant."""
        value = place.loss + float(self.linear @ c) + 0.5 * float(c @ self.square @ c)
        return value if math.isfinite(value) else math.inf

    def _pull(self, m: int, c: Array) -> Array:
        """Half the slope of the squared norm of party m's weights, in coefficients of shape (K,)."""
        mine, found = self.numbers[m], np.zeros(len(c))
        found[mine] = self.shared.products[np.ix_(mine, mine)] @ c[mine]
        return found

    def _outside(self, c: Array) -> dict[int, float]:
        """Parties whose weights are outside their ball, and how many times its radius they are long."""
        lengths = {m: math.sqrt(max(float(self._pull(m, c) @ c), 0.0)) for m in self.radii}
        return {m: length / self.radii[m] for m, length in lengths.items() if length > self.radii[m]}

    def know(self, problem: Problem, value: float, tolerance: Callable[[float], float]) -> None:
        """Take in what became known since the search began: the loss's smoothing, and the model's value."""
        if problem.loss != self.problem.loss:
            self._end = None
        self.problem, self.value, self.tolerance = problem, value, tolerance(value)

    def found(self) -> Found | None:
        """The end reached, as a proposal; None where it would not be better than the model."""
        c, intercept = self.reached, self.intercept
        problem, shared = self.problem, self.shared
        place = self._end[1] if self._end is not None and self._end[1].known else None
        if place is not None:
            loss, point = place.loss, HullPoint(c, intercept, place.total)
        else:
            point = HullPoint(c, intercept, shared.combined(c))
            loss = loss_at(problem, point, np.empty_like(point.total), self.engine)
        promised = self.value - loss - float(self.slope @ c) - 0.5 * float(c @ self.bend @ c)
        if abs(promised) <= _FLAT * abs(self.value):
            # A gap is linear in the slope where nothing but a norm bounds the weights, and can be far
            # above what the objective resolves: its square.
            less = self._steepness(point) <= _LESS_STEEP * self._steepness(self.model)
            return Found(point, 0.0, place) if less else None
        return Found(point, promised, place) if promised > 0.0 else None

    def repaired(self, point: HullPoint, gradient: Array) -> Array | None:
        r"""A dual vector where the objective resolves no step on the faces any more.

        What is left of the slope there may be the rounding of predictors, times their curvature and columns:
        a dual vector need not have it. Newton's step takes it away from the gradient itself,
        :math:`g + H \sum_k s_k v_k`, and no predictor is formed.

        Returns: None where a step still gains something, or there is no freedom.
        Shapes: gradient, the result (N,).
        """
        problem, q, messages, engine = self.problem, self.basis, self.shared.messages, self.engine
        k, extra = q.shape[1], int(problem.fit_intercept)
        if k == 0 or problem.n_outputs > 1:
            return None
        z, chosen = predictor(problem, point, engine), scipy.linalg.block_diag(q, np.eye(extra))
        h = problem.loss.curvature(z, problem.y, problem.weight, np.empty(len(z)), engine)
        slope, bend = q.T @ (self.slope + self.bend @ point.coefficients), q.T @ self.bend @ q
        for _ in range(_REPAIRS):
            whole, system = newton_system(messages, gradient, h, extra, engine)
            whole, system = chosen.T @ whole, chosen.T @ system @ chosen
            whole[:k] += slope
            system[:k, :k] += bend
            step = -descent_solver(system, RIDGE)(whole)
            if not abs(float(whole @ step)) <= _FLAT * abs(self.value):
                return None
            gradient = gradient + h * (engine.combine(q @ step[:k], messages) + float(step[k:].sum()))
            slope = slope + bend @ step[:k]
        return gradient

    def _steepness(self, point: HullPoint) -> float:
        """Size of the objective's slope along the current faces."""
        gradient = np.empty_like(point.total)
        loss_at(self.problem, point, gradient, self.engine)
        slope = self.shared.products_with(gradient) + self.slope + self.bend @ point.coefficients
        parts = [basis.T @ slope[mine] for basis, mine in zip(self.bases, self.numbers)]
        return float(np.linalg.norm(np.concatenate(parts)))

r"""Where to take the next gradient: Newton's method over faces, with the parties' word on what it meets.

A face is described by its party (:class:`fastadmm.parties.active_set.Face`). Newton's method over all
parties' faces may end where a weight has passed its kink or bound; only parties see that. So the
coordinator sends coefficients and the parties answer with the combinations that hold such weights
where they are, a few times; no message goes either way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from fastadmm.coordinator.proximal.face_newton import FaceModel, FacePoint, minimise_on_face
from fastadmm.coordinator.proximal.hull import HullPoint
from fastadmm.coordinator.proximal.shared_directions import SharedDirections
from fastadmm.engine.engine import Engine
from fastadmm.parties.active_set import Face
from fastadmm.parties.direction_span import sum_without_rounding
from fastadmm.parties.face import FaceParty
from fastadmm.problem.problem import Problem

__all__ = ["FaceSearch", "Found"]

Array = np.ndarray

#: How often parties hold weights that a proposal would take through a kink or bound.
_MOST_HOLDS = 20

#: A Newton step is at most so many times as long as model and answers.
_REACH = 1e4

#: Share of the objective below which a promise is lost in its rounding.
_FLAT = 1e-13

#: What a proposal leaves of the slope at the model, at most, where only the slope can tell.
_LESS_STEEP = 0.25


@dataclass(frozen=True)
class Found:
    """A proposal.

    Attributes
    ----------
    point : HullPoint
        Coefficients of directions.
    promised : float
        How much lower than at the model the objective is to be there; 0 where that is lost in rounding,
        and the slope on the face has fallen instead.
    exact : bool
        Whether no weight has passed a kink or bound: then the promise is exact but for a bent norm.
    """

    point: HullPoint
    promised: float
    exact: bool


class FaceSearch:
    """Searches from one set of faces.

    Parameters
    ----------
    problem : Problem
        With a smooth loss.
    shared : SharedDirections
    parties : sequence of FaceParty
    faces : sequence of Face
        One of each party, its last.
    shares : ndarray of shape (M, 2)
        Factors of the norm and of half the square of each party's regulariser.
    model : HullPoint
        The current model.
    value : float
        The objective there.
    stiffness : float
        Share of the faces' stiffness that is added.
    tolerance : float
        Of Newton's method, summed scaling.
    engine : Engine
    """

    def __init__(
        self,
        problem: Problem,
        shared: SharedDirections,
        parties: Sequence[FaceParty],
        faces: Sequence[Face],
        shares: Array,
        model: HullPoint,
        value: float,
        stiffness: float,
        tolerance: float,
        engine: Engine,
    ) -> None:
        self.problem, self.shared, self.parties, self.engine = problem, shared, parties, engine
        self.model, self.value, self.tolerance = model, value, tolerance
        self.numbers = [shared.of(m) for m in range(len(parties))]
        self._order = np.argsort(np.concatenate(self.numbers))
        self.anchors, self.bases = [face.anchor for face in faces], [face.basis for face in faces]
        self._starts = list(self.anchors)
        k = len(shared)
        # The regularisers' second-order model, and what is added to it to keep steps short.
        self.slope, self.bend = np.zeros(k), np.zeros((k, k))
        self.linear, self.square = np.zeros(k), np.zeros((k, k))
        self.radii: dict[int, float] = {}
        for m, face in enumerate(faces):
            mine, (first, second) = self.numbers[m], shares[m]
            own = second * shared.products[np.ix_(mine, mine)]
            if face.curvature is not None:
                own = own + first * face.curvature
            added = first * stiffness * face.stiffness
            self.slope[mine], self.bend[np.ix_(mine, mine)] = first * face.slope, own
            self.square[np.ix_(mine, mine)] = own + added
            self.linear[mine] = first * face.slope - added @ face.anchor
            self._on_sphere(m, face.multiplier)
        sizes = (model.coefficients, np.concatenate(self.anchors))
        self._reach = _REACH * max(float(np.linalg.norm(c)) for c in sizes)

    def _on_sphere(self, m: int, multiplier: float) -> None:
        """Keep party m's anchor on the sphere, which is as curved as its multiplier says."""
        if multiplier > 0.0:
            these = np.ix_(self.numbers[m], self.numbers[m])
            pull = self.shared.products[these] @ self.anchors[m]
            self.radii[m] = float(self.anchors[m] @ pull)
            self.square[these] += multiplier * self.shared.products[these]
            self.linear[self.numbers[m]] -= multiplier * pull

    def _minimise(
        self, anchor: Array, starts: Sequence[Array], intercept: float
    ) -> tuple[Array, float] | None:
        """Newton's method over the current faces: coefficients and intercept; None without any freedom."""
        q = scipy.linalg.block_diag(*self.bases)[self._order]
        if q.shape[1] == 0:
            return None
        shared = self.shared
        messages = np.vstack(
            [basis.T @ shared.messages[mine] for basis, mine in zip(self.bases, self.numbers)]
        )
        model = FaceModel(
            messages,
            (self.linear + self.square @ anchor) @ q,
            q.T @ self.square @ q,
            anchor @ shared.messages,
        )
        points: list[FacePoint] = [model.at((start - anchor) @ q, intercept) for start in starts]
        found = minimise_on_face(self.problem, model, points, self.tolerance, self._reach, self.engine)
        return sum_without_rounding(anchor, q, found.w), found.intercept

    def _joined(self, parts: Sequence[Array]) -> Array:
        return np.concatenate(parts)[self._order]

    def _first_crossing(self, starts: Sequence[Array], end: Array) -> float:
        parties, numbers = self.parties, self.numbers
        return min(
            self.engine.map(
                lambda m: parties[m].first_crossing(starts[m], end[numbers[m]]), range(len(parties))
            )
        )

    def follow(self) -> Found | None:
        """To the least value on the faces, weights that would pass a kink or bound held there.

        Returns
        -------
        Found or None
            None where it would not be better than the model.
        """
        c, intercept, reached = self.model.coefficients, self.model.intercept, None
        for _ in range(_MOST_HOLDS):
            anchor = self._joined(self.anchors)
            found = self._minimise(anchor, [anchor, c, self.model.coefficients], intercept)
            if found is None:
                break
            c, reached = found
            ends = [c[mine] for mine in self.numbers]
            held = self._hold_crossed(ends)
            if all(h is None for h in held):
                break
            for m, h in enumerate(held):
                if h is not None:
                    self.anchors[m], self.bases[m] = h
        return (
            None
            if reached is None
            else self._found(c, reached, math.isinf(self._first_crossing(self._starts, c)))
        )

    def _hold_crossed(self, ends: Sequence[Array]) -> list[tuple[Array, Array] | None]:
        parties = self.parties
        return self.engine.map(lambda m: parties[m].hold_crossed(ends[m]), range(len(parties)))

    def descend(self) -> Found | None:
        """The same from faces of the model, never higher: to the first kink or bound, and on from there.

        Returns
        -------
        Found or None
            As in :meth:`follow`.
        """
        c, intercept, moved = self.model.coefficients, self.model.intercept, False
        for _ in range(_MOST_HOLDS):
            anchor = self._joined(self.anchors)
            found = self._minimise(anchor, [anchor], intercept)
            if found is None:
                break
            end, moved = found[0], True
            at = self._first_crossing(self.anchors, end)
            length = min(at, 1.0)
            c = sum_without_rounding(anchor, (end - anchor)[:, None], np.array([length]))
            intercept += length * (found[1] - intercept)
            if at >= 1.0:
                break
            self._hold_met(end, at, c)
        return self._found(c, intercept, exact=True) if moved else None

    def _hold_met(self, end: Array, at: float, c: Array) -> None:
        parties, numbers, starts = self.parties, self.numbers, self.anchors
        met = self.engine.map(
            lambda m: parties[m].hold_met(starts[m], end[numbers[m]], at), range(len(parties))
        )
        self.anchors, self.bases = [c[mine] for mine in numbers], [basis for basis, _ in met]
        for m, (_, multiplier) in enumerate(met):
            self._on_sphere(m, multiplier)

    def _found(self, c: Array, intercept: float, exact: bool) -> Found | None:
        problem, shared = self.problem, self.shared
        for m, radius in self.radii.items():  # from the tangent back to the sphere
            mine = self.numbers[m]
            size = float(c[mine] @ shared.products[np.ix_(mine, mine)] @ c[mine])
            if size > radius:
                c[mine] *= math.sqrt(radius / size)
        point = HullPoint(c, intercept, c @ shared.messages)
        z = problem.offset + intercept + point.total
        loss = problem.loss.evaluate(z, problem.y, problem.weight, np.empty_like(z), self.engine)
        promised = self.value - loss - float(self.slope @ c) - 0.5 * float(c @ self.bend @ c)
        if abs(promised) <= _FLAT * abs(self.value):
            # A gap is linear in the slope where nothing but a norm bounds the weights, and can be far
            # above what the objective resolves: its square.
            less = self._steepness(point) <= _LESS_STEEP * self._steepness(self.model)
            return Found(point, 0.0, exact) if less else None
        return Found(point, promised, exact) if promised > 0.0 else None

    def _steepness(self, point: HullPoint) -> float:
        """Size of the objective's slope along the current faces."""
        problem, shared, gradient = self.problem, self.shared, np.empty_like(point.total)
        z = problem.offset + point.intercept + point.total
        problem.loss.evaluate(z, problem.y, problem.weight, gradient, self.engine)
        slope = shared.messages @ gradient + self.slope + self.bend @ point.coefficients
        parts = [basis.T @ slope[mine] for basis, mine in zip(self.bases, self.numbers)]
        return float(np.linalg.norm(np.concatenate(parts)))

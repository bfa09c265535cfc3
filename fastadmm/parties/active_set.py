r"""Weights that are held at kinks and bounds, and the combinations of directions that keep them there.

The regulariser is smooth on the *face* of a point: its zeros, the signs of the others, its bounds. What a
combination of directions meets on the way, only the party can see; it answers in coefficients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from fastadmm.engine.singular import least_squares, singular
from fastadmm.parties.direction_span import ROUNDING, DirectionSpan, sum_without_rounding

Array = np.ndarray

#: Combinations of directions that keep zeros and bounds to this share are said to keep them.
_KEPT = 1e-11

#: Positions that differ by this share are the same.
_SAME_POSITION = 1e-9


@dataclass(frozen=True)
class Face:
    r"""Where the regulariser is smooth around a point, in coefficients of directions.

    Shapes: anchor, slope (K,); curvature, stiffness (K, K).
    """

    anchor: Array  # of shape (K,): a point of the face
    basis: Array
    slope: Array  # of shape (K,): :math:`\langle\nabla\Omega, d_k\rangle`
    curvature: Array | None  # of shape (K, K)
    stiffness: Array  # of shape (K, K)

    def values(self) -> dict[str, Any]:
        """All but the anchor, which the question names, as a party answers them."""
        own = {"basis": self.basis, "slope": self.slope, "stiffness": self.stiffness}
        return own if self.curvature is None else {**own, "curvature": self.curvature}

    @classmethod
    def read(cls, anchor: Array, answer: Mapping[str, Any]) -> Face:
        """Inverse of :meth:`values`."""
        return cls(anchor, answer["basis"], answer["slope"], answer.get("curvature"), answer["stiffness"])


@dataclass(frozen=True)
class Held:
    """What the face becomes where weights that would pass their kink or bound are held there.

    Shapes: anchor (K,).
    """

    active: ActiveSet
    anchor: Array  # of shape (K,): the nearest combination with the held weights at their kinks and bounds
    basis: Array  # combinations that keep it so


@dataclass(frozen=True)
class ActiveSet:
    """Which weights are held, and to which side the others are. Shapes: signs, held, goal (d,)."""

    span: DirectionSpan
    signs: Array  # of shape (d,): a point of the face: its signs are those of the weights that are not held
    held: Array  # of shape (d,)
    goal: Array  # of shape (d,): where they are held

    @classmethod
    def of(cls, span: DirectionSpan, anchor: Array, signs: Array, held: Array) -> ActiveSet:
        """Weights held where those of the anchor are, coefficients of shape (K,)."""
        return cls(span, signs, held, span.weights(anchor))

    def face(self, anchor: Array) -> Face:
        """For the coordinator."""
        regularizer, directions = self.span.penalty.regularizer, self.span.directions
        slope, curvature = regularizer.bending(self.signs, directions)
        loose = directions * np.sqrt(np.where(self.held, 0.0, regularizer.stiffness(self.signs)))
        return Face(anchor, self.basis, slope, None if regularizer.separable else curvature, loose @ loose.T)

    @property
    def basis(self) -> Array:
        """Orthonormal columns, shape (K, K'): combinations that vanish at held weights."""
        return self._kept[0]

    @cached_property
    def _kept(self) -> tuple[Array, Array, Array]:
        """Singular vectors of the directions' part in held weights: those of nothing first, then the
        others.
        """
        span, held = self.span, self.held
        rows = span.directions[:, held] * span.scale[held]
        if rows.size == 0:
            return np.eye(len(rows)), np.empty((len(rows), 0)), np.empty((0, rows.shape[1]))
        left, sizes, _ = singular(rows, whole=rows.shape[0] > rows.shape[1])
        rank = int((sizes > _KEPT).sum())
        return left[:, rank:], left[:, :rank], left[:, :rank].T @ rows

    def first_crossing(self, start: Array, end: Array) -> float:
        """Where the segment between two points of the face first meets a kink or bound.

        Not where it leaves a ball: the coordinator knows how long weights are.

        Returns: infinite where it meets none up to the end, which is at 1.
        Shapes: start, end (K,).
        """
        first = float(self._crossings(start, end).min(initial=np.inf))
        return first if first < 1.0 else np.inf

    def _crossings(self, start: Array, end: Array) -> Array:
        """Per weight that is not held: where it meets a kink or bound."""
        penalty = self.span.penalty
        x, y = self.span.weights(start), self.span.combine(end)
        loose = penalty.held(x)  # let go by the face: its signs say to which side
        at, _ = penalty.crossings(np.where(loose, self.signs, x), y)
        at = np.where(loose & (at < 1.0), 0.0, at)
        return np.where(self.held | (at >= 1.0), np.inf, at)

    def holding_met(self, start: Array, end: Array, at: float) -> ActiveSet:
        """With the weights held that meet their kink or bound up to a position. Shapes: start, end (K,)."""
        span, held = self.span, self.held
        first = self._crossings(start, end)
        met = np.flatnonzero(first <= at * (1.0 + _SAME_POSITION))
        if len(met):
            held = held.copy()
            held[span.penalty.regularizer.together(met, len(first))] = True
        return replace(self, held=held)

    def holding_crossed(self, coefficients: Array) -> Held | None:
        """With the weights held that a point has beyond their kink or bound, as many as possible.

        Returns: None where nothing is to be held.
        Shapes: coefficients (K,).
        """
        span, penalty = self.span, self.span.penalty
        at, value = penalty.crossings(self.signs, span.combine(coefficients))
        crossing = np.flatnonzero((at < 1.0) & ~self.held)
        free = self.basis.shape[1]
        if len(crossing) == 0 or free == 0:
            return None
        goal = np.where(self.held, self.goal, value)
        for n in (len(crossing), max(1, free // 2), 1):
            held = self.held.copy()
            first = crossing[np.argsort(at[crossing], kind="stable")[:n]]
            held[penalty.regularizer.together(first, len(held))] = True
            more = replace(self, held=held, goal=goal)
            basis, others, images = more._kept
            wanted = goal[held] * span.scale[held]
            missing = wanted - (coefficients @ span.directions[:, held]) * span.scale[held]
            move = least_squares(images.T, missing)
            left = float(np.abs(images.T @ move - missing).max())
            if left <= ROUNDING * max(float(np.abs(wanted).max()), float(np.abs(missing).max())):
                return Held(more, sum_without_rounding(coefficients, others, move), basis)
        return None

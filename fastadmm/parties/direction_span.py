r"""The directions that a party of a proximal Newton run has sent, and weights as combinations of them.

Sums of directions are zero at a held weight up to rounding only, and bounds are met up to rounding
only: here such weights become exactly what they are to be.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fastadmm.conversation.answering import Unanswerable
from fastadmm.engine.singular import singular
from fastadmm.problem.constraints import INDEPENDENT
from fastadmm.problem.penalty import PartyPenalty

Array = np.ndarray

#: The part of weights outside the span of earlier directions counts as new above this share of them.
_NOTHING_NEW = 1e-13

#: The same of a sum of terms that are rounded themselves: a position on a segment is a quotient of sums.
_LAST_DIGITS = 1e-14

#: Columns contribute less than this share of all contributions together by rounding alone.
_LAST_DIGIT = 1e-16


def sum_without_rounding(start: Array, columns: Array, factors: Array) -> Array:
    """``start + columns @ factors``, zero where only rounding is left.

    Relative to such a rest nothing would be rounding any more, and weights that are to be zero would not be.

    Shapes: start, the result (K,); columns (K, n); factors (n,).
    """
    total = start + columns @ factors
    total[np.abs(total) <= _LAST_DIGITS * (np.abs(start) + np.abs(columns) @ np.abs(factors))] = 0.0
    return total


class OwnDirections:
    """A party that keeps directions."""

    directions: np.ndarray

    def _own(self, coefficients: np.ndarray) -> np.ndarray:
        """Coefficients of shape (K,) or (C, K), of as many directions as there are."""
        if (n := coefficients.shape[-1]) != len(self.directions):
            raise Unanswerable(
                f"{n} coefficients for {len(self.directions)} directions that were sent; "
                "the coordinator's state is another run's"
            )
        return coefficients

    def weights(self, coefficients: np.ndarray) -> np.ndarray:
        """x_m of shape (d,) for this party's coefficients."""
        return coefficients @ self.directions

    def final_weights(self, coefficients: np.ndarray) -> np.ndarray:
        """x_m, of as many coefficients as there are directions."""
        return self.weights(self._own(coefficients))


@dataclass(frozen=True)
class DirectionSpan:
    """All combinations of some directions. Shapes: directions (K, d); scale (d,)."""

    directions: Array  # of shape (K, d): orthonormal when column j is measured in units of 1 / ``scale[j]``
    scale: Array  # of shape (d,): positive
    penalty: PartyPenalty  # whose set the weights are to lie in

    def combine(self, coefficients: Array) -> Array:
        """Weights for coefficients of shape (K,), zero where they are only rounding."""
        x = coefficients @ self.directions
        terms = INDEPENDENT * (np.abs(coefficients) @ np.abs(self.directions))
        # Directions themselves are zero at a held weight up to the rounding of their length only.
        length = _LAST_DIGIT * float(np.linalg.norm(coefficients)) / self.scale
        x[np.abs(x) <= np.maximum(terms, length)] = 0.0
        return x

    def weights(self, coefficients: Array) -> Array:
        """x_m of shape (d,), in the set, for coefficients of shape (K,)."""
        x = self.combine(coefficients)
        low, high = self.penalty.constraint.bounds
        for bound in (low, high):
            if np.isfinite(bound) and bound != 0.0:
                x[np.abs(x - bound) <= INDEPENDENT * abs(bound)] = bound
        return self.penalty.constraint.project(x)

    def coefficients(self, x: Array) -> Array:
        """Of weights in the span, afresh: of none exactly zero, and no rounding adds up."""
        scaled, known = self.scale * x, self.directions * self.scale
        coefficients = known @ scaled
        return coefficients + known @ (scaled - coefficients @ known)

    def new_direction(self, x: Array, near: Array | None = None) -> Array | None:
        """The part of weights outside the directions' span, as one more of them; None if there is none.

        Shapes: x, the result (d,); near (K,).
        """
        known = self.directions * self.scale
        there = 0.0 if near is None else self.combine(near)
        rest = self.scale * (x - there)
        # The difference to other weights may be rounding alone, even where these weights are zero.
        whole = max(float(np.linalg.norm(self.scale * x)), float(np.linalg.norm(rest)))
        for _ in range(2):  # the second for the rounding of the first
            rest = rest - (known @ rest) @ known
        size = float(np.linalg.norm(rest))
        if len(known) >= len(x) or not size > _NOTHING_NEW * whole:
            return None
        direction = rest / size
        direction -= (known @ direction) @ known
        direction /= np.linalg.norm(direction)
        direction /= self.scale
        return direction


@dataclass(frozen=True)
class ActiveSet:
    """Weights held at kinks and bounds, and the combinations of directions that keep them there.

    The regulariser is smooth on the *face* of a point: its zeros, the signs of the others, its bounds. What a
    combination of directions meets on the way, only the party can see; it answers in coefficients.

    Shapes: signs, held (d,).
    """

    span: DirectionSpan
    signs: Array  # of shape (d,): a point of the face: its signs are those of the weights that are not held
    held: Array  # of shape (d,)

    def face(self) -> dict[str, Array]:
        r"""Where the regulariser is smooth around the point, in coefficients of directions.

        ``slope`` is :math:`\langle\nabla\Omega, d_k\rangle`, of shape (K,); ``stiffness``, and ``curvature``
        where there is some, are of shape (K, K).
        """
        regularizer, directions = self.span.penalty.regularizer, self.span.directions
        slope, curvature = regularizer.bending(self.signs, directions)
        loose = directions * np.sqrt(np.where(self.held, 0.0, regularizer.stiffness(self.signs)))
        found = {"basis": self.basis, "slope": slope, "stiffness": loose @ loose.T}
        return found if regularizer.separable else {**found, "curvature": curvature}

    @cached_property
    def basis(self) -> Array:
        """Orthonormal columns, shape (K, K'): combinations that vanish at held weights."""
        rows = self.span.directions[:, self.held] * self.span.scale[self.held]
        if rows.size == 0:
            return np.eye(len(rows))
        left, sizes, _ = singular(rows, whole=rows.shape[0] > rows.shape[1])
        return left[:, int((sizes > INDEPENDENT).sum()) :]

r"""Weights that are held at kinks and bounds, and the combinations of directions that keep them there.

The regulariser is smooth on the *face* of a point: its zeros, the signs of the others, its bounds. What a
combination of directions meets on the way, only the party can see; it answers in coefficients.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fastadmm.engine.singular import singular
from fastadmm.parties.direction_span import DirectionSpan
from fastadmm.problem.constraints import INDEPENDENT

Array = np.ndarray


@dataclass(frozen=True)
class ActiveSet:
    """Which weights are held, and to which side the others are. Shapes: signs, held (d,)."""

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

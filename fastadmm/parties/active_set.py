r"""Weights that are held at kinks and bounds, and the combinations of directions that keep them there.

The regulariser is smooth on the *face* of a point: its zeros, the signs of the others, its bounds. What a
combination of directions meets on the way, only the party can see; it answers in coefficients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from fastadmm.engine.singular import singular
from fastadmm.parties.direction_span import DirectionSpan
from fastadmm.problem.constraints import INDEPENDENT

Array = np.ndarray


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
class ActiveSet:
    """Which weights are held, and to which side the others are. Shapes: signs, held (d,)."""

    span: DirectionSpan
    signs: Array  # of shape (d,): a point of the face: its signs are those of the weights that are not held
    held: Array  # of shape (d,)

    def face(self, anchor: Array) -> Face:
        """For the coordinator."""
        regularizer, directions = self.span.penalty.regularizer, self.span.directions
        slope, curvature = regularizer.bending(self.signs, directions)
        loose = directions * np.sqrt(np.where(self.held, 0.0, regularizer.stiffness(self.signs)))
        return Face(anchor, self.basis, slope, None if regularizer.separable else curvature, loose @ loose.T)

    @cached_property
    def basis(self) -> Array:
        """Orthonormal columns, shape (K, K'): combinations that vanish at held weights."""
        rows = self.span.directions[:, self.held] * self.span.scale[self.held]
        if rows.size == 0:
            return np.eye(len(rows))
        left, sizes, _ = singular(rows, whole=rows.shape[0] > rows.shape[1])
        return left[:, int((sizes > INDEPENDENT).sum()) :]

r"""A preconditioner for conjugate gradients: columns' sizes, and directions of the previous system.

The systems of successive Newton steps differ only by the curvature. The directions p of the previous one,
conjugate in its matrix A, :math:`p_i^\top A p_j = 0`, give its inverse on their span, and its diagonal S
approximates it elsewhere:

.. math:: M = P P^\top + (I - P Y^\top) S^{-1} (I - Y P^\top), \qquad Y = A P, \quad P^\top Y = I,

the limited-memory quasi-Newton preconditioner of Morales and Nocedal (2000). It is positive definite whatever
the matrix that it is used for.
"""

import math

import numpy as np

Array = np.ndarray

#: Directions that are kept: they about span the eigenvectors of the largest eigenvalues.
_DIRECTIONS = 8

#: Directions are used if a product with the matrix reads at least so many entries per unknown.
_ENTRIES = 256.0


class Preconditioner:
    """A positive definite approximation of a matrix's inverse."""

    def __init__(self, unknowns: int, entries: float) -> None:
        most = _DIRECTIONS if entries >= _ENTRIES * unknowns else 0
        self._new, self._old = (np.empty((2, most, unknowns)) for _ in range(2))
        self._count = self._known = 0
        self.sizes: Array = np.ones(unknowns)

    def begin(self, sizes: Array) -> None:
        """Start on another matrix, with a diagonal of about ``sizes``, of shape (K,)."""
        self.sizes = sizes
        if self._count:
            self._new, self._old, self._known, self._count = self._old, self._new, self._count, 0

    def learn(self, direction: Array, image: Array, bend: float) -> None:
        """Add a direction, conjugate in the matrix to those before. Shapes: direction, image (K,)."""
        if self._count < self._new.shape[1]:
            root = math.sqrt(bend)
            for place, vector in zip(self._new[:, self._count], (direction, image)):
                np.divide(vector, root, out=place)
            self._count += 1

    def __call__(self, residual: Array, out: Array) -> Array:
        """Write the preconditioned residual, of shape (K,), to ``out``."""
        if not self._known:
            return np.divide(residual, self.sizes, out=out)
        directions, images = self._old[:, : self._known]
        shares = directions @ residual
        np.matmul(shares, images, out=out)
        np.subtract(residual, out, out=out)
        out /= self.sizes
        out += (shares - images @ out) @ directions
        return out

    def squared_length(self, residual: Array, scaled: Array, room: Array) -> float:
        """Squared length of a residual in the metric of the diagonal alone, independent of the directions.

        Shapes: residual, scaled, room (K,).
        """
        return float(residual @ (np.divide(residual, self.sizes, out=room) if self._known else scaled))

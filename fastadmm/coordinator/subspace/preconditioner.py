r"""What conjugate gradients divide residuals by: columns' sizes, and what the last system has shown.

Systems of one Newton step after another differ by the curvature alone. Directions p of the last one, which
are conjugate in its matrix A, :math:`p_i^\top A p_j = 0`, say what its inverse does in their span, and the
sizes S of its diagonal about what it does elsewhere:

.. math:: M = P P^\top + (I - P Y^\top) S^{-1} (I - Y P^\top), \qquad Y = A P, \quad P^\top Y = I,

the limited-memory quasi-Newton preconditioner of Morales and Nocedal (2000). It is positive definite whatever
the matrix that it is used for.
"""

from __future__ import annotations

import math

import numpy as np

__all__ = ["Preconditioner"]

Array = np.ndarray

#: So many directions are kept: in them are the largest of the matrix's eigenvalues, about.
_DIRECTIONS = 8

#: Entries of a product for each unknown, from which on directions cost little beside it.
_ENTRIES = 256.0


class Preconditioner:
    """Positive definite, about the inverse of a matrix.

    Parameters
    ----------
    unknowns : int
        K.
    entries : float
        That a product with the matrix reads.
    """

    def __init__(self, unknowns: int, entries: float) -> None:
        most = _DIRECTIONS if entries >= _ENTRIES * unknowns else 0
        self._new, self._old = (np.empty((2, most, unknowns)) for _ in range(2))
        self._count = self._known = 0
        self.sizes: Array = np.ones(unknowns)

    def begin(self, sizes: Array) -> None:
        """Go on to another matrix, whose diagonal has sizes of shape (K,)."""
        self.sizes = sizes
        if self._count:
            self._new, self._old, self._known, self._count = self._old, self._new, self._count, 0

    def learn(self, direction: Array, image: Array, bend: float) -> None:
        """Take in one of the matrix's conjugate directions.

        Parameters
        ----------
        direction, image : ndarray of shape (K,)
            The latter is the product with the matrix.
        bend : float
            Their inner product; positive.
        """
        if self._count < self._new.shape[1]:
            root = math.sqrt(bend)
            for place, vector in zip(self._new[:, self._count], (direction, image)):
                np.divide(vector, root, out=place)
            self._count += 1

    def __call__(self, residual: Array, out: Array) -> Array:
        """Write what a residual of shape (K,) is about the product of, to ``out``."""
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
        """Of a residual, over the sizes alone, which no direction makes small.

        Parameters
        ----------
        residual, scaled : ndarray of shape (K,)
            The latter is what :meth:`__call__` made of it.
        room : ndarray of shape (K,)
            Written to.
        """
        return float(residual @ (np.divide(residual, self.sizes, out=room) if self._known else scaled))

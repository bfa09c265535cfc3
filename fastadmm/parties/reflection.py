r"""Forget one direction: turn an orthonormal basis so that it becomes the last vector, and drop that.

A Householder reflection :math:`H = I - 2 u u^\top` maps the direction :math:`q` to plus or minus a
coordinate vector :math:`e_j`. The other rows of :math:`H X` are an orthonormal basis of what is orthogonal to
q; party and coordinator find the same one from q alone. Several directions take as many reflections, which
are applied at once.
"""

from __future__ import annotations

import numpy as np


def reflection(direction: np.ndarray) -> tuple[np.ndarray, int]:
    """Unit vector of the reflection, and the row to drop. Shapes: direction, unit (K,)."""
    row = int(np.flatnonzero(direction)[-1])
    unit = direction / np.linalg.norm(direction)
    unit[row] += 1.0 if unit[row] >= 0.0 else -1.0  # away from zero: nothing cancels
    return unit / np.linalg.norm(unit), row


def reflect_rows(matrix: np.ndarray, rows: np.ndarray, unit: np.ndarray, part: tuple[int, int]) -> None:
    """Reflect some rows R of a matrix in place, ``R -= 2 unit (unit @ R)``, in a range of columns.

    Shapes: matrix (K, N); rows (k,) of int; unit (k,).
    """
    own, image = matrix[:, slice(*part)], np.zeros(part[1] - part[0])
    for row, share in zip(rows, unit):  # one after the other: a product's last digits depend on its place
        image += share * own[row]
    for row, share in zip(rows, unit):
        own[row] -= 2.0 * share * image


class Turn:
    r"""Reflections in a row, :math:`I - Y T^\top Y^\top`, that make some directions the first vectors.

    Shapes: gone, units (n, K); rest (K - n, K).
    """

    def __init__(self, gone: np.ndarray) -> None:
        from scipy.linalg.lapack import dgeqrf

        n = len(gone)
        factor, scales = dgeqrf(gone.T)[:2]
        y = np.tril(factor, -1)
        y[np.arange(n), np.arange(n)] = 1.0
        # A direction already in its place takes no reflection, such as the last one of a whole basis.
        inverse = np.triu(y.T @ y, 1)
        inverse[np.arange(n), np.arange(n)] = 1.0 / np.maximum(scales, 1e-300)
        self._y = y
        self._weights = y[n:] @ np.linalg.inv(inverse).T
        self.units = (y * np.sqrt(0.5 * scales)).T
        self.rest = np.eye(len(y))[n:] - self._weights @ y.T

    def applied(self, vectors: np.ndarray) -> np.ndarray:
        """``rest @ vectors``, of shape (K - n, p), for vectors of shape (K, p), in less work."""
        turned: np.ndarray = vectors[len(self.units) :] - self._weights @ (self._y.T @ vectors)
        return turned

r"""The last moves of each party's weights, and the direction that it can do without.

Directions are orthonormal, and a party keeps a limited number. What is worth keeping is what the method of
conjugate gradients keeps, and more of it: the weights and their last moves. The space that they span loses
one dimension in a round, the part of the oldest move that nothing else holds; merging raw directions instead
would forget conjugacy, and cost several times the rounds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["Moves"]


class Moves:
    """Moves of all weights in coordinates of the directions.

    Attributes
    ----------
    rows : ndarray of shape (k, K)
        Changes of the coefficients in the last rounds, newest first; columns as the messages.
    """

    def __init__(self) -> None:
        self.rows = np.empty((0, 0))

    def record(self, before: np.ndarray, after: np.ndarray, most: int) -> None:
        """Take in a round's move and keep the newest ``most``.

        Parameters
        ----------
        before : ndarray of shape (K',)
            Coefficients at its start, without those of new directions.
        after : ndarray of shape (K,)
        most : int
        """
        move = after.copy()
        move[: len(before)] -= before
        known = np.zeros((min(len(self.rows), most - 1), len(after)))
        known[:, : self.rows.shape[1]] = self.rows[: len(known)]
        self.rows = np.vstack([move, known])

    def forgettable(self, coefficients: np.ndarray, mine: np.ndarray) -> np.ndarray:
        """Unit vector orthogonal to a party's weights and its newest moves, as many as leave one.

        Parameters
        ----------
        coefficients : ndarray of shape (K,)
        mine : ndarray of int, shape (K_m,)
            Which directions are the party's.

        Returns
        -------
        ndarray of shape (K_m,)
        """
        # LAPACK by name: NumPy's QR takes several times as long for a few dozen rows.
        from scipy.linalg.lapack import dgeqrf, dormqr

        rows = np.vstack([coefficients[mine], self.rows[:, mine]])
        sizes = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        rows = (rows[sizes > 0.0] / sizes[sizes > 0.0, np.newaxis])[: len(mine) - 1]
        rest = np.zeros((len(mine), 1))
        rest[-1] = 1.0
        if len(rows):
            # The last column of Q is orthogonal to all others, of which the first span the rows.
            factor, scales = dgeqrf(rows.T)[:2]
            rest = dormqr("L", "N", factor, scales, rest, len(mine))[0]
        return rest[:, 0] / np.linalg.norm(rest)

    def reflect(self, unit: np.ndarray, mine: np.ndarray) -> None:
        """Follow a party's directions when it turns them: see :mod:`fastadmm.parties.reflection`.

        Parameters
        ----------
        unit : ndarray of shape (K_m,)
        mine : ndarray of int, shape (K_m,)
        """
        self.rows[:, mine] -= 2.0 * np.outer(self.rows[:, mine] @ unit, unit)

    def drop(self, places: Sequence[int]) -> None:
        """Forget the shares of some directions."""
        self.rows = np.delete(self.rows, places, axis=1)

r"""The last moves of each party's weights, and the direction that it can discard.

Directions are orthonormal, and a party keeps a limited number: the weights and their last moves, as the
method of conjugate gradients does, and of the rest those of largest curvature. Every new direction has large
components along these, so a span without them has to find them again before it makes progress along others
(compare thick restarts in eigenvalue problems, deflation in conjugate gradients). What counts is the
curvature after the other parties' coefficients have adjusted: what they can do as well is no loss. Merging
raw directions would lose conjugacy, and cost several times the rounds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastadmm.coordinator.subspace.span_hessian import CurvatureLeft

__all__ = ["LAST_MOVES", "Moves"]

#: Moves that are kept whatever their curvature: one is conjugacy, another what a changed metric leaves of it.
LAST_MOVES = 2


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
        before : ndarray of shape (K',) or (C, K')
            Coefficients at its start, without those of new directions.
        after : ndarray of shape (K,) or (C, K)
            Of C classes, a move is so many rows.
        most : int
        """
        move = np.atleast_2d(after).copy()
        move[:, : before.shape[-1]] -= before
        known = np.zeros((max(0, min(len(self.rows), most - len(move))), move.shape[1]))
        known[:, : self.rows.shape[1]] = self.rows[: len(known)]
        self.rows = np.vstack([move, known])

    def all_forgettable(
        self,
        coefficients: np.ndarray,
        places: Sequence[np.ndarray],
        left: CurvatureLeft | None,
        counts: Sequence[int],
    ) -> list[np.ndarray]:
        """:meth:`forgettable` of one party after another: what one has forgotten the next ones cannot lose.

        Parameters
        ----------
        coefficients : ndarray of shape (K,) or (C, K)
        places : sequence of ndarray of int, shape (K_m,)
            Which directions are each party's.
        left : CurvatureLeft or None
            Told what is forgotten.
        counts : sequence of int
            How many of each party.

        Returns
        -------
        list of ndarray of shape (count, K_m)
        """
        gone = []
        for mine, count in zip(places, counts):
            gone.append(self.forgettable(coefficients, mine, None if left is None else left.of(mine), count))
            if left is not None:
                left.forget(gone[-1], mine)
        return gone

    def forgettable(
        self, coefficients: np.ndarray, mine: np.ndarray, hessian: np.ndarray | None = None, count: int = 1
    ) -> np.ndarray:
        """Unit vectors orthogonal to a party's weights and its newest moves.

        Parameters
        ----------
        coefficients : ndarray of shape (K,) or (C, K)
        mine : ndarray of int, shape (K_m,)
            Which directions are the party's.
        hessian : ndarray of shape (K_m, K_m), optional
            In the party's coefficients, where all others follow. With it the last two moves are kept, and the
            vectors are those along which the objective is least curved; else as many moves as leave so many.
        count : int
            How many.

        Returns
        -------
        ndarray of shape (count, K_m)
            Orthonormal rows.
        """
        # LAPACK by name: NumPy's QR takes several times as long for a few dozen rows.
        from scipy.linalg.lapack import dgeqrf, dormqr

        own = np.atleast_2d(coefficients)[:, mine]
        newest = self.rows[: len(self.rows) if hessian is None else LAST_MOVES * len(own), mine]
        rows = np.vstack([own, newest])
        sizes = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        rows = (rows[sizes > 0.0] / sizes[sizes > 0.0, np.newaxis])[: len(mine) - count]
        rest = np.eye(len(mine), order="F")[:, -count if hessian is None else len(rows) :]
        if len(rows):
            # The last columns of Q are orthogonal to the first, which span the rows.
            factor, scales = dgeqrf(rows.T)[:2]
            rest = dormqr("L", "N", factor, scales, rest, len(mine))[0]
        if hessian is not None:
            rest = rest @ np.linalg.eigh(rest.T @ hessian @ rest)[1][:, :count]
        return np.ascontiguousarray(rest.T)

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

r"""The last moves of each party's weights, and the direction that it can discard.

Directions are orthonormal, and a party keeps a limited number: the weights and their last moves, as the
method of conjugate gradients does. Every new direction has large components along these, so a span without
them has to find them again before it makes progress along others. Merging raw directions would lose
conjugacy, and cost several times the rounds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


class Moves:
    """Moves of all weights in coordinates of the directions. Shapes: rows (k, K)."""

    def __init__(self) -> None:
        self.rows = np.empty((0, 0))

    def record(self, before: np.ndarray, after: np.ndarray, most: int) -> None:
        """Take in a round's move and keep the newest ``most``. Shapes: after (K,) or (C, K)."""
        move = np.atleast_2d(after).copy()
        move[:, : before.shape[-1]] -= before
        known = np.zeros((max(0, min(len(self.rows), most - len(move))), move.shape[1]))
        known[:, : self.rows.shape[1]] = self.rows[: len(known)]
        self.rows = np.vstack([move, known])

    def forgettable(self, coefficients: np.ndarray, mine: np.ndarray, count: int = 1) -> np.ndarray:
        """Unit vectors orthogonal to a party's weights and its newest moves.

        Shapes: coefficients (K,) or (C, K); mine (K_m,); the result (count, K_m).
        """
        # LAPACK by name: NumPy's QR takes several times as long for a few dozen rows.
        from scipy.linalg.lapack import dgeqrf, dormqr

        rows = np.vstack([np.atleast_2d(coefficients)[:, mine], self.rows[:, mine]])
        sizes = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        rows = (rows[sizes > 0.0] / sizes[sizes > 0.0, np.newaxis])[: len(mine) - count]
        rest = np.eye(len(mine), order="F")[:, -count:]
        if len(rows):
            # The last columns of Q are orthogonal to the first, which span the rows.
            factor, scales = dgeqrf(rows.T)[:2]
            rest = dormqr("L", "N", factor, scales, rest, len(mine))[0]
        return np.ascontiguousarray(rest.T)

    def reflect(self, unit: np.ndarray, mine: np.ndarray) -> None:
        """Follow a party's directions when it turns them: see :mod:`fastadmm.parties.reflection`.

        Shapes: unit, mine (K_m,).
        """
        if len(self.rows):
            self.rows[:, mine] -= 2.0 * np.outer(self.rows[:, mine] @ unit, unit)

    def drop(self, places: Sequence[int]) -> None:
        """Forget the shares of some directions."""
        if len(self.rows):
            self.rows = np.delete(self.rows, places, axis=1)

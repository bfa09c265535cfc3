"""What a party does with its directions in every round, where they are so long that many threads share them.

Sums over columns are added by halves over pieces that follow from their number alone. A party has all of its
columns on one machine, so none of these sums travels.
"""

from __future__ import annotations

import math

import numpy as np

from fastadmm.conversation.answering import Unanswerable
from fastadmm.engine.engine import Engine
from fastadmm.engine.tree import MOST_LEAVES, Ranges, halved


class OwnDirections:
    """A party that keeps directions."""

    directions: np.ndarray

    def _own(self, coefficients: np.ndarray) -> np.ndarray:
        """Coefficients of shape (K,), of as many directions as there are."""
        if len(coefficients) != len(self.directions):
            raise Unanswerable(
                f"{len(coefficients)} coefficients for {len(self.directions)} directions that were sent; "
                "the coordinator's state is another run's"
            )
        return coefficients


#: Columns from which on threads share a party's directions, and those of a piece of work.
_LONG, _PIECE = 1 << 14, 1 << 10


def _pieces(columns: int) -> Ranges:
    return halved(columns, min(1 << (columns // _PIECE).bit_length() - 1, MOST_LEAVES))


def add_weights(
    directions: np.ndarray, coefficients: np.ndarray, scale: float, residual: np.ndarray, engine: Engine
) -> float:
    """Add a multiple of the weights ``directions.T @ coefficients``; the squared norm of the result.

    Shapes: directions (K, d); coefficients (K,); residual (d,).
    """
    from fastadmm.kernels import directions as kernels

    if len(residual) < _LONG:
        return float(kernels.add_weights(directions, coefficients, scale, residual))
    given = directions, -scale * coefficients, 1.0, residual, residual, directions[:0]
    return float(engine.sum_over_columns(kernels.less_known, _pieces(len(residual)), (1,), *given)[0])


def orthonormal(direction: np.ndarray, earlier: np.ndarray, out: np.ndarray, engine: Engine) -> bool:
    """Write the unit vector along what is new of a direction; whether anything is.

    Shapes: direction, out (d,); earlier (K, d).
    """
    from fastadmm.kernels import directions as kernels

    if len(direction) < _LONG:
        return bool(kernels.orthonormal(direction, earlier, out))
    pieces, k = _pieces(len(direction)), len(earlier)

    def less(shares: np.ndarray, scale: float, given: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Subtract shares of the earlier ones; the result's products with rows, and its square."""
        arguments = earlier[: len(shares)], shares, scale, given, out, rows
        return engine.sum_over_columns(kernels.less_known, pieces, (len(rows) + 1,), *arguments)

    found = less(np.empty(0), 1.0, direction, earlier)
    size = math.sqrt(found[k])
    if not (math.isfinite(size) and size > 0.0):
        return False
    found = less(found[:k], 1.0 / size, direction, earlier)
    left = math.sqrt(max(0.0, found[k] - found[:k] @ found[:k]))
    if not kernels.is_new(left):
        return False
    less(found[:k], 1.0 / left, out, earlier[:0])  # twice is enough (Kahan, Parlett)
    return True

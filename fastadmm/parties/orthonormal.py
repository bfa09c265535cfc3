"""What is new of a direction: the unit vector along its part orthogonal to earlier ones."""

from __future__ import annotations

import math

import numpy as np

__all__ = ["orthonormal"]

#: Less than this share of a direction is rounding.
_NOTHING_NEW = 1e-9


def orthonormal(direction: np.ndarray, earlier: np.ndarray) -> np.ndarray | None:
    """Unit vector along what is new of a direction; None if nothing is.

    Parameters
    ----------
    direction : ndarray of shape (d,)
    earlier : ndarray of shape (K, d)
        Orthonormal rows.
    """
    size = math.sqrt(float(direction @ direction))
    if not (math.isfinite(size) and size > 0.0):
        return None
    direction = direction / size
    for _ in range(2):  # twice is enough (Kahan, Parlett)
        direction -= (earlier @ direction) @ earlier
    left = math.sqrt(float(direction @ direction))
    return direction / left if left > _NOTHING_NEW else None

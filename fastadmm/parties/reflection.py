r"""Forget one direction: turn an orthonormal basis so that it becomes the last vector, and drop that.

A Householder reflection :math:`H = I - 2 u u^\top` maps the direction :math:`q` to plus or minus a
coordinate vector :math:`e_j`. The other rows of :math:`H X` are an orthonormal basis of what is orthogonal to
q; party and coordinator find the same one from q alone.
"""

from __future__ import annotations

import numpy as np

__all__ = ["reflection"]


def reflection(direction: np.ndarray) -> tuple[np.ndarray, int]:
    """Unit vector of the reflection, and the row to drop.

    Parameters
    ----------
    direction : ndarray of shape (K,)
        q in coordinates of the basis; not zero.

    Returns
    -------
    unit : ndarray of shape (K,)
        u.
    row : int
        j, the last with a share of q: of one that only a few rows share, the rows before stay first.
    """
    row = int(np.flatnonzero(direction)[-1])
    unit = direction / np.linalg.norm(direction)
    unit[row] += 1.0 if unit[row] >= 0.0 else -1.0  # away from zero: nothing cancels
    return unit / np.linalg.norm(unit), row

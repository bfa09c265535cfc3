r"""Forget one direction: turn an orthonormal basis so that it becomes the last vector, and drop that.

A Householder reflection :math:`H = I - 2 u u^\top` maps the direction :math:`q` to plus or minus a
coordinate vector :math:`e_j`. The other rows of :math:`H X` are an orthonormal basis of what is orthogonal to
q; party and coordinator find the same one from q alone. Several directions take as many reflections.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


def reflection(direction: np.ndarray) -> tuple[np.ndarray, int]:
    """Unit vector of the reflection, and the row to drop. Shapes: direction, unit (K,)."""
    row = int(np.flatnonzero(direction)[-1])
    unit = direction / np.linalg.norm(direction)
    unit[row] += 1.0 if unit[row] >= 0.0 else -1.0  # away from zero: nothing cancels
    return unit / np.linalg.norm(unit), row


def reflections(gone: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
    """Those of several orthonormal directions, one after another. Shapes: gone (n, K)."""
    left = gone.copy()
    for k, direction in enumerate(left):
        unit, row = reflection(direction)
        yield unit, row
        left[k + 1 :] -= 2.0 * np.outer(left[k + 1 :] @ unit, unit)
        left[k + 1 :, row] = 0.0  # but for rounding: no row is dropped twice


def reflect_rows(matrix: np.ndarray, rows: np.ndarray, unit: np.ndarray, part: tuple[int, int]) -> None:
    """Reflect some rows R of a matrix in place, ``R -= 2 unit (unit @ R)``, in a range of columns.

    Shapes: matrix (K, N); rows (k,) of int; unit (k,).
    """
    own, image = matrix[:, slice(*part)], np.zeros(part[1] - part[0])
    for row, share in zip(rows, unit):  # one after the other: a product's last digits depend on its place
        image += share * own[row]
    for row, share in zip(rows, unit):
        own[row] -= 2.0 * share * image

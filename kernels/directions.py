"""What a party does with its directions in every round, each in one call: often they are short."""

import math

import numpy as np
from fastadmm.kernels.policy import kernel

#: No more than this share of a direction is rounding.
_NOTHING_NEW = 1e-9

#: Columns that are reflected at a time: they stay in the first-level cache.
_BLOCK = 1024


@kernel
def add_weights(directions, coefficients, scale, residual):
    """Add a multiple of the weights ``directions.T @ coefficients``; the squared norm of the result.

    Shapes: directions (K, d); coefficients (K,); residual (d,).
    """
    if len(coefficients) > 0:
        weights = np.dot(coefficients, directions)
        for j in range(len(residual)):
            residual[j] += scale * weights[j]
    return np.dot(residual, residual)


@kernel
def orthonormal(direction, earlier, out):
    """Write the unit vector along what is new of a direction; whether anything is.

    Shapes: direction (d,); earlier (K, d); out (d,).
    ``earlier``: orthonormal rows. ``out``: left in any state where nothing is new.
    """
    size = math.sqrt(np.dot(direction, direction))
    if not (math.isfinite(size) and size > 0.0):
        return False
    for j in range(len(out)):
        out[j] = direction[j] / size
    if len(earlier) > 0:
        for _ in range(2):  # twice is enough (Kahan, Parlett)
            known = np.dot(np.dot(earlier, out), earlier)
            for j in range(len(out)):
                out[j] -= known[j]
    left = math.sqrt(np.dot(out, out))
    if not left > _NOTHING_NEW:
        return False
    for j in range(len(out)):
        out[j] /= left
    return True


@kernel
def reflect_rows(matrix, rows, unit, start, stop):
    """Reflect some rows of a matrix in place, ``R -= 2 unit (unit @ R)``, in a range of columns.

    Shapes: matrix (K, N); rows (k,) of int; unit (k,).
    ``rows``: which rows R are. ``unit``: unit vector. ``start``, ``stop``: range of columns.
    """
    image = np.empty(_BLOCK)
    for begin in range(start, stop, _BLOCK):
        size = min(begin + _BLOCK, stop) - begin
        for i in range(size):
            image[i] = 0.0
        for j in range(len(rows)):
            own, share = matrix[rows[j], begin : begin + size], unit[j]
            for i in range(size):
                image[i] += share * own[i]
        for j in range(len(rows)):
            own, share = matrix[rows[j], begin : begin + size], 2.0 * unit[j]
            for i in range(size):
                own[i] -= share * image[i]

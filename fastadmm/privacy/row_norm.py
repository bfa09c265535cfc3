r"""The public row norm R: rows longer than R are shortened to R before anything is computed from them.

R is given, or found with noise: the smallest point of a public grid that at most a tenth of the rows that
are not zero exceed, by bisection with noisy counts. A count changes by at most 1 when one record is replaced
(theorem ``docs/fusion.md#f2-the-row-norm``).
"""

from __future__ import annotations

import math

import numpy as np

from fastadmm.blocks.block import CSRBlock, DenseBlock, FeatureBlock
from fastadmm.engine.engine import Engine
from fastadmm.privacy.noise import NoiseSource, calibrate

__all__ = ["NORM_QUERIES", "find_row_norm", "row_norms"]

Array = np.ndarray

#: Noisy counts: rows that are not zero, then bisection of the 2**8 points 2**(-8) ... 2**(24 - 1/8).
NORM_QUERIES = 9
_FIRST, _STEP = -8.0, 0.125

#: Share of the rows that may be shortened; a count is told from zero at this many standard deviations.
_SHORTENED, _DEVIATIONS = 0.1, 3.0


def row_norms(block: FeatureBlock, engine: Engine) -> Array:
    """Euclidean norm of each row.

    Shapes: block (N, d); the result (N,).
    """
    rows, found = (0, block.shape[0]), np.empty(block.shape[0])
    if isinstance(block, DenseBlock):
        for (start, stop), part in block.once(rows):
            found[start:stop] = np.sqrt(np.einsum("ij,ij->i", part, part))
        return found
    if isinstance(block, CSRBlock):
        for (start, stop), (indptr, _, data) in block.once(rows):
            squares = np.concatenate([data[: indptr[-1]] ** 2, [0.0]])
            sums = np.add.reduceat(squares, indptr[:-1])
            found[start:stop] = np.sqrt(np.where(np.diff(indptr) > 0, sums, 0.0))
        return found
    total = np.zeros(block.shape[0])
    for j in range(block.shape[1]):
        unit = np.zeros(block.shape[1])
        unit[j] = 1.0
        total += block.product(unit, engine) ** 2
    return np.sqrt(total)


def find_row_norm(norms: Array, mu: float, noise: NoiseSource, round: int, engine: Engine) -> float:
    r"""Find a row norm that most rows do not exceed, mu-GDP.

    Guarantee: ``docs/fusion.md#f2-the-row-norm``.

    Shapes: norms (N,).
    """
    level = calibrate(1.0, math.sqrt(NORM_QUERIES) / mu, 1)

    def noisy_count(limit: float, query: int) -> float:
        exact = np.array([float((norms > limit).sum())])
        return float(noise.release(exact, level, round + query, engine).values[0])

    allowed = max(_SHORTENED * noisy_count(0.0, 0), _DEVIATIONS * level.sigma)
    low, high = 0, 2 ** (NORM_QUERIES - 1) - 1
    for query in range(1, NORM_QUERIES):
        middle = (low + high) // 2
        if noisy_count(_point(middle), query) <= allowed:
            high = middle
        else:
            low = min(middle + 1, high)
    return _point(high)


def _point(k: int) -> float:
    return float(2.0 ** (_FIRST + _STEP * k))

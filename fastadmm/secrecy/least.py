r"""The least of shares that parties hold, from sums alone: how many are at or above each of some thresholds.

Thresholds lie close to 1, where a scale of a dual vector ends up: their distances from 1, and near 0 they
themselves, fall by the factor :math:`2^{1/16}`. The share that is found is one that every party allows, and
misses 1 by at most 4.5 % more than the least does.
"""

from __future__ import annotations

import numpy as np

__all__ = ["THRESHOLDS", "at_or_above", "least_share"]

_K = np.arange(1, 641) / 16.0

#: In falling order, from 1 to 2^-40.
THRESHOLDS = np.concatenate([[1.0], 1.0 - 2.0 ** -_K[::-1], 2.0 ** -_K[_K > 4.5]])


def at_or_above(share: float) -> np.ndarray:
    """A party's part: 1 where its share, from 0 to 1, is at or above the threshold, else 0."""
    return (share >= THRESHOLDS).astype(np.float64)


def least_share(counts: np.ndarray, n_parties: int) -> float:
    """Largest threshold that all parties allow; 0 where there is none.

    Shapes: counts (n_thresholds,).
    """
    allowed = np.flatnonzero(counts == n_parties)
    return float(THRESHOLDS[allowed[0]]) if len(allowed) else 0.0

r"""How far computed sums can be from exact ones.

Higham, *Accuracy and Stability of Numerical Algorithms*, section 3.1.

A sum of products that goes through at most k roundings, in whatever order, is off by at most
:math:`\gamma_k \sum_i |a_i b_i|` with :math:`\gamma_k = k u / (1 - k u)` and :math:`u = 2^{-53}`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastadmm.blocks.block import FeatureBlock

__all__ = ["UNIT", "column_lengths", "gamma", "image_roundings", "levels", "sum_roundings"]

#: Half the distance from 1 to the next double: the largest relative error of one operation.
UNIT = 2.0**-53


def gamma(k: float) -> float:
    r""":math:`\gamma_k`, for k roundings."""
    return k * UNIT / (1.0 - k * UNIT)


def levels(n_rows: int) -> float:
    """Additions that a leaf's sum goes through in the tree at most, with a few more operations."""
    return math.log2(n_rows + 1.0) + 8.0


def sum_roundings(n_rows: int, leaves: Sequence[tuple[int, int]]) -> float:
    """Roundings that a term of a sum over rows goes through at most: its leaf's, and those of the tree.

    Parameters
    ----------
    n_rows : int
        Of all workers.
    leaves : sequence of (int, int)
        Of the rows that are here.
    """
    return max(stop - start for start, stop in leaves) + levels(n_rows)


def image_roundings(block: FeatureBlock, compensated: bool, engine: Any) -> float:
    """Roundings of ``D.T u``, relative to the norms of column and vector.

    Parameters
    ----------
    block : FeatureBlock of shape (N, d)
    compensated : bool
        Whether leaves are added up as if in twice the precision.
    engine : Engine
    """
    n, d = block.shape
    rows = engine.all_rows(n)
    if compensated:
        return levels(rows) + rows * rows * UNIT
    entries = block.density * rows
    return sum_roundings(rows, engine.leaves(n, entries * d, entries))


def column_lengths(block: FeatureBlock, exact: bool, engine: Any) -> np.ndarray:
    r"""Upper bounds of the norms of a block's columns, of shape (d,).

    Parameters
    ----------
    block : FeatureBlock of shape (N, d)
    exact : bool
        Whether a pass over the data is made for them; else all are bounded by the largest entry, if it is
        known: :math:`\sqrt N \max_{ij} |D_{ij}|`.
    engine : Engine
    """
    n, d = block.whole_shape
    if not exact and math.isfinite(block.largest):
        return np.full(d, math.sqrt(n) * block.largest * (1.0 + gamma(4)))
    return np.sqrt(block.column_squares(engine)) * (1.0 + gamma(n + 4))

r"""How far computed sums can be from exact ones.

Higham, *Accuracy and Stability of Numerical Algorithms*, section 3.1.

A sum of products that goes through at most k roundings, in whatever order, is off by at most
:math:`\gamma_k \sum_i |a_i b_i|` with :math:`\gamma_k = k u / (1 - k u)` and :math:`u = 2^{-53}`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from fastadmm.blocks.block import FeatureBlock

__all__ = ["UNIT", "column_lengths", "gamma", "image_roundings", "levels", "sum_roundings"]

#: Half the distance from 1 to the next double: the largest relative error of one operation.
UNIT = 2.0**-53


@lru_cache(maxsize=64)
def _most_roundings(leaves: tuple[tuple[int, int], ...], n_here: int, n_rows: int) -> float:
    return max(stop - start for start, stop in leaves) + levels(leaves, n_here, n_rows)


def gamma(k: float) -> float:
    r""":math:`\gamma_k`, for k roundings."""
    return k * UNIT / (1.0 - k * UNIT)


def levels(leaves: Sequence[tuple[int, int]], n_here: int, n_rows: int) -> float:
    """Additions that a leaf's sum goes through in the tree at most, with a few more operations.

    Parameters
    ----------
    leaves : sequence of (int, int)
        Of the rows that are here.
    n_here, n_rows : int
        Rows here, and of all workers.
    """
    return math.ceil(math.log2(len(leaves) * n_rows / n_here)) + 3.0


def sum_roundings(n_here: int, leaves: Sequence[tuple[int, int]], n_rows: int) -> float:
    """Roundings that a term of a sum over rows goes through at most: its leaf's, and those of the tree.

    Parameters
    ----------
    n_here, leaves, n_rows
        As of :func:`levels`.
    """
    return _most_roundings(tuple(leaves), n_here, n_rows)


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
    entries = block.density * rows
    leaves = engine.leaves(n, entries * d, entries)
    return levels(leaves, n, rows) + rows * rows * UNIT if compensated else sum_roundings(n, leaves, rows)


def column_lengths(block: FeatureBlock, exact: bool, engine: Any) -> Any:
    r"""Upper bounds of the norms of a block's columns, of shape (d,), or one for all.

    Parameters
    ----------
    block : FeatureBlock of shape (N, d)
    exact : bool
        Whether a pass over the data is made for them; else all are bounded by the largest entry, if it is
        known: :math:`\sqrt N \max_{ij} |D_{ij}|`.
    engine : Engine
    """
    n, _ = block.whole_shape
    if not exact:
        if not math.isfinite(block.largest):
            block.largest = block.find_largest(engine)
        return math.sqrt(n) * block.largest * (1.0 + gamma(4))
    return np.sqrt(block.column_squares(engine)) * (1.0 + gamma(n + 4))

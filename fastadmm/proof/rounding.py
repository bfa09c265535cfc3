r"""How far computed sums can be from exact ones.

Higham, *Accuracy and Stability of Numerical Algorithms*, section 3.1.

A sum of products that goes through at most k roundings, in whatever order, is off by at most
:math:`\gamma_k \sum_i |a_i b_i|` with :math:`\gamma_k = k u / (1 - k u)` and :math:`u = 2^{-53}`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.blocks.tiles import leaf_terms

__all__ = ["UNIT", "column_lengths", "gamma", "image_roundings", "row_roundings"]

#: Half the distance from 1 to the next double: the largest relative error of one operation.
UNIT = 2.0**-53


def gamma(k: float) -> float:
    r""":math:`\gamma_k`, for k roundings."""
    return k * UNIT / (1.0 - k * UNIT)


def row_roundings(n_rows: int, exact: bool = False) -> float:
    """Roundings of a term of a sum over all rows: in its leaf, unless that is exact, and in the tree."""
    rows, levels = leaf_terms(n_rows)
    return levels + (3.0 if exact else rows + 3.0)


def image_roundings(block: FeatureBlock, compensated: bool) -> float:
    """Roundings of ``D.T u``, relative to the norms of column and vector.

    Parameters
    ----------
    block : FeatureBlock of shape (N, d)
    compensated : bool
        Whether leaves are added up as if in twice the precision.
    """
    n, d = block.whole_shape
    rows, levels = leaf_terms(n, block.density * n * d, block.density * n)
    return levels + 3.0 + (rows * rows * UNIT if compensated else rows)


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

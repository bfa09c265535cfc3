r"""How far computed sums can be from exact ones.

Higham, *Accuracy and Stability of Numerical Algorithms*, section 3.1.

A sum of products that goes through at most k roundings, in whatever order, is off by at most
:math:`\gamma_k \sum_i |a_i b_i|` with :math:`\gamma_k = k u / (1 - k u)` and :math:`u = 2^{-53}`.
"""

from __future__ import annotations

from fastadmm.blocks.block import FeatureBlock
from fastadmm.blocks.tiles import leaf_terms

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
    """Roundings of ``D.T u``, relative to the norms of column and vector."""
    n, d = block.whole_shape
    rows, levels = leaf_terms(n, block.density * n * d, block.density * n)
    return levels + 3.0 + (rows * rows * UNIT if compensated else rows)

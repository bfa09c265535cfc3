"""Information matrices of all parties' columns together: D' diag(s) D, with a column of ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.engine.engine import Engine

Array = np.ndarray

#: Columns that are spread out over the rows at a time.
_COLUMNS = 32


def joint_gram(blocks: Sequence[FeatureBlock], weight: Array, intercept: bool, engine: Engine) -> Array:
    """Weighted Gram matrix of all columns: the Hessian of a summed loss, for its curvature as weight.

    Shapes: weight (N,); the result (p, p).
    """
    starts = np.concatenate([[0], np.cumsum([block.shape[1] for block in blocks])]).astype(int)
    gram = np.zeros((starts[-1] + intercept,) * 2)
    for k, block in enumerate(blocks):
        own = slice(starts[k], starts[k + 1])
        gram[own, own] = block.gram(engine, weight)
        for begin in range(0, block.shape[1] if k else 0, _COLUMNS):
            chosen = np.arange(begin, min(begin + _COLUMNS, block.shape[1]))
            columns = block.matrix_product(np.eye(block.shape[1])[chosen], engine) * weight
            for m, other in enumerate(blocks[:k]):
                products = other.transposed_matrix_product(columns, engine)
                gram[starts[k] + chosen, starts[m] : starts[m + 1]] = products
                gram[starts[m] : starts[m + 1], starts[k] + chosen] = products.T
    if intercept:
        gram[-1] = gram[:, -1] = joint_products(blocks, weight, True, engine)
    return gram


def joint_products(blocks: Sequence[FeatureBlock], vector: Array, intercept: bool, engine: Engine) -> Array:
    """Products of all columns with a vector: the gradient of a summed loss, for its derivative in z.

    Shapes: vector (N,); the result (p,).
    """
    own = [block.transposed_product(vector, engine) for block in blocks]
    return np.concatenate([*own, [vector.sum()]] if intercept else own)

"""Synthetic vertically split problems with known weights."""

from functools import partial

import numpy as np
from scipy import sparse


def make_vertical_classification(
    n_samples, widths, density=1.0, seed=0, *, flip=0.0, signal=2.0, duplicate=False, noise=None
):
    """Blocks, labels and weights of a logistic model, or with noise of a linear one; a share is flipped."""
    generator, blocks = np.random.default_rng(seed), []
    for width in widths[:1] if duplicate else widths:
        X = generator.standard_normal((n_samples, width))
        if density < 1.0:
            X = sparse.csr_array(np.where(generator.random(X.shape) >= density, 0.0, X))
        blocks.append(X)
    blocks = [blocks[0].copy() for _ in widths] if duplicate else blocks
    weights = [generator.standard_normal(width) for width in widths]
    z = np.sum([X @ x for X, x in zip(blocks, weights)], axis=0)
    factor = signal / (np.std(z) or signal)
    z, weights = z * factor, [x * factor for x in weights]
    if noise is not None:
        return blocks, z + noise * generator.standard_normal(n_samples), weights
    y = (generator.random(n_samples) < 1.0 / (1.0 + np.exp(-z))).astype(np.float64)
    y = np.where(generator.random(n_samples) < flip, 1.0 - y, y)
    if y.min() == y.max():  # tiny samples: keep both classes present
        y[np.argmin(z)], y[np.argmax(z)] = 0.0, 1.0
    return blocks, y, weights


make_vertical_regression = partial(make_vertical_classification, noise=0.1)

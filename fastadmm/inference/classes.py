r"""Standard errors of a multinomial model: of each class's weights less those of the first class.

A number that is added to the weights of all classes changes no probability, so a class's own weights have no
standard errors. Differences to the first class do. The ridge penalty of all weights is, for such differences
:math:`\delta_c`, the least that any weights with these differences have:

.. math:: \tfrac{\lambda N}{2} \Big( \sum_c |\delta_c|^2 - \tfrac1C \big|\sum_c \delta_c\big|^2 \Big).
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from scipy import special

from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError
from fastadmm.inference.likelihood import Rows
from fastadmm.problem.problem import Problem

Array = np.ndarray


def contrasts(weights: Array) -> Array:
    """Weights of the other classes less those of the first, of shape (C - 1, d), for weights of (d, C)."""
    return np.asarray(weights.T[1:] - weights.T[:1])


def order_of(widths: Sequence[int], n_others: int, intercept: bool) -> Array:
    """Places in the table of weights that stand class by class, each with the columns of all parties."""
    each = sum(widths) + intercept
    ends = np.cumsum([0, *widths, *[1] * intercept])
    places = [c * each + np.arange(a, b) for a, b in pairwise(ends) for c in range(n_others)]
    return np.concatenate(places)


def rows_of_classes(
    problem: Problem, weights: Sequence[Array], intercept: Array, weight: Array, engine: Engine
) -> Rows:
    """What the rows say of several classes. Shapes: each of weights (d_m, C); intercept (C,); weight (N,)."""
    if problem.offset.any():
        raise ConfigError("inference: several classes with an offset have no standard errors here")
    ones, count = problem.fit_intercept, problem.n_outputs
    z = np.zeros((count, problem.n_samples)) + np.reshape(intercept, (-1, 1))
    for block, x in zip(problem.blocks, weights, strict=True):
        z += block.matrix_product(np.ascontiguousarray(x.T), engine)
    likely = special.softmax(z, axis=0)
    slopes = weight * (likely - (np.arange(count)[:, np.newaxis] == problem.y))

    def curvature(a: int, b: int) -> Array:
        return np.asarray(weight * likely[a + 1] * (float(a == b) - likely[b + 1]))

    table = [contrasts(x) for x in weights] + [contrasts(np.reshape(intercept, (1, -1)))] * ones
    counts = np.bincount(problem.y.astype(int), weights=weight, minlength=count)
    shares = np.log(np.maximum(counts, 1e-300)) if ones else np.zeros(count)
    return Rows(
        z=z,
        null=np.broadcast_to(shares[:, np.newaxis], z.shape),
        weight=weight,
        slopes=slopes[1:],
        curvature=curvature,
        estimates=np.concatenate(table, axis=1).ravel(),
        spread=(likely * (1.0 - likely)).max(axis=0),
    )

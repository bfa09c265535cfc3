r"""A local model by differentially private gradient descent: what a party may publish about its columns.

Rows :math:`\tilde a_i = (a_i / \max(|a_i|, R),\ \kappa)`, score :math:`S_i = \tilde a_i^\top x + o`, logistic
loss on public targets q. Each step sees

.. math:: \sum_i \tilde a_i\,(\sigma(S_i) - q_i) + N(0, \sigma^2 I), \qquad \sigma = \Delta \sqrt T / \mu

and nothing else of the data. With :math:`\bar q = \max_i \max(|q_i|, |1 - q_i|)` and
:math:`\kappa \le \sqrt 3` the sensitivity is :math:`\Delta = 2 \bar q` when one record's features are
replaced (theorem ``docs/fusion.md#f1-the-local-model``): the constant feature costs nothing. Step size,
momentum, ridge and number of steps are functions of N alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.engine.engine import Engine
from fastadmm.privacy.noise import NoiseSource, calibrate

__all__ = ["STEPS", "LocalModel", "gradient_sensitivity", "private_descent"]

Array = np.ndarray

#: T, momentum, kappa and ridge (on normalised rows, summed loss); chosen on a9a's training rows.
STEPS, STEP, MOMENTUM, CONSTANT, RIDGE = 40, 2.0, 0.8, 0.3, 5.0

#: Rows are shortened by this much more, so that rounding cannot make one longer than 1.
_SLACK = 1e-9


@dataclass(frozen=True)
class LocalModel:
    """A party's released model.

    Shapes: weights (d,).
    """

    weights: Array  # of shape (d,): for the party's columns as they are (not normalised)
    intercept: float
    sigma: float  # noise on each number of a gradient
    sensitivity: float  # of one gradient, rounding to the grid included


def gradient_sensitivity(target: Array) -> float:
    r"""Largest l2 change of the summed gradient when one record's features are replaced.

    Theorem: ``docs/fusion.md#f1-the-local-model``.

    Shapes: target (N,).
    """
    q, rest = np.abs(target), np.abs(1.0 - target)
    return float(max(2.0 * q.max(), 2.0 * rest.max(), np.hypot(q + rest, CONSTANT).max()))


def private_descent(
    block: FeatureBlock,
    norms: Array,
    row_norm: float,
    target: Array,
    mu: float,
    noise: NoiseSource,
    round: int,
    engine: Engine,
) -> LocalModel:
    """Fit a logistic model of the public targets on one party's columns, mu-GDP.

    Guarantee: ``docs/fusion.md#f1-the-local-model``.

    Shapes: block (N, d); norms, target (N,).
    """
    from scipy.special import expit

    n, d = block.shape
    prior = min(max(float(target.mean()), 1.0 / n), 1.0 - 1.0 / n)
    offset = math.log(prior / (1.0 - prior))
    shrink = (1.0 - _SLACK) / np.maximum(norms, row_norm)
    level = calibrate(gradient_sensitivity(target), math.sqrt(STEPS) / mu, d + 1)
    step = STEP / (0.25 * n * (1.0 + CONSTANT**2) + RIDGE)
    x, velocity, average = np.zeros(d + 1), np.zeros(d + 1), np.zeros(d + 1)
    tail = STEPS // 2
    for t in range(STEPS):
        score = shrink * block.product(x[:d], engine) + (CONSTANT * x[d] + offset)
        residual = expit(score) - target
        exact = np.append(block.transposed_product(shrink * residual, engine), CONSTANT * residual.sum())
        noisy = noise.release(exact, level, round + t, engine).values
        velocity = MOMENTUM * velocity - step * (noisy + RIDGE * x)
        x = x + velocity
        if t >= tail:
            average += x / (STEPS - tail)
    return LocalModel(
        average[:d] / row_norm, float(offset + CONSTANT * average[d]), level.sigma, level.sensitivity
    )

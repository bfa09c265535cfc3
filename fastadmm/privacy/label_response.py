r"""Labels under randomised response, once, before anything else: pure label-epsilon for all that follows.

Each label flips with probability :math:`p = 1/(1 + e^\varepsilon)`. What the parties then learn from is the
unbiased soft target :math:`\tilde q = \tfrac12 (1 + \tilde Y/(1 - 2p))`, :math:`\tilde Y = \pm 1`: outside
[0, 1], with mean 1 or 0 for the two classes, so that the logistic loss keeps its mean and its convexity.
Theorem: ``docs/fusion.md#f6-labels``.
"""

from __future__ import annotations

import math

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.privacy.noise import NoiseSource

__all__ = ["flip_probability", "randomise_labels", "soft_targets"]

Array = np.ndarray


def flip_probability(epsilon: float) -> float:
    """p = 1 / (1 + e^epsilon), rounded towards privacy.

    Theorem: ``docs/fusion.md#f6-labels``.
    """
    if math.isinf(epsilon):
        return 0.0
    # 2**-50: what 53-bit uniforms can miss.
    return min(1.0 / (1.0 + math.exp(epsilon)) + 2.0**-50, 0.5)


def randomise_labels(y: Array, epsilon: float, noise: NoiseSource, round: int, engine: Engine) -> Array:
    """Randomised response on labels.

    Guarantee: ``docs/fusion.md#f6-labels``.

    Shapes: y, the result (N,).
    """
    flip = noise.uniform(len(y), round, engine) < flip_probability(epsilon)
    return ((y > 0.5) ^ flip).astype(np.uint8)


def soft_targets(noisy: Array, epsilon: float) -> Array:
    r"""Unbiased targets from randomised labels.

    Shapes: noisy, the result (N,).
    """
    scale = 1.0 / (1.0 - 2.0 * flip_probability(epsilon))
    return 0.5 * (1.0 + (2.0 * np.asarray(noisy, dtype=np.float64) - 1.0) * scale)

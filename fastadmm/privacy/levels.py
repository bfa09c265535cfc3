r"""One randomised symbol per record: the message of ``mode="fusion"``, pure epsilon-LDP.

The score S of a record is cut to ``center`` ± ``clip``, mapped to t in [-1, 1], and sent through the
channel of :mod:`fastadmm.kernels.randomised_level`. With :math:`\theta = \mathrm{keep} =
(e^\varepsilon - 1)/(e^\varepsilon + k - 1)` a symbol has probability
:math:`\theta\,[\text{level}=j] + (1-\theta)/k`, whose largest ratio between any two records is
:math:`1 + k\theta/(1-\theta) = e^\varepsilon`: theorem ``docs/fusion.md#f4-the-symbol``. The released number
``center + clip v / keep`` has mean ``center + clip t``: it is unbiased.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fastadmm.engine.engine import Engine, row_ranges
from fastadmm.privacy.noise import NoiseSource

__all__ = ["Channel", "choose_channel"]

Array = np.ndarray

#: More than this is never needed: the channel is then as good as exact, and epsilon left over is not spent.
MAX_EPSILON = 12.0

#: Uniforms have 53 bits: with this much less kept, rounding cannot lift the ratio above e^epsilon.
_ROUNDING = 2.0**-48

_LEVELS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32)
_CLIPS = (1.5, 1.75, 2.0, 2.5, 3.0, 3.5)


@dataclass(frozen=True)
class Channel:
    """A public channel from scores to symbols."""

    epsilon: float  # pure local epsilon
    n_levels: int  # k; 2 is one bit
    center: float  # scores beyond ``center - clip`` and ``center + clip`` count as these
    clip: float  # scores beyond ``center - clip`` and ``center + clip`` count as these

    @property
    def keep(self) -> float:
        """Probability that a level is kept (theorem F4)."""
        return keep_probability(self.epsilon, self.n_levels)

    @property
    def bits(self) -> float:
        """Size of one record's message in bits."""
        return math.log2(self.n_levels)

    def probabilities(self, score: Array) -> Array:
        """Probability of each symbol, of shape (N, k), for scores of shape (N,)."""
        last = self.n_levels - 1
        t = np.clip((np.asarray(score, dtype=np.float64) - self.center) / self.clip, -1.0, 1.0)
        place = 0.5 * (t + 1.0) * last
        low = np.minimum(place.astype(np.int64), last - 1)
        level = np.zeros((len(t), self.n_levels))
        rows = np.arange(len(t))
        level[rows, low] = 1.0 - (place - low)
        level[rows, low + 1] = place - low
        return self.keep * level + (1.0 - self.keep) / self.n_levels

    def release(self, score: Array, noise: NoiseSource, round: int, engine: Engine) -> Array:
        """Draw the symbols that leave the party.

        Guarantee: ``docs/fusion.md#f4-the-symbol``.

        Shapes: score, the result (N,).
        """
        from fastadmm.kernels.randomised_level import randomised_levels

        n = len(score)
        rounding = noise.uniform(n, round, engine, stream=0)
        response = noise.uniform(n, round, engine, stream=1)
        levels = np.empty(n, dtype=np.uint8)
        arguments = (score, self.center, self.clip, self.keep, self.n_levels, rounding, response, levels)
        engine.map(lambda rows: randomised_levels(*arguments, *rows), row_ranges(n))
        return levels

    def values(self, levels: Array) -> Array:
        """Unbiased numbers for symbols of shape (N,): their mean is the score cut to the range."""
        v = -1.0 + 2.0 * np.arange(self.n_levels) / (self.n_levels - 1)
        return (self.center + self.clip / self.keep * v)[levels]


def keep_probability(epsilon: float, n_levels: int) -> float:
    """Probability with which k-ary randomised response keeps a symbol, (e^eps - 1) / (e^eps + k - 1).

    Theorem: ``docs/fusion.md#f4-the-symbol``.
    """
    gain = math.expm1(min(epsilon, MAX_EPSILON))
    return gain / (gain + n_levels) - _ROUNDING


@lru_cache(maxsize=64)
def _best_shape(epsilon: float) -> tuple[int, float]:
    """Levels and clip (in standard deviations) that tell most about a Gaussian score."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(101)
    weights = weights / weights.sum()
    best = (-1.0, 2, 2.0)
    for k in _LEVELS:
        keep = keep_probability(epsilon, k)
        v = -1.0 + 2.0 * np.arange(k) / (k - 1)
        for clip in _CLIPS:
            p = Channel(epsilon, k, 0.0, clip).probabilities(nodes)
            second = float(weights @ (p @ (v * v))) / keep**2
            mean = p @ v / keep
            # squared correlation of score and symbol
            quality = float(weights @ (mean * nodes)) ** 2 / (second - float(weights @ mean) ** 2)
            if quality > best[0] * (1.0 + 1e-9):
                best = (quality, k, clip)
    return best[1], best[2]


def choose_channel(epsilon: float, mean: float, deviation: float) -> Channel:
    """Choose levels and range from public numbers: the squared correlation with a Gaussian score is
    largest.
    """
    epsilon = min(epsilon, MAX_EPSILON)
    levels, clip = _best_shape(epsilon)
    return Channel(epsilon, levels, mean, clip * deviation)

r"""Mean and mean square of a party's scores per class, which give centre, range and weights.

With :math:`t = \mathrm{clip}((S - o)/h, -1, 1)`, h = 4 log-odds, the vector
:math:`(\sum t, \sum t^2)` of the records of each (public) class changes by at most 2 in l2 norm when one
record's features are replaced, and only in that record's class: theorem ``docs/fusion.md#f3-the-moments``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.privacy.noise import NoiseSource, calibrate

__all__ = ["SCORE_RANGE", "ScoreMoments", "release_moments"]

Array = np.ndarray

#: h: a score is in units of log-odds, of which 4 is as good as certainty for a local model.
SCORE_RANGE = 4.0

#: Smallest variance of the scores (squared log-odds) that is believed.
_LEAST_VARIANCE = 0.01


@dataclass(frozen=True)
class ScoreMoments:
    """Released moments of the scores, by public class.

    Shapes: count, mean, square (2,).
    """

    count: Array  # of shape (2,): records of each public class
    mean: Array  # of shape (2,): mean of S and of ``(S - origin)**2``
    square: Array  # of shape (2,): mean of S and of ``(S - origin)**2``
    origin: float  # o, the local model's intercept
    sigma: float  # noise on each sum, in units of h and h squared

    @property
    def overall(self) -> tuple[float, float]:
        """Mean and variance of all scores."""
        share = self.count / self.count.sum()
        mean = float(share @ self.mean)
        variance = float(share @ self.square) - (mean - self.origin) ** 2
        return mean, max(variance, _LEAST_VARIANCE)


def release_moments(
    score: Array,
    public_class: Array,
    origin: float,
    mu: float,
    noise: NoiseSource,
    round: int,
    engine: Engine,
) -> ScoreMoments:
    """Release the moments, mu-GDP.

    Guarantee: ``docs/fusion.md#f3-the-moments``.

    Shapes: score, public_class (N,).
    """
    t = np.clip((score - origin) / SCORE_RANGE, -1.0, 1.0)
    second = public_class > 0.5
    count = np.array([float((~second).sum()), float(second.sum())])
    sums = np.array([t[~second].sum(), t[second].sum(), (t[~second] ** 2).sum(), (t[second] ** 2).sum()])
    level = calibrate(2.0, 1.0 / mu, 4)
    noisy = noise.release(sums, level, round, engine).values
    some = np.maximum(count, 1.0)
    mean = np.clip(noisy[:2] / some, -1.0, 1.0)
    square = np.clip(noisy[2:] / some, 0.0, 1.0)
    return ScoreMoments(count, origin + SCORE_RANGE * mean, SCORE_RANGE**2 * square, origin, level.sigma)

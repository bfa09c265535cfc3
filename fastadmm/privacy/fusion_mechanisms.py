"""The mechanisms of mode "fusion": the public row norm, private gradient descent, moments, and symbols.

Each function is one theorem of ``docs/fusion.md``, with the proof there. Step size, momentum, ridge and
number of steps of the descent are functions of N alone.
"""

import math
from dataclasses import dataclass

import numpy as np

from fastadmm.blocks.block import CSRBlock, DenseBlock, FeatureBlock
from fastadmm.engine.engine import Engine, row_ranges
from fastadmm.privacy.noise import NoiseSource, calibrate

Array = np.ndarray

#: Noisy counts: rows that are not zero, then bisection of the 2**8 points 2**(-8) ... 2**(24 - 1/8).
NORM_QUERIES = 9
_FIRST, _STEP = -8.0, 0.125

#: Share of the rows that may be shortened; a count is told from zero at this many standard deviations.
_SHORTENED, _DEVIATIONS = 0.1, 3.0


def row_norms(block: FeatureBlock) -> Array:
    """Euclidean norm of each row. Shapes: block (N, d); the result (N,)."""
    rows, found = (0, block.shape[0]), np.empty(block.shape[0])
    if isinstance(block, DenseBlock):
        for (start, stop), part in block.once(rows):
            found[start:stop] = np.sqrt(np.einsum("ij,ij->i", part, part))
        return found
    if not isinstance(block, CSRBlock):
        raise TypeError(f"no rows in a {type(block).__name__}")
    for (start, stop), (indptr, _, data) in block.once(rows):
        squares = np.concatenate([data[: indptr[-1]] ** 2, [0.0]])
        sums = np.add.reduceat(squares, indptr[:-1])
        found[start:stop] = np.sqrt(np.where(np.diff(indptr) > 0, sums, 0.0))
    return found


def find_row_norm(norms: Array, mu: float, noise: NoiseSource, round: int, engine: Engine) -> float:
    """A norm that most rows do not exceed: ``docs/fusion.md#f2-the-row-norm``. Shapes: norms (N,)."""
    level = calibrate(1.0, math.sqrt(NORM_QUERIES) / mu, 1)

    def noisy_count(limit: float, query: int) -> float:
        exact = np.array([float((norms > limit).sum())])
        return float(noise.release(exact, level, round + query, engine).values[0])

    allowed = max(_SHORTENED * noisy_count(0.0, 0), _DEVIATIONS * level.sigma)
    low, high = 0, 2 ** (NORM_QUERIES - 1) - 1
    for query in range(1, NORM_QUERIES):
        middle = (low + high) // 2
        if noisy_count(_point(middle), query) <= allowed:
            high = middle
        else:
            low = min(middle + 1, high)
    return _point(high)


def _point(k: int) -> float:
    return float(2.0 ** (_FIRST + _STEP * k))


#: T, momentum, kappa and ridge (on normalised rows, summed loss); chosen on a9a's training rows.
STEPS, STEP, MOMENTUM, CONSTANT, RIDGE = 40, 2.0, 0.8, 0.3, 5.0

#: Rows are shortened by this much more, so that rounding cannot make one longer than 1.
_SLACK = 1e-9


@dataclass(frozen=True)
class LocalModel:
    """A party's released model. Shapes: weights (d,)."""

    weights: Array  # of shape (d,): for the party's columns as they are (not normalised)
    intercept: float
    sigma: float  # noise on each number of a gradient
    sensitivity: float  # of one gradient, rounding to the grid included


def gradient_sensitivity(target: Array) -> float:
    """Largest l2 change of a gradient: ``docs/fusion.md#f1-the-local-model``. Shapes: target (N,)."""
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
    """A local model: ``docs/fusion.md#f1-the-local-model``. Shapes: block (N, d); norms, target (N,)."""
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


#: h: a score is in units of log-odds, of which 4 is as good as certainty for a local model.
SCORE_RANGE = 4.0

#: Smallest variance of the scores (squared log-odds) that is believed.
_LEAST_VARIANCE = 0.01


@dataclass(frozen=True)
class ScoreMoments:
    """Released moments of the scores, by public class. Shapes: count, mean, square (2,)."""

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
    """Release the moments, mu-GDP: ``docs/fusion.md#f3-the-moments``. Shapes: score, public_class (N,)."""
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


#: More than this is never needed: the channel is then as good as exact, and epsilon left over is not spent.
MAX_EPSILON = 12.0

#: Uniforms have 53 bits: with this much less kept, rounding cannot lift the ratio above e^epsilon.
_ROUNDING = 2.0**-48

#: From an epsilon on, how many levels and which clip (in standard deviations) tell most about a Gaussian
#: score: found by a search that a test repeats. The guarantee holds for any.
_SHAPES = (
    (0.0, 2, 1.5), (0.94, 3, 1.5), (2.36, 4, 1.5), (3.16, 5, 1.5), (3.82, 6, 1.5), (5.16, 8, 1.5),
    (5.62, 10, 1.75), (6.36, 12, 2.0), (6.82, 16, 2.0), (7.98, 24, 2.0), (8.06, 24, 2.5), (9.24, 32, 2.5),
    (10.22, 32, 3.0),
)  # fmt: skip


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

    def release(self, score: Array, noise: NoiseSource, round: int, engine: Engine) -> Array:
        """Draw the symbols that leave: ``docs/fusion.md#f4-the-symbol``. Shapes: score, the result (N,)."""
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
    """Probability that k-ary randomised response keeps a symbol: ``docs/fusion.md#f4-the-symbol``."""
    gain = math.expm1(min(epsilon, MAX_EPSILON))
    return gain / (gain + n_levels) - _ROUNDING


def choose_channel(epsilon: float, mean: float, deviation: float) -> Channel:
    """Levels and range, from public numbers alone."""
    epsilon = min(epsilon, MAX_EPSILON)
    levels, clip = next((k, clip) for least, k, clip in reversed(_SHAPES) if least <= epsilon)
    return Channel(epsilon, levels, mean, clip * deviation)

r"""Noise on an owner's answers: scale, lattice and law.

An answer is a sum of bounded gradients, which replacing one record moves by at most :math:`\Delta = 2\Xi`. It
is published in whole steps of a lattice, with whole noise, so that no low-order bit of the data survives:
discrete Laplace noise whose T answers add up to epsilon, rounding included, or Gaussian noise whose T answers
are exactly :math:`\sqrt T \Delta / \sigma`-GDP.
"""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fastadmm.errors import ConfigError
from fastadmm.owners.bound import Bound
from fastadmm.privacy.accounting import noise_multiplier

#: The noise's scale is about this power of two in steps of the lattice.
_SCALE_BITS = 32

#: Sums of gradients stay below this power of two in units, so that they are exact in floating point.
_SUM_BITS = 51


def system_words(count: int) -> np.ndarray:
    """Independent random 64-bit words from the operating system, shape (count,)."""
    return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


def lattice_unit(n_records: int, xi: float) -> float:
    """Power of two whose multiples below ``n_records * xi`` are added without rounding; 0 for infinite xi."""
    if math.isinf(xi):
        return 0.0
    return float(2.0 ** (math.ceil(math.log2(max(1, n_records) * xi)) - _SUM_BITS))


def discrete_laplace_integers(
    scale: int, size: int, words: Callable[[int], np.ndarray] = system_words
) -> np.ndarray:
    """Exact samples of the discrete Laplace law. Shapes: the result (size,)."""
    from fastadmm.kernels.owner_gradient import RESERVE, discrete_laplace

    out = np.empty(size, dtype=np.int64)
    done = 0
    while done < size:
        done = discrete_laplace(words(RESERVE + 24 * (size - done)), scale, out, done)
    return out


@dataclass(frozen=True)
class NoNoise:
    """Exact answers, for an owner that trains for itself or sets epsilon to infinity."""

    step: float = 0.0
    name: str = "none"

    @property
    def variance(self) -> float:
        """Variance of the noise on each coordinate of the sum."""
        return 0.0

    def answer(self, total: np.ndarray) -> np.ndarray:
        """The sum as it is, shape (p,)."""
        return total


@dataclass(frozen=True)
class LaplaceAnswers:
    """Discrete Laplace noise."""

    step: float  # g, a power of two
    scale: int  # t, in steps
    epsilon_round: float  # what one answer costs; T of them cost at most epsilon
    name: str = "laplace"

    @property
    def variance(self) -> float:
        """Variance of the noise on each coordinate of the sum."""
        # 2 q / (1 - q)^2 with q = exp(-1/t), written so that nothing cancels.
        return (self.step / math.sinh(0.5 / self.scale)) ** 2 / 2.0

    def answer(self, total: np.ndarray, words: Callable[[int], np.ndarray] = system_words) -> np.ndarray:
        """Publish a sum. Shapes: total, the result (p,)."""
        steps = np.rint(total / self.step).astype(np.int64)
        return (steps + discrete_laplace_integers(self.scale, len(total), words)) * self.step


@dataclass(frozen=True)
class GaussianAnswers:
    """Gaussian noise on a lattice."""

    step: float  # g, a power of two
    sigma: float  # standard deviation on each coordinate of the sum
    name: str = "gaussian"

    @property
    def variance(self) -> float:
        """Variance of the noise on each coordinate of the sum."""
        return self.sigma**2

    def answer(self, total: np.ndarray) -> np.ndarray:
        """Publish a sum, shape (p,), as multiples of the step."""
        steps = np.rint(total / self.step).astype(np.int64)
        return (steps + gaussian_steps(self.sigma / self.step, len(total))) * self.step


def _step(unit: float, scale: float) -> float:
    return max(unit, float(2.0 ** (math.floor(math.log2(scale)) - _SCALE_BITS)))


def laplace_answers(
    unit: float, sensitivity: float, n_values: int, epsilon: float, rounds: int
) -> LaplaceAnswers:
    """Noise for T answers of so many numbers, which one record moves by so much before they are rounded."""
    step = _step(unit, sensitivity * rounds / epsilon)
    steps = sensitivity / step + n_values
    scale = math.ceil(steps * rounds / epsilon * (1.0 + 2.0**-40))
    if scale > 2**55:
        raise ConfigError(f"epsilon: {epsilon:g} over {rounds} rounds is too small for the noise's lattice")
    return LaplaceAnswers(step, scale, steps / scale)


def make_answers(
    mechanism: str,
    bound: Bound,
    *,
    n_records: int,
    n_parameters: int,
    rounds: int,
    epsilon: float,
    delta: float | None = None,
) -> NoNoise | LaplaceAnswers | GaussianAnswers:
    """Calibrate one owner's answers."""
    if math.isinf(epsilon):
        return NoNoise()
    unit = lattice_unit(n_records, bound.xi)
    sensitivity = 2.0 * bound.xi
    if mechanism == "laplace":
        # Contributions were rounded to the unit: half a unit per coordinate and record.
        sensitivity += n_parameters * unit
        return laplace_answers(unit, sensitivity, n_parameters, epsilon, rounds)
    if delta is None or not 0 < delta < 1:
        raise ConfigError("delta: Gaussian answers need a delta between 0 and 1, such as 1e-6")
    if delta * n_records >= 1:
        raise ConfigError(
            f"delta: {delta:g} with {n_records} records: at 1/n or above, publishing a random record would "
            "count as private; give less"
        )
    root = math.sqrt(n_parameters)
    sensitivity += root * unit
    multiplier = noise_multiplier(epsilon, delta, rounds)
    step = _step(unit, sensitivity * multiplier)
    sensitivity += root * step
    return GaussianAnswers(step, sensitivity * multiplier)


def gaussian_steps(scale: float, size: int) -> np.ndarray:
    """Whole Gaussian noise, int64 of shape (size,), by a key of this call alone."""
    from fastadmm.kernels.gaussian_noise import grid_normal

    key = np.frombuffer(os.urandom(32), dtype=np.uint32)
    out = np.empty(size, dtype=np.int64)
    grid_normal(key, np.zeros(3, dtype=np.uint32), scale, out, 0, size)
    return out

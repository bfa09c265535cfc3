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
from fastadmm.settings.owners import OwnerSettings

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
    from fastadmm.kernels.owner_noise import RESERVE, discrete_laplace

    out = np.empty(size, dtype=np.int64)
    done = 0
    while done < size:
        done = discrete_laplace(words(RESERVE + 24 * (size - done)), scale, out, done)
    return out


def gaussian_steps(scale: float, size: int) -> np.ndarray:
    """Whole Gaussian noise, int64 of shape (size,), by a key of this call alone."""
    from fastadmm.kernels.gaussian_noise import grid_normal

    key = np.frombuffer(os.urandom(32), dtype=np.uint32)
    out = np.empty(size, dtype=np.int64)
    grid_normal(key, np.zeros(3, dtype=np.uint32), scale, out, 0, size)
    return out


@dataclass(frozen=True)
class Mechanism:
    """An owner's noise; by default none, for one that trains for itself or sets epsilon to infinity."""

    name: str = "none"
    step: float = 0.0  # g, a power of two
    scale: float = 0.0  # in steps: t of the Laplace law (a whole number), sigma of the normal one

    @property
    def private(self) -> bool:
        """Whether there is noise."""
        return self.name != "none"

    @property
    def variance(self) -> float:
        """Variance of the noise on each coordinate of the sum."""
        if self.name == "laplace":
            # 2 q / (1 - q)^2 with q = exp(-1/t), written so that nothing cancels.
            return (self.step / math.sinh(0.5 / self.scale)) ** 2 / 2.0
        return (self.scale * self.step) ** 2

    def answer(self, total: np.ndarray) -> np.ndarray:
        """Publish a sum, in multiples of the step; as it is without noise. Shapes: total, the result (p,)."""
        if not self.private:
            return total
        steps = np.rint(total / self.step).astype(np.int64)
        if self.name == "laplace":
            return (steps + discrete_laplace_integers(int(self.scale), len(total))) * self.step
        return (steps + gaussian_steps(self.scale, len(total))) * self.step


def _step(unit: float, scale: float) -> float:
    return max(unit, float(2.0 ** (math.floor(math.log2(scale)) - _SCALE_BITS)))


def make_answers(
    settings: OwnerSettings, bound: Bound, shape: tuple[int, int], epsilon: float, delta: float | None
) -> Mechanism:
    """Calibrate the answers of an owner with so many records and parameters."""
    if math.isinf(epsilon):
        return Mechanism()
    (n_records, n_parameters), rounds = shape, settings.rounds
    unit, sensitivity = lattice_unit(n_records, bound.xi), 2.0 * bound.xi
    if settings.mechanism == "laplace":
        # Contributions were rounded to the unit: half a unit per coordinate and record; so is their sum.
        sensitivity += n_parameters * unit
        step = _step(unit, sensitivity * rounds / epsilon)
        steps = sensitivity / step + n_parameters
        scale = math.ceil(steps * rounds / epsilon * (1.0 + 2.0**-40))
        if scale > 2**55:
            raise ConfigError(
                f"epsilon: {epsilon:g} over {rounds} rounds is too small for the noise's lattice"
            )
        return Mechanism("laplace", step, scale)
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
    return Mechanism("gaussian", step, (sensitivity + root * step) * multiplier / step)

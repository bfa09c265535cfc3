r"""Noise: full rank, on a grid, from a key of the operating system.

A message v of N numbers leaves a party as integers :math:`\mathrm{rint}(v/g) + \mathrm{rint}((\sigma/g)\, n)`
of a grid :math:`g = 2^{\lfloor \log_2 \sigma \rfloor - 28}`, so that no low-order bits show v (Mironov 2012);
rounding v adds :math:`g\sqrt N` to the sensitivity. See ``docs/privacy.md#noise-on-a-grid``. Noise is drawn
entry by entry and never passes through a feature matrix (``docs/privacy.md#noise-on-parameters``).
"""

import hashlib
import math
import os
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np

from fastadmm.conversation.gate import saturated
from fastadmm.engine.engine import Engine, row_ranges
from fastadmm.errors import ConfigError

#: Bits of the grid below the standard deviation.
_GRID_BITS = 28

#: Largest integer that a float holds with all its neighbours: what a receiver converts to exactly.
_LARGEST = 2**53


@dataclass(frozen=True)
class Calibration:
    r"""Noise level of a release."""

    sigma: float  # standard deviation
    grid: float  # g, a power of two
    sensitivity: float  # of the *rounded* value: :math:`\Delta + g\sqrt N`

    @property
    def gdp(self) -> float:
        """mu of one release."""
        return self.sensitivity / self.sigma


def calibrate(sensitivity: float, multiplier: float, n_values: int) -> Calibration:
    """Sigma and grid for a noise multiplier, rounding included: ``docs/privacy.md#noise-on-a-grid``."""
    sigma = sensitivity * multiplier
    if not 0.0 < sigma < 1e300:
        raise ConfigError(f"noise: standard deviation {sigma!r} must be positive and finite")
    while True:
        grid = 2.0 ** (math.floor(math.log2(sigma)) - _GRID_BITS)
        grown = sensitivity + grid * math.sqrt(n_values)
        if grown * multiplier < 2.0 ** (_GRID_BITS + 1) * grid:  # sigma still belongs to this grid
            return Calibration(grown * multiplier, grid, grown)
        sigma = 2.0 ** (math.floor(math.log2(sigma)) + 1)


@dataclass(frozen=True)
class GridMessage:
    """What leaves a party: integers on a public grid. Shapes: integers (N,)."""

    integers: np.ndarray  # of shape (N,): k
    grid: float  # g

    @property
    def values(self) -> np.ndarray:
        """k g, exact in double precision."""
        return self.integers * self.grid


def _key(secret: bytes) -> np.ndarray:
    return np.frombuffer(secret, dtype="<u4").astype(np.uint32)


class NoiseSource:
    """One party's noise for one process: a key that is never shown, and nonces that are never used twice."""

    #: Forks between the process that imported the module and this one.
    _forks: ClassVar[int] = 0

    def __init__(self, sampler: str = "grid", seed: int | None = None, party: int = 0) -> None:
        if seed is not None and sampler != "insecure_test":
            raise ConfigError("seed: private noise is never seeded; sampler 'insecure_test' is for tests")
        if sampler not in ("grid", "discrete", "insecure_test"):
            raise ConfigError(f"sampler: unknown choice {sampler!r}")
        if sampler == "discrete":
            _opendp()
        self.sampler, self.party = sampler, party
        self._used: set[tuple[int, int]] = set()
        self._process: tuple[int, int] | None = None
        if sampler == "insecure_test":
            self.__key = _key(
                hashlib.sha256(f"insecure test {0 if seed is None else seed}".encode()).digest()
            )

    def __repr__(self) -> str:
        return f"NoiseSource(sampler={self.sampler!r}, party={self.party})"

    @property
    def _key(self) -> np.ndarray:
        """This process's key: the child of a fork makes its own, or both would draw the same noise."""
        here = (self._forks, os.getpid())  # the number of a process alone is used again
        if self.sampler != "insecure_test" and self._process != here:
            self.__key, self._process = _key(os.urandom(32)), here
        return self.__key

    def __reduce__(self) -> NoReturn:
        raise TypeError("a noise source is not stored or sent: its key must not leave the process")

    def release(
        self, values: np.ndarray, level: Calibration, round: int, engine: Engine, stream: int = 0
    ) -> GridMessage:
        """Add noise to a value; called once per round and stream. Shapes: values (N,)."""
        # Whether a message leaves must not depend on it; its sensitivity does not grow.
        values = saturated(np.asarray(values, dtype=np.float64), _LARGEST // 4 * level.grid)
        integers = np.rint(values / level.grid).astype(np.int64)
        noise = self._integers(level.sigma / level.grid, len(values), self._nonce(round, stream), engine)
        return GridMessage(integers + noise, level.grid)

    def uniform(self, n_values: int, round: int, engine: Engine, stream: int = 0) -> np.ndarray:
        """Uniform numbers in [0, 1) with 53 bits, for Bernoulli releases. Shapes: the result (n_values,)."""
        from fastadmm.kernels.gaussian_noise import uniform

        key, nonce, out = self._key, self._nonce(round, stream), np.empty(n_values)
        engine.map(lambda rows: uniform(key, nonce, out, *rows), row_ranges(n_values))
        return out

    def _nonce(self, round: int, stream: int) -> np.ndarray:
        if (round, stream) in self._used:
            raise RuntimeError(
                f"noise of round {round}, stream {stream} was drawn before; it is never redrawn"
            )
        self._used.add((round, stream))
        return np.array([self.party, round, stream], dtype=np.uint32)

    def _integers(self, scale: float, n: int, nonce: np.ndarray, engine: Engine) -> np.ndarray:
        if self.sampler == "discrete":
            dp = _opendp()  # exact: Canonne, Kamath, Steinke 2020, with randomness of the system
            space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="f64")
            return np.array(dp.m.make_gaussian(*space, scale=scale)([0] * n), dtype=np.int64)
        from fastadmm.kernels.gaussian_noise import grid_normal

        key, out = self._key, np.empty(n, dtype=np.int64)
        engine.map(lambda rows: grid_normal(key, nonce, scale, out, *rows), row_ranges(n))
        return out


def _forked() -> None:
    NoiseSource._forks += 1


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_forked)


def _opendp() -> Any:
    try:
        from opendp import prelude
    except ImportError:
        raise ConfigError(
            "sampler: 'discrete' needs OpenDP, which is not installed; run: pip install 'fastadmm[privacy]'"
        ) from None
    prelude.enable_features("contrib")
    return prelude
